"""What a process fails of while it still cleans up: real interpreters, with the hook on their path."""

import os
import shlex
import signal
import subprocess
import sys
import textwrap

import pytest
from waiting import wait_until

from drumline.node import hook_folder
from drumline.node.diagnostics import failures, stacks

CLEANING = """
    import time

    def clean():
        print("there", flush=True)
        time.sleep(100)

    def step():
        raise ValueError("bad batch")

"""


@pytest.fixture
def ask(tmp_path):
    """Start a program as a rank's agent would, wait until it is there, and ask it; what it answers."""
    started = []
    notes = str(tmp_path / "notes")

    def run(text, command=None):
        (tmp_path / "train.py").write_text(textwrap.dedent(text))
        variables = dict(os.environ)
        hook_folder.add_hook(variables, notes)
        process = subprocess.Popen(
            command or [sys.executable, "train.py"],
            cwd=tmp_path,
            env=variables,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        started.append(process)
        assert process.stdout.readline() == b"there\n"
        answers = []

        def answered():
            asked = stacks.send_request(process.pid, notes)
            answers.append(stacks.read_answers(asked, notes, str(tmp_path)))
            return answers[-1] is not None

        wait_until(answered, 20.0, "its answer")
        assert process.poll() is None
        return answers[-1]

    yield run
    for process in started:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()


@pytest.mark.parametrize(
    "end",
    [
        "try:\n    step()\nfinally:\n    clean()\n",
        "try:\n    step()\nexcept ValueError:\n    clean()\n    raise\n",
        "import contextlib\nwith contextlib.ExitStack() as stack:\n    stack.callback(clean)\n    step()\n",
        "@__import__('contextlib').contextmanager\ndef group():\n    try:\n        yield\n    finally:\n"
        "        clean()\nwith group():\n    step()\n",
    ],
)
def test_an_exception_that_is_on_its_way_out(ask, end):
    (told,) = ask(textwrap.dedent(CLEANING) + end)
    assert told == {
        "type": "ValueError",
        "message": "bad batch",
        "file": "train.py",
        "line": 9,
        "function": "step",
    }


def test_what_it_came_of_comes_after_it(ask):
    text = "try:\n    try:\n        step()\n    finally:\n        {}['x']\nfinally:\n    clean()\n"
    told = ask(textwrap.dedent(CLEANING) + text)
    assert [one["type"] for one in told] == ["KeyError", "ValueError"]


def test_the_code_with_which_a_program_is_about_to_end(ask):
    (told,) = ask(textwrap.dedent(CLEANING) + "try:\n    raise SystemExit(3)\nfinally:\n    clean()\n")
    assert (told["type"], told["message"]) == ("SystemExit", "3")


def test_a_program_that_fails_of_nothing_says_so(ask):
    assert ask(textwrap.dedent(CLEANING) + "try:\n    step()\nexcept ValueError:\n    pass\nclean()\n") == []


def test_a_python_below_a_shell_is_asked(ask):
    text = textwrap.dedent(CLEANING) + "try:\n    step()\nfinally:\n    clean()\n"
    assert (
        ask(text, ["bash", "-c", f"{shlex.quote(sys.executable)} train.py; true"])[0]["type"] == "ValueError"
    )


def test_one_without_the_hook_is_left_alone(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert stacks.send_request(process.pid, str(tmp_path / "notes")) == []
    process.communicate(b"\n")
    assert process.returncode == 0


def test_another_program_that_has_a_use_for_the_signal_is_left_alone(tmp_path):
    handler = f"signal.signal({stacks.IN_FLIGHT_SIGNAL}, lambda *_: sys.exit(7))"
    text = f"import signal, sys\n{handler}\nprint('there', flush=True)\n"
    process = subprocess.Popen(
        [sys.executable, "-c", text + "input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout.readline() == b"there\n"
    assert stacks.send_request(process.pid, str(tmp_path / "notes")) == []
    process.communicate(b"\n")
    assert process.returncode == 0


def test_an_interpreter_that_is_ending_ignores_the_question(tmp_path):
    """Its handlers are gone before its objects are, and the default is to be killed."""
    text = """
        import _signal, os

        class Last:
            def __del__(self, ask=_signal.SIGRTMAX - 5, kill=os.kill, pid=os.getpid(), write=os.write):
                kill(pid, ask)
                write(1, b"alive")

        last = Last()
    """
    (tmp_path / "train.py").write_text(textwrap.dedent(text))
    variables = dict(os.environ)
    hook_folder.add_hook(variables, str(tmp_path / "notes"))
    done = subprocess.run(
        [sys.executable, "train.py"], cwd=tmp_path, env=variables, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, b"alive")


@pytest.mark.parametrize("content", [b"", b"{}", b"[1, {}]", b"[" * 100000, b'[{"type": 1}]', b"null"])
def test_what_is_no_answer_is_none(tmp_path, content):
    path = failures.IN_FLIGHT % (tmp_path / "notes", 7)
    with open(path, "wb") as file:
        file.write(content)
    assert not stacks.read_answers([7], str(tmp_path / "notes"), "")
