"""Where processes are: real ones, with and without the hook."""

import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
from waiting import wait_until

from drumline.node import failures, stacks

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
            failures.add_hook(variables, str(tmp_path / "notes"))
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
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()


def where(process, tmp_path, path=""):
    return stacks.of({0: process.pid}, str(tmp_path), path)[0]


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
    process = rank(WAIT.format(wait="time.sleep(100)"), ["bash", "-c", f"{sys.executable} train.py; true"])
    assert wait_for(process, tmp_path)["pid"] != process.pid


def test_of_a_launcher_what_it_started_is_shown(rank, tmp_path):
    (tmp_path / "launch.py").write_text(
        "import subprocess, sys\nsubprocess.run([sys.executable, 'train.py'])\n"
    )
    process = rank(WAIT.format(wait="time.sleep(100)"), [sys.executable, "launch.py"])
    assert wait_for(process, tmp_path)["pid"] != process.pid


def test_sixteen_are_asked_at_once(rank, tmp_path):
    processes = {number: rank(WAIT.format(wait="time.sleep(100)")).pid for number in range(16)}
    began = time.monotonic()
    found = stacks.of(processes, str(tmp_path), "")
    assert time.monotonic() - began < 2.0
    assert all(found[number][0]["frames"] for number in range(16))


def test_a_thread_is_shown_when_the_main_one_only_waits_for_it(rank, tmp_path):
    process = rank(
        "import threading, time\n\ndef train():\n    print('there', flush=True)\n    time.sleep(100)\n\n"
        "thread = threading.Thread(target=train)\nthread.start()\nthread.join()\n"
    )
    wait_for(process, tmp_path, ["train.py", 5, "train"])


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
    (found,) = stacks.of({0: gone.pid}, str(tmp_path), "")[0]
    assert found["frames"] == []


def test_cpu_time_counts_what_it_started(rank):
    process = rank(WAIT.format(wait="while True: pass"), ["bash", "-c", f"{sys.executable} train.py; true"])
    wait_until(lambda: stacks.cpu_s(process.pid) > 0.2, 30.0, "some CPU time")
