"""What the Pythons of a rank note of their failures: real interpreters, with the hook on their path."""

import json
import os
import shlex
import signal
import sys
import time

import pytest

from drumline.contract.evidence import ExitEvidence
from drumline.node import hook_folder
from drumline.node.diagnostics import failures

RAISE = "def step(batch):\n    raise ValueError('bad batch')\n\nstep(1)\n"


def place(failure):
    return (failure["type"], failure["message"], failure["file"], failure["line"], failure["function"])


def test_an_uncaught_exception_is_noted_and_shown_as_ever(rank):
    done = rank(RAISE)
    assert done.returncode == 1
    assert place(done.failure) == ("ValueError", "bad batch", "train.py", 2, "step")
    assert done.out.endswith("ValueError: bad batch\n")
    assert done.out.count("Traceback") == 1


def test_the_place_is_the_users_own_and_not_the_librarys(rank):
    done = rank("import json\n\ndef read(text):\n    return json.loads(text)\n\nread('{')\n")
    assert done.failure["type"] == "json.decoder.JSONDecodeError"
    assert place(done.failure)[2:] == ("train.py", 4, "read")


def test_what_the_hook_stands_in_for_is_pickled_by_its_name(rank):
    done = rank("import os, pickle, sys\nprint(pickle.dumps(sys.exit, 0), pickle.dumps(os.kill, 0))\n")
    assert r"csys\nexit\n" in done.out
    assert r"cos\nkill\n" in done.out


def test_a_mistake_in_the_syntax_has_its_place(rank):
    assert place(rank("import os\nx = = 1\n").failure)[2:4] == ("train.py", 2)


def test_a_program_that_sends_many_signals_has_its_end_noted(rank):
    send = "child = subprocess.Popen(['sleep', '60'])\nfor _ in range(500):\n    os.kill(child.pid, 15)\n"
    done = rank(f"import os, subprocess, sys\n{send}child.wait()\nsys.exit('no data')\n")
    assert done.failure["message"] == "no data"


def test_a_message_of_many_lines_is_told_on_one(rank):
    assert rank("raise RuntimeError('\\n\\nFirst\\nSecond')").failure["message"] == "First; Second"


def test_a_group_of_one_speaks_for_that_one(rank):
    done = rank("raise ExceptionGroup('unhandled errors (1 sub-exception)', [KeyError('x')])")
    assert done.failure["message"] == "KeyError: 'x'"


def test_a_group_tells_its_message_and_its_leaves(rank):
    done = rank(
        """
        def read(shard):
            raise ValueError(f"shard {shard} is empty")

        try:
            read(7)
        except ValueError as error:
            raise ExceptionGroup("epoch 3", [ExceptionGroup("readers", [error, OSError("shard 9")])]) from None
        """
    )
    assert done.failure["message"] == "epoch 3: ValueError: shard 7 is empty; OSError: shard 9"
    assert place(done.failure)[2:] == ("train.py", 3, "read")


def test_notes_of_an_exception_belong_to_it(rank):
    done = rank("error = ValueError('bad batch')\nerror.add_note('in shard 7')\nraise error\n")
    assert done.failure["message"] == "bad batch in shard 7"


@pytest.mark.parametrize("kind", ["BaseException", "GeneratorExit", "KeyboardInterrupt", "Stop"])
def test_exceptions_of_every_kind_are_noted(rank, kind):
    done = rank(f"class Stop(BaseException):\n    pass\n\ndef step():\n    raise {kind}('stop')\n\nstep()\n")
    assert place(done.failure) == (kind, "stop", "train.py", 5, "step")


HANDLED = """
    import sys

    def load():
        raise ValueError("bad batch")

    try:
        load()
    except ValueError:
        {end}
"""


@pytest.mark.parametrize(
    ("end", "code", "noted"),
    [
        ("sys.exit(3)", 3, ("ValueError", "bad batch", "train.py", 5, "load")),
        ("sys.exit('no lr:\\n  set it')", 1, ("SystemExit", "no lr: set it", "train.py", 10, "<module>")),
        ("exit(3)", 3, ("ValueError", "bad batch", "train.py", 5, "load")),
        ("quit('no lr')", 1, ("SystemExit", "no lr", "train.py", 10, "<module>")),
        ("sys.exit(0)", 0, None),
        ("__import__('os')._exit(3)", 3, None),
    ],
)
def test_the_exception_that_a_program_handles_as_it_ends_is_noted(rank, end, code, noted):
    done = rank(HANDLED.format(end=end))
    assert (done.returncode, done.failure and place(done.failure)) == (code, noted)
    assert not noted or done.failure["handled"]


