"""What the ranks of a dead agent had started, and the process that has adopted it ends."""

import os
import signal
import subprocess
import sys

import pytest
from waiting import wait_until

from drumline.linux import kernel
from drumline.node import leftovers

LARGE_RANK = """
import subprocess, time
held = b"x" * (1 << 29)
print(subprocess.Popen(["sleep", "600"]).pid, flush=True)
time.sleep(600)
"""


@pytest.fixture
def adopting():
    kernel.adopt_orphans()
    yield
    kernel.adopt_orphans(wanted=False)


def test_the_children_of_a_rank_that_still_gives_its_memory_back_are_ended(adopting, tmp_path):
    """The kernel shows its variables no more by then, and it has its children still."""
    command = [sys.executable, "-c", LARGE_RANK]
    with subprocess.Popen(
        command, env={**os.environ, "TMPDIR": f"{tmp_path}/0"}, stdout=subprocess.PIPE, text=True
    ) as rank:
        child = int(rank.stdout.readline())
        rank.kill()
        while read_variables(rank.pid):
            pass
        leftovers.end_orphans(str(tmp_path))
    try:
        assert wait_until(lambda: not read_variables(child), 0.5, "the child gone")
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def read_variables(pid):
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read()
    except OSError:
        return b""
