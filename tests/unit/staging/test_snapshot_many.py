"""Several at once, one that is killed, and more files than anybody has."""

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest

from drumline.contract.errors import PlanError
from drumline.staging.snapshot.partial_folder import copy_snapshot, snapshot_path
from drumline.staging.snapshot.take import take_snapshot

TAKE = (
    "import sys; from drumline.staging.snapshot.take import take_snapshot\n"
    "print(take_snapshot(*sys.argv[1:]).digest)"
)
IS_SLOW = bool(os.environ.get("DRUMLINE_SLOW"))


@pytest.fixture
def code(tmp_path):
    folder = tmp_path / "code"
    for number in range(300):
        path = folder / f"{number % 10}" / f"{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(number))
    return folder


def start(code, home):
    argv = [sys.executable, "-c", TAKE, str(code), str(home)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)


def test_eight_at_once_make_one_snapshot(code, tmp_path):
    home = tmp_path / "home"
    running = [start(code, home) for _ in range(8)]
    digests = {process.communicate(timeout=60)[0].strip() for process in running}
    assert [process.returncode for process in running] == [0] * 8
    assert len(digests) == 1
    assert os.listdir(home / "snapshots") == list(digests)
    assert sum(len(names) for _, _, names in os.walk(home / "snapshots")) == 300


def test_one_that_was_killed_leaves_no_snapshot_and_the_next_clears_up(code, tmp_path):
    """It waits in the middle, at the first number of two digits, until it is killed."""
    home = tmp_path / "home"
    script = (
        "import os, sys\n"
        "from drumline.staging import file_copy\n"
        "from drumline.staging.snapshot.take import take_snapshot\n"
        "copy = file_copy.copy_and_digest\n"
        "def slowly(source, target):\n"
        "    if os.fstat(source).st_size == 2:\n"
        "        print('copying', flush=True); sys.stdin.read()\n"
        "    return copy(source, target)\n"
        "file_copy.copy_and_digest = slowly\n"
        "take_snapshot(*sys.argv[1:])\n"
    )
    pipe = subprocess.PIPE
    argv = [sys.executable, "-c", script, str(code), str(home)]
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout.readline() == "copying\n"
        (partial,) = os.listdir(home / "snapshots")
        living = take_snapshot(str(code / "1"), str(home)).digest
        assert sorted(os.listdir(home / "snapshots")) == sorted([partial, living])
        process.send_signal(signal.SIGKILL)
    taken = take_snapshot(str(code), str(home))
    assert sorted(os.listdir(home / "snapshots")) == sorted([living, taken.digest])


def test_a_tree_that_others_change_all_the_time_is_taken_as_it_was_at_one_moment(tmp_path):
    """
    Files in order get the next number: at any moment the first ones have it, and the others the one before.

    Whatever else there is in a snapshot was never there at once.
    """
    code, home, beside = tmp_path / "code", tmp_path / "home", tmp_path / "beside"
    code.mkdir()
    is_over = threading.Event()

    def write(number):
        for name in range(20):
            beside.write_text(str(number))
            beside.replace(code / f"{name:02}")

    def keep_writing():
        number = 1
        while not is_over.wait(random.choice((0.0, 0.02, 0.1))):
            write(number)
            number += 1

    write(0)
    writer = threading.Thread(target=keep_writing)
    writer.start()
    digests = set()
    try:
        ends = time.monotonic() + (20 if IS_SLOW else 1.5)
        while time.monotonic() < ends or not digests:
            with contextlib.suppress(PlanError):
                digests.add(take_snapshot(str(code), str(home)).digest)
    finally:
        is_over.set()
        writer.join()
    for digest in digests:
        folder = snapshot_path(str(home), digest)
        numbers = [int(open_text(os.path.join(folder, name))) for name in sorted(os.listdir(folder))]
        assert len(numbers) == 20
        assert numbers == sorted(numbers, reverse=True)
        assert numbers[0] - numbers[-1] <= 1
    assert sorted(os.listdir(home / "snapshots")) == sorted(digests)


def open_text(path):
    with open(path) as file:
        return file.read()


def many(folder, count):
    for number in range(count):
        if number % 100 == 0:
            parent = os.path.join(folder, f"d{number // 10_000}", f"e{number // 100}")
            os.makedirs(parent)
        with open(os.path.join(parent, f"{number}.py"), "w") as file:
            file.write(str(number))


@pytest.mark.parametrize(
    "count",
    [
        5000,
        pytest.param(
            200_000, marks=pytest.mark.skipif(not IS_SLOW, reason="two minutes; DRUMLINE_SLOW=1 runs it")
        ),
    ],
)
def test_many_files_are_taken_in_little_memory_and_not_read_again(tmp_path, settled, opened, count):
    code, home = str(tmp_path / "code"), str(tmp_path / "home")
    many(code, count)
    if count > 100_000:
        with open(os.path.join(code, "sparse"), "wb") as file:
            file.truncate(1 << 30)
        count += 1
    began = time.monotonic()
    first = take_snapshot(code, home)
    print(f"first: {time.monotonic() - began:.2f} s")
    opened.clear()
    began = time.monotonic()
    assert take_snapshot(code, home) == first
    print(f"again: {time.monotonic() - began:.2f} s")
    assert first.file_count == count
    assert not [path for path in opened if str(path).endswith((".py", "sparse"))]
    copy_snapshot(home, first.digest, str(tmp_path / "copy"))
    assert sum(len(names) for _, _, names in os.walk(tmp_path / "copy")) == count
    if IS_SLOW:
        assert peak_kib(code, str(tmp_path / "other")) < 300 * 1024
    for path in tmp_path.iterdir():
        shutil.rmtree(path)  # Not left for later: it is a lot.


def peak_kib(code, home):
    """Of a process of its own that takes the code anew."""
    script = TAKE + "; import resource; print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    argv = [sys.executable, "-c", script, code, home]
    return int(subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()[-1])
