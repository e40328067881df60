"""Where processes are: real ones, with and without the hook."""

import contextlib
import mmap
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time

import pytest
from waiting import wait_until

from drumline.node import hook_folder
from drumline.node.diagnostics import stacks, waits

WAIT = "import time\n\ndef load_batch():\n    {wait}\n\nprint('there', flush=True)\nload_batch()\n"
THERE = ["train.py", 4, "load_batch"]


@pytest.fixture
def rank(tmp_path):
    """Start a program as a rank's agent would, and wait until it says that it is there; its process."""
    started = []

    def start(text, command=None, hook=True):
        (tmp_path / "train.py").write_text(text)
        if not (tmp_path / "fifo").exists():
            os.mkfifo(tmp_path / "fifo")
        variables = dict(os.environ)
        if hook:
            hook_folder.add_hook(variables, str(tmp_path / "notes"))
        process = subprocess.Popen(
            command or [sys.executable, "train.py"],
            cwd=tmp_path,
            env=variables,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        started.append(process)
        assert process.stdout.readline() == b"there\n"
        return process

    yield start
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()


def where(process, tmp_path, path=""):
    return stacks.read_stacks({0: process.pid}, str(tmp_path), path, {0: str(tmp_path / "notes")})[0]


def wait_for(process, tmp_path, place=THERE):
    """Until that is the innermost of its own frames; what was found of it."""

    seen = []

    def there():
        seen.extend(where(process, tmp_path))
        own = [frame for frame in seen[-1]["frames"] if frame[0] == "train.py"]
        return own[:1] == [place]

    wait_until(there, 20.0, f"it to be at {place}")
    return seen[-1]


@pytest.mark.parametrize("wait", ["time.sleep(100)", "while True: pass", "open('fifo').read()"])
def test_a_python_says_where_it_is_whatever_it_does_and_goes_on(rank, tmp_path, wait):
    process = rank(WAIT.format(wait=wait))
    for _ in range(3):
        found = wait_for(process, tmp_path)
        assert found["frames"][-1] == ["train.py", 7, "<module>"]
        assert found["threads"] == 1
    assert process.poll() is None


def test_a_program_that_waits_for_a_signal_is_sent_none(rank, tmp_path):
    process = rank(WAIT.format(wait="__import__('signal').pause()"))
    wait_until(
        lambda: (tmp_path / "notes").exists() or not where(process, tmp_path)[0]["frames"], 20.0, "its pause"
    )
    for _ in range(3):
        assert where(process, tmp_path)[0]["frames"] == []
    assert process.poll() is None


def test_a_thread_of_its_that_waits_for_a_lock_answers_for_it(rank, tmp_path):
    text = "import threading\nlock = threading.Lock()\nlock.acquire()\n"
    text += "threading.Thread(target=lock.acquire, daemon=True).start()\n"
    process = rank(text + WAIT.format(wait="__import__('signal').pause()"))
    found = wait_for(process, tmp_path, ["train.py", 8, "load_batch"])
    assert found["threads"] == 2
    assert process.poll() is None


def test_a_python_below_a_shell_is_found(rank, tmp_path):
    process = rank(
        WAIT.format(wait="time.sleep(100)"), ["bash", "-c", f"{shlex.quote(sys.executable)} train.py; true"]
    )
    assert wait_for(process, tmp_path)["pid"] != process.pid


def test_of_a_launcher_what_it_started_is_shown(rank, tmp_path):
    (tmp_path / "launch.py").write_text(
        "import subprocess, sys\nsubprocess.run([sys.executable, 'train.py'])\n"
    )
    process = rank(WAIT.format(wait="time.sleep(100)"), [sys.executable, "launch.py"])
    assert wait_for(process, tmp_path)["pid"] != process.pid


def test_sixteen_are_asked_at_once(rank, tmp_path):
    processes = {number: rank(WAIT.format(wait="time.sleep(100)")).pid for number in range(16)}

    def all_answer():
        found = stacks.read_stacks(processes, str(tmp_path), "", {})
        return all(found[number][0]["frames"] for number in range(16))

    wait_until(all_answer, 20.0, "all to have run for a moment")
    began = time.monotonic()
    assert all_answer()
    assert time.monotonic() - began < 2.0


def test_a_thread_is_shown_when_the_main_one_only_waits_for_it(rank, tmp_path):
    process = rank(
        "import threading, time\n\ndef train():\n    print('there', flush=True)\n    time.sleep(100)\n\n"
        "thread = threading.Thread(target=train)\nthread.start()\nthread.join()\n"
    )
    assert wait_for(process, tmp_path, ["train.py", 5, "train"])["is_done"] is False


def test_a_thread_that_keeps_a_process_whose_program_has_ended_is_shown(rank, tmp_path):
    process = rank(
        "import threading, time\n\ndef poll():\n    print('there', flush=True)\n    while True: time.sleep(0.5)\n\n"
        "threading.Thread(target=poll).start()\n"
        "threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    wait_for(process, tmp_path, ["train.py", 5, "poll"])
    wait_until(lambda: where(process, tmp_path)[0]["is_done"], 20.0, "the end of the program")


def test_forks_answer_each_for_itself(rank, tmp_path):
    process = rank(
        "import os, subprocess, time\n\ndef alpha():\n    time.sleep(100)\n\ndef beta():\n    time.sleep(100)\n\n"
        "for target in (alpha, beta):\n    if os.fork() == 0:\n        target()\n"
        "print('there', flush=True)\nsubprocess.run(['sleep', '100'])\n"
    )

    def places():
        found = where(process, tmp_path)
        return sorted(one["frames"][0][2] for one in found if one["frames"])

    wait_until(lambda: places() == ["alpha", "beta"], 20.0, "both places")


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_joined_process_is_shown_without_the_helpers_of_python(rank, tmp_path, monkeypatch, method):
    monkeypatch.setattr(stacks, "_MAX_BELOW", 2)
    process = rank(
        "import multiprocessing, time\n\ndef alpha(n):\n    time.sleep(100)\n\n"
        "if __name__ == '__main__':\n"
        f"    context = multiprocessing.get_context('{method}')\n"
        "    context.Lock()\n"
        "    workers = [context.Process(target=alpha, args=(n,)) for n in range(2)]\n"
        "    for worker in workers:\n        worker.start()\n"
        "    print('there', flush=True)\n    workers[0].join()\n"
    )

    def are_shown():
        found = where(process, tmp_path)
        return [one["frames"][:1] for one in found] == [[["train.py", 4, "alpha"]]] * 2

    wait_until(are_shown, 20.0, "both processes, and no other")


def test_a_thread_of_a_library_does_not_hide_what_the_program_waits_for(rank, tmp_path):
    (tmp_path / "site-packages").mkdir()
    (tmp_path / "site-packages" / "mon.py").write_text("import time\ndef poll_gpu():\n    time.sleep(100)\n")
    text = "import queue, sys, threading\nsys.path.append('site-packages')\nimport mon\n"
    text += "threading.Thread(target=mon.poll_gpu, daemon=True).start()\n"
    process = rank(text + WAIT.format(wait="queue.Queue().get()"))
    wait_for(process, tmp_path, ["train.py", 8, "load_batch"])


def test_few_descriptors_are_enough(rank, tmp_path):
    text = WAIT.format(wait="time.sleep(100)")
    (tmp_path / "train.py").write_text(text)
    process = rank(text, ["bash", "-c", f"ulimit -n 64; exec {shlex.quote(sys.executable)} train.py"])
    wait_for(process, tmp_path)


def test_of_more_threads_than_are_written_the_main_one_is_not_known(rank, tmp_path):
    text = "import threading\nlock = threading.Lock()\nlock.acquire()\n"
    text += "for _ in range(150):\n    threading.Thread(target=lock.acquire, daemon=True).start()\n"
    process = rank(text + WAIT.format(wait="time.sleep(100)"))
    wait_until(lambda: where(process, tmp_path)[0]["threads"] == 100, 20.0, "an answer")
    assert where(process, tmp_path)[0]["frames"] == []


def test_a_program_that_becomes_another_again_and_again_survives(rank, tmp_path):
    text = (
        "import os, sys, time\ncount = int(sys.argv[1]) if sys.argv[1:] else 0\n"
        "if count == 0:\n    print('there', flush=True)\n"
        "time.sleep(0.01)\n"
        "if count < 20:\n    os.execv(sys.executable, [sys.executable, 'train.py', str(count + 1)])\n"
        "time.sleep(100)\n"
    )
    process = rank(text)

    def there():
        found = where(process, tmp_path)[0]
        assert process.poll() is None
        return found["frames"][:1] == [["train.py", 8, "<module>"]]

    wait_until(there, 60.0, "the last of them")


def test_what_is_read_and_written_is_counted(rank):
    process = rank(WAIT.format(wait="open('/dev/null', 'wb').write(bytes(1 << 22)); time.sleep(100)"))
    wait_until(lambda: stacks.measure_used(process.pid).io_bytes > 1 << 22, 20.0, "the write")


def test_a_python_without_the_hook_is_sent_nothing(rank, tmp_path):
    process = rank(WAIT.format(wait="time.sleep(100)"), hook=False)
    wait_until(lambda: where(process, tmp_path)[0]["state"] == "S", 10.0, "it to sleep")
    assert where(process, tmp_path)[0]["frames"] == []
    assert process.poll() is None


def test_py_spy_is_asked_for_a_python_without_the_hook(rank, tmp_path):
    folder = os.path.dirname(sys.executable)
    assert shutil.which("py-spy", path=folder), "scripts/test installs it"
    process = rank(WAIT.format(wait="__import__('signal').pause()"), hook=False)

    def there():
        return where(process, tmp_path, folder)[0]["frames"][:1] == [THERE]

    wait_until(there, 30.0, "its place")
    assert process.poll() is None


def test_a_program_that_takes_the_signal_for_itself_is_left_alone(rank, tmp_path):
    """Its handler is called; a stack is not known then."""
    text = f"import signal\nsignal.signal({stacks.SIGNAL}, lambda *_: None)\n" + WAIT.format(
        wait="time.sleep(100)"
    )
    process = rank(text)
    (found,) = where(process, tmp_path)
    assert found["frames"] == []
    assert process.poll() is None


def test_a_stopped_process_is_shown_as_stopped_and_in_time(rank, tmp_path):
    process = rank(WAIT.format(wait="time.sleep(100)"))
    os.kill(process.pid, signal.SIGSTOP)
    wait_until(lambda: where(process, tmp_path)[0]["state"] == "T", 10.0, "it to be stopped")
    os.kill(process.pid, signal.SIGCONT)
    wait_until(lambda: where(process, tmp_path)[0]["frames"] != [], 10.0, "it to go on")


def test_a_process_that_is_gone_is_no_error(tmp_path):
    gone = subprocess.Popen(["true"])
    gone.wait()
    (found,) = stacks.read_stacks({0: gone.pid}, str(tmp_path), "", {0: str(tmp_path / "notes")})[0]
    assert found["frames"] == []


def test_cpu_time_counts_what_it_started(rank):
    process = rank(
        WAIT.format(wait="while True: pass"), ["bash", "-c", f"{shlex.quote(sys.executable)} train.py; true"]
    )
    wait_until(lambda: stacks.measure_used(process.pid).cpu_s > 0.2, 30.0, "some CPU time")


RECORDER = """
import json, sys, time, types

def entry(number, name, group="default_pg", retired=True, is_p2p=False):
    return {
        "record_id": number, "collective_seq_id": number, "profiling_name": name,
        "process_group": ["0", group], "retired": retired, "is_p2p": is_p2p,
    }

def dump():
    return ENTRIES

sys.modules["torch._C"] = torch = types.ModuleType("torch._C")
torch._distributed_c10d = types.SimpleNamespace(_dump_fr_trace_json=dump)
print("there", flush=True)
time.sleep(100)
"""


@pytest.mark.parametrize(
    ("entries", "collective"),
    [
        (
            "[entry(1, 'gloo:broadcast'), entry(2, 'gloo:all_reduce')]",
            {"name": "all_reduce", "seq": 2, "group": "", "is_waiting": False},
        ),
        (
            "[entry(3, 'nccl:all_gather', 'tensor', False), entry(2, 'x:all_reduce', 'tensor', False)]",
            {"name": "all_reduce", "seq": 2, "group": "tensor", "is_waiting": True},
        ),
        ("[entry(1, 'gloo:send', is_p2p=True)]", None),
        ("[]", None),
        ("[{}]", None),
        ("[{'is_p2p': False, 'record_id': float('inf')}]", None),
        ("7", None),
        (
            "[entry(1, 'gloo:all\\n\\x1b[31m_reduce', 'a\\ud800b')]",
            {"name": "all  [31m_reduce", "seq": 1, "group": "a b", "is_waiting": False},
        ),
    ],
)
def test_the_collective_is_that_of_pytorchs_flight_recorder(rank, tmp_path, monkeypatch, entries, collective):
    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", "100")
    text = RECORDER.replace("ENTRIES", f'json.dumps({{"entries": {entries}}}).encode()')
    process = rank(text)
    for _ in range(2):
        assert where(process, tmp_path)[0]["collective"] == collective
    assert not list(tmp_path.glob("*.record"))


@pytest.mark.parametrize("text", ["import sys, time\nprint('there', flush=True)\ntime.sleep(100)"])
@pytest.mark.parametrize("size", ["", "0", "100"])
def test_without_pytorch_or_its_recorder_no_collective_is_known(rank, tmp_path, monkeypatch, text, size):
    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", size)
    assert where(rank(text), tmp_path)[0]["collective"] is None


def test_an_answer_that_came_too_late_for_the_last_question_is_none_to_this(rank, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", "100")
    process = rank(RECORDER.replace("ENTRIES", """(time.sleep(0.1), b'{"entries": []}')[1]"""))
    (tmp_path / f"notes.{process.pid}.record").write_bytes(b"of the last question")
    assert where(process, tmp_path)[0]["collective"] is None


def test_the_recorders_thread_takes_no_signal_from_the_program(rank, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", "100")
    process = rank(
        "import signal, time\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])\n"
        "print('there', flush=True)\n"
        "while signal.sigtimedwait([signal.SIGTERM], 0) is None: time.sleep(0.01)\n"
        "print('told', flush=True)\n"
    )
    process.terminate()
    assert process.stdout.readline() == b"told\n"
    assert process.wait() == 0
    assert not list(tmp_path.glob("*.ask"))


def test_a_program_that_becomes_another_has_a_recorder_of_its_own(rank, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", "100")
    recorder = tmp_path / "recorder.py"
    recorder.write_text(
        RECORDER.replace("ENTRIES", 'json.dumps({"entries": [entry(1, "x:barrier")]}).encode()')
    )
    process = rank("import os, sys\nos.execv(sys.executable, [sys.executable, 'recorder.py'])")
    assert where(process, tmp_path)[0]["collective"]["name"] == "barrier"


@pytest.mark.parametrize(("rounds", "went_on"), [(10**9, False), (10**3, True)])
def test_a_native_call_that_has_not_returned_is_told_from_one_that_is_made_again(
    rank, tmp_path, rounds, went_on
):
    call = f"hashlib.pbkdf2_hmac('sha256', b'word', b'salt', {rounds})"
    process = rank(f"import hashlib\nprint('there', flush=True)\nwhile True:\n    {call}\n")
    there = ["train.py", 4, "<module>"]
    wait_for(process, tmp_path, there)
    wait_until(
        lambda: wait_for(process, tmp_path, there)["went_on"] is went_on,
        20.0,
        "the second stack and the mark",
    )


def test_a_native_call_that_waits_for_data_goes_on_waiting(rank, tmp_path):
    """Few libraries expect that a read fails with "Interrupted system call" because somebody looked."""
    text = (
        "import ctypes, os\nlibc = ctypes.CDLL(None)\nreader, _ = os.pipe()\n"
        "print('there', flush=True)\nlibc.read(reader, ctypes.create_string_buffer(1), 1)\n"
    )
    process = rank(text)
    for _ in range(3):
        wait_for(process, tmp_path, ["train.py", 5, "<module>"])
    wait_until(lambda: where(process, tmp_path)[0]["went_on"] is False, 20.0, "a look that finds it there")
    assert process.poll() is None


def test_a_rank_whose_interpreter_has_ended_is_not_sent_the_signal(rank, tmp_path):
    """What C libraries do at the end of a process comes after the handlers of Python are gone."""
    text = (
        "import ctypes\nlibc = ctypes.CDLL(None)\n"
        "libc.__cxa_atexit(ctypes.cast(libc.pause, ctypes.c_void_p), None, None)\nprint('there', flush=True)\n"
    )
    process = rank(text)
    caught = lambda: stacks._handles_signal(process.pid)  # noqa: E731
    wait_until(lambda: not caught(), 20.0, "the end of the interpreter")
    os.kill(process.pid, stacks.SIGNAL)
    assert where(process, tmp_path)[0]["frames"] == []
    assert process.poll() is None


def test_cpu_time_of_other_threads_than_those_that_may_spin_is_told_apart(rank, tmp_path):
    compute = "def compute():\n    while True:\n        pass\n"
    start = "import threading\nthread = threading.Thread(target=compute, daemon=True)\nthread.start()\n"
    process = rank(compute + start + "print('there', flush=True)\nthreading.Event().wait()\n")
    wait_until(lambda: stacks.measure_used(process.pid).cpu_s > 1.0, 20.0, "some CPU time")
    (found,) = where(process, tmp_path)
    assert found["spin"]["cpu_s"] < 0.5
    assert (found["spin"]["library"], found["spin"]["call"]) == ("", "")


OUTLIVES = """
import atexit, signal
def end():
    print("there", flush=True)
    signal.pause()
atexit.register(end)
raise ValueError("bad batch")
"""


def test_a_process_that_outlives_its_exception_has_it(rank, tmp_path):
    process = rank(OUTLIVES)
    (found,) = where(process, tmp_path)
    raised = {
        "type": "ValueError",
        "message": "bad batch",
        "file": "train.py",
        "line": 7,
        "function": "<module>",
    }
    assert found["raised"] == raised


def test_an_exception_that_a_program_tells_of_and_goes_on_did_not_end_it(rank, tmp_path):
    tell = "import sys\ntry:\n    {}['x']\nexcept KeyError:\n    sys.excepthook(*sys.exc_info())\n"
    process = rank(tell + "print('there', flush=True)\nwhile True:\n    pass\n")
    assert wait_for(process, tmp_path, ["train.py", 7, "<module>"])["raised"] is None


@pytest.mark.parametrize("end", ["raise ValueError('bad batch')", ""])
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_of_a_process_that_a_child_keeps_its_own_stack_comes_first(rank, tmp_path, method, end):
    process = rank(
        "import multiprocessing, time\n\ndef load():\n    print('there', flush=True)\n    time.sleep(100)\n\n"
        "if __name__ == '__main__':\n"
        f"    multiprocessing.get_context('{method}').Process(target=load).start()\n    {end}\n"
    )
    wait_for(process, tmp_path, ["train.py", 5, "load"])
    wait_until(lambda: len(where(process, tmp_path)) == 2, 20.0, "the end of the program")
    own, child = where(process, tmp_path)
    assert (own["pid"], own["frames"][-1][2], own["is_done"]) == (process.pid, "_exit_function", True)
    assert (own["raised"] is not None, child["raised"]) == (bool(end), None)


def test_the_exception_of_an_earlier_process_is_not_that_of_the_one_that_waits(rank, tmp_path):
    (tmp_path / "bad.py").write_text("raise ValueError('bad batch')")
    process = rank(
        WAIT.format(wait="open('fifo').read()"),
        ["sh", "-c", '"$0" bad.py; exec "$0" train.py', sys.executable],
    )
    assert b"bad batch" in (tmp_path / "notes").read_bytes()
    assert wait_for(process, tmp_path)["raised"] is None


@pytest.mark.parametrize(
    ("name", "is_mpi"),
    [
        ("libmpi.so.40.30.4", True),
        ("libmpich.so.12.4.1", True),
        ("libmpi_cxx.so.40", True),
        ("libmpifort.so.12", True),
        ("libmpir.so.23", False),
        ("libc.so.6", False),
    ],
)
def test_a_library_of_an_mpi_is_known_by_its_name(tmp_path, name, is_mpi):
    (tmp_path / name).write_bytes(bytes(4096))
    with open(tmp_path / name, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ):
        assert (name in waits.list_mpi_libraries(os.getpid())) is is_mpi