@pytest.mark.parametrize("then", ["sys.exit(4)", "pass", "raise KeyError('x')"])
def test_an_end_that_was_averted_explains_no_other(rank, then):
    done = rank("import sys\ntry:\n    sys.exit('no lr')\nexcept SystemExit:\n    pass\n" + then + "\n")
    assert (done.failure or {}).get("type") == ("KeyError" if "raise" in then else None)


def test_a_limit_that_was_met_is_told(rank):
    done = rank(
        """
        import resource

        resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60))
        kept = [open("train.py") for _ in range(100)]
        """
    )
    assert done.failure["circumstances"] == ["its limit of open files (60) was reached"]


def test_variables_that_the_program_changed_are_told_of_ranks_that_did_not_meet(rank):
    text = "import os\nos.environ['WORLD_SIZE'] = '5'\nraise RuntimeError('{}')\n"
    done = rank(text.format("timed out waiting for clients"), env={"WORLD_SIZE": "4"})
    assert done.failure["circumstances"] == ["the program had changed WORLD_SIZE from 4 to 5"]
    assert "circumstances" not in rank(text.format("bad batch"), env={"WORLD_SIZE": "4"}).failure


def test_what_a_process_of_a_pool_raised_has_its_own_place(rank):
    done = rank(
        """
        import multiprocessing as mp

        def work(number):
            raise KeyError("label")

        if __name__ == "__main__":
            with mp.get_context("fork").Pool(1) as pool:
                pool.map(work, [1])
        """
    )
    assert place(done.failure) == ("KeyError", "'label'", "train.py", 5, "work")


def test_the_sender_of_a_signal_is_known_where_it_is_a_python_of_the_ranks(rank, tmp_path):
    def find(pid, number):
        notes = {"rank 3": str(tmp_path / "notes.jsonl")}
        return failures.find_sender(notes, pid, number, 0.0, time.monotonic(), str(tmp_path))

    done = rank("import os\n\ndef give_up():\n    os.kill(os.getpid(), 15)\n\ngive_up()\n")
    assert done.returncode == -signal.SIGTERM
    assert find(done.pid, 15) == "sent by itself (train.py:4, in give_up)"
    assert find(done.pid, 9) == ""
    done = rank(
        """
        import multiprocessing as mp, time

        worker = mp.get_context("fork").Process(target=time.sleep, args=(100,))
        worker.start()
        worker.terminate()
        worker.join()
        print(worker.pid)
        """
    )
    assert (done.returncode, find(int(done.out), 15)) == (0, "sent by rank 3 (train.py:6, in <module>)")


def test_what_is_no_note_has_sent_no_signal(tmp_path):
    (tmp_path / "notes").write_text('[{"sent": 9, "to": 5, "at": 1}]\n')
    assert failures.find_sender({"rank 0": str(tmp_path / "notes")}, 5, 9, 0.0, 2.0, "") == ""


def test_no_frame_of_the_hook_is_printed(rank, tmp_path):
    (tmp_path / "jax.py").write_text("raise ValueError('bad build')\n")
    done = rank("import jax\n", env={"DRUMLINE_STEPS": str(tmp_path / "steps"), "PYTHONPATH": str(tmp_path)})
    assert "jax.py" in done.out
    assert "sitecustomize" not in done.out


def test_the_middle_of_a_long_message_is_left_out(rank):
    frames = "".join(f'  File "/code/a.py", line {number}, in f\\n    g()\\n' for number in range(200))
    text = f"Caught ValueError in DataLoader worker process 0.\\nOriginal Traceback (most recent call last):\\n{frames}"
    done = rank(f"raise RuntimeError({text + 'ValueError: bad image 5'!r}.replace('\\\\n', chr(10)))")
    assert place(done.failure) == ("ValueError", "bad image 5", "/code/a.py", 199, "f")


def test_a_program_that_puts_a_hook_of_its_own_in_the_place_is_seen_through(rank):
    done = rank("import sys\nsys.excepthook = lambda *_: print('mine')\nraise KeyError('x')\n")
    assert done.out == "mine\n"
    assert place(done.failure)[:4] == ("KeyError", "'x'", "train.py", 3)


TELLS = """
    import os, sys, threading

    def tell():
        try:
            int("x")
        except ValueError:
            sys.excepthook(*sys.exc_info())

    {then}
"""


@pytest.mark.parametrize(
    "then",
    [
        "tell(); os.kill(os.getpid(), 9)",
        "(thread := threading.Thread(target=tell)).start(); thread.join(); os.abort()",
        "import code; code.InteractiveInterpreter().runsource('1 / 0'); sys.exit(3)",
        "tell(); import atexit; atexit.register(os.kill, os.getpid(), 15)",
    ],
)
def test_an_exception_that_a_program_tells_of_and_goes_on_did_not_end_it(rank, then):
    done = rank(TELLS.format(then=then))
    assert "Error: " in done.out
    assert done.failure is None


def test_the_exception_that_ended_a_program_is_not_the_one_that_it_told_of_before(rank):
    again = "[tell() for _ in range(300)]; int('y')"
    assert rank(TELLS.format(then=again)).failure["message"].endswith("'y'")
    handed_on = "sys.excepthook = lambda *told, own=sys.excepthook: own(*told); int('y')"
    assert rank(TELLS.format(then=handed_on)).failure["message"].endswith("'y'")


def test_the_users_own_hook_is_called_after_ours(rank, tmp_path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("import sys\nsys.theirs = __file__\n")
    done = rank(
        "import sys, sitecustomize\nprint(sys.theirs, sitecustomize.__file__)", env={"PYTHONPATH": "site"}
    )
    theirs = str(tmp_path / "site" / "sitecustomize.py")
    assert [os.path.join(tmp_path, path) for path in done.out.split()] == [theirs, theirs]
    assert hook_folder.HOOK not in rank("import sys; print(sys.path)").out


def test_an_ordinary_end_notes_nothing(rank):
    assert rank("import sys; sys.exit(3)").failure is None
    assert rank("try:\n    int('x')\nexcept ValueError:\n    raise SystemExit(4)\n").failure is None


def test_an_ordinary_end_has_its_time_before_anything_is_closed(rank):
    done = rank("import time; print(time.monotonic())")
    assert float(done.out) <= done.told.left_at <= time.monotonic()
    assert rank("import os; os._exit(3)").told == ExitEvidence()


@pytest.mark.parametrize(("env", "options"), [({"DRUMLINE_HOOK": "0"}, ()), ({}, ("-I",)), ({}, ("-S",))])
def test_without_the_hook_the_program_runs_all_the_same(rank, env, options):
    done = rank(RAISE, env=env, options=options)
    assert (done.returncode, done.failure) == (1, None)


def test_a_place_that_cannot_be_written_is_the_programs_own_failure_alone(rank, tmp_path):
    (tmp_path / "notes.jsonl").mkdir()
    done = rank(RAISE)
    assert done.failure is None
    assert done.out.count("Traceback") == 1


def test_an_exception_that_cannot_say_what_it_is(rank):
    done = rank("class Odd(Exception):\n    def __str__(self):\n        raise ValueError\n\nraise Odd\n")
    assert done.failure["type"] == "Odd"


PARENT = """
    import subprocess, sys
    if len(sys.argv) > 1:
        raise ValueError("of the child")
    done = subprocess.run([sys.executable, "train.py", "child"]{check})
    {then}
"""


def test_a_launchers_exception_gives_way_to_that_of_the_process_it_started(rank):
    done = rank(PARENT.format(check=", check=True", then=""))
    assert place(done.failure)[:2] == ("ValueError", "of the child")


def test_what_a_process_failed_of_after_its_child_is_its_own(rank):
    done = rank(PARENT.format(check="", then="raise KeyError('own')"))
    assert done.failure["message"] == "'own'"


def test_a_forked_child_notes_for_itself(rank):
    done = rank(
        """
        import os, sys
        child = os.fork()
        if child == 0:
            raise ValueError("in the child")
        os.waitpid(child, 0)
        raise KeyError("in the parent")
        """
    )
    assert done.failure["message"] == "'in the parent'"


def test_a_crash_leaves_its_stack_in_the_log(rank, tmp_path):
    done = rank("import ctypes\n\ndef step():\n    ctypes.string_at(0)\n\nstep()\n")
    assert done.returncode == -signal.SIGSEGV
    assert failures.parse_crash(done.out, str(tmp_path)) == {
        "file": "train.py",
        "line": 4,
        "function": "step",
    }


def test_a_child_that_ends_well_is_not_the_end_of_the_rank(rank):
    quiet = "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'pass'])\n"
    done = rank(quiet + "raise ValueError('bad batch')\n")
    assert (done.failure["message"], done.told.left_at) == ("bad batch", None)
    assert rank(quiet + "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n").told == ExitEvidence()


def test_a_child_that_outlives_the_exception_does_not_hide_it(rank):
    done = rank(
        """
        import multiprocessing as mp, time

        if __name__ == "__main__":
            mp.get_context("spawn").Process(target=time.sleep, args=(0.3,)).start()
            raise ValueError("bad batch")
        """
    )
    assert done.failure["message"] == "bad batch"


@pytest.mark.parametrize(
    ("after", "code"), [("ctypes.string_at(0)", -signal.SIGSEGV), ("os._exit(5)", 5), ("sys.exit(7)", 7)]
)
def test_an_exception_that_was_expected_explains_no_other_end(rank, after, code):
    done = rank(
        f"import ctypes, os, subprocess, sys\nsubprocess.run([sys.executable, '-c', 'import apex'])\n{after}\n"
    )
    assert (done.returncode, done.failure) == (code, None)


@pytest.mark.parametrize(
    ("command", "code", "kind"),
    [
        ("python train.py; true; python train.py", 1, "ValueError"),
        ("python train.py || exit 7", 7, None),
        ("python train.py || python -c pass; exit 1", 1, None),
        ("python -c pass && python train.py", 1, "ValueError"),
        ("python train.py || python -c 'import apex'", 1, "ModuleNotFoundError"),
    ],
)
def test_of_a_shell_the_last_command_counts(rank, command, code, kind):
    done = rank(RAISE, command=["bash", "-c", command.replace("python", shlex.quote(sys.executable))])
    assert (done.returncode, (done.failure or {}).get("type")) == (code, kind)


def test_a_launcher_that_ends_in_order_with_the_code_of_what_it_started(rank):
    done = rank(PARENT.format(check="", then="sys.exit(done.returncode)"))
    assert done.failure["message"] == "of the child"


def test_what_a_loaders_process_raised_is_told(rank):
    message = (
        "Caught ValueError in DataLoader worker process 0.\n"
        "Original Traceback (most recent call last):\n  File 'x', line 1\nValueError: bad image 5\n"
    )
    assert rank(f"raise ValueError({message!r})").failure["message"] == "bad image 5"
    message = "Error(s) in loading state_dict for Net:\n\tMissing key(s): 'a'"
    assert (
        rank(f"raise RuntimeError({message!r})").failure["message"].endswith("for Net: Missing key(s): 'a'")
    )


def test_letters_of_any_plane_arrive(rank):
    assert (
        rank("raise ValueError('caf\u00e9 \U0001f600 \u4e2d')").failure["message"]
        == "caf\u00e9 \U0001f600 \u4e2d"
    )


@pytest.mark.parametrize("plant", ["os.mkfifo(p)", "os.symlink('/etc/passwd', p)", "os.mkdir(p)"])
def test_what_a_job_puts_in_the_place_of_its_notes_is_not_read(rank, plant):
    done = rank(f"import os\np = os.environ['DRUMLINE_FAILURES']\n{plant}\nos._exit(3)\n")
    assert (done.returncode, done.told) == (3, ExitEvidence())


@pytest.mark.parametrize("at", ["1" + "0" * 400, "1e999", "99999999", "NaN", "-1", "0"])
def test_a_time_that_cannot_be_is_not_believed(tmp_path, at):
    notes = tmp_path / "notes.jsonl"
    notes.write_text(f'{{"at": {at}, "pid": 7, "parent": 1, "type": "E", "message": "m"}}\n')
    assert failures.read_failure(str(notes), 7, 1, "", 1.0, 1000.0) == ExitEvidence()


def test_notes_that_are_none_are_passed_over(tmp_path):
    notes = tmp_path / "notes.jsonl"
    good = {"at": 1.0, "pid": 7, "parent": 1, "type": "E", "message": "m\x1b[31m", "file": "f", "line": 3}
    notes.write_bytes(b"\xff\n[1]\n{}\n" + b"[" * 9999 + b"\n" + json.dumps(good).encode() + b'\n{"at": "x"')
    failure = failures.read_failure(str(notes), 7, 1, "", 0.0, 9.0).failure
    assert failure is not None
    assert failure["message"] == "m [31m"
    assert failures.read_failure(str(tmp_path / "none"), 7, 1, "", 0.0, 9.0) == ExitEvidence()
    assert failures.read_failure(str(notes), 99, 7, "", 0.0, 9.0) == ExitEvidence(), (
        "a grandchild's, of which the rank may know nothing"
    )


def test_words_that_an_error_repeats_do_not_hide_why(rank):
    """XLA says them once for each computation that was on its way; the end is what tells that a peer was gone."""
    done = rank(
        "raise RuntimeError('INTERNAL: ' + 'Error dispatching computation: ' * 30 + 'Connection reset by peer')"
    )
    assert done.failure["message"] == "INTERNAL: Error dispatching computation: Connection reset by peer"
