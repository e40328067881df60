"""``job stream`` of a job that runs: how soon a line is seen, and what it costs to wait for one."""

import os
import select
import statistics
import subprocess
import sys
import time

import pytest
from cli_jobs import write_job
from waiting import PATIENCE, wait_until

from drumline.contract.folder import RunFolder
from drumline.contract.plan import Plan
from drumline.control.jobs.ending import cancel

RANKS = 24
LATENCY_S = 0.2

IDLE_CORES = 0.05
"""Measured: 0.001. What is caught is looking at all logs all the time."""


class Streamed:
    """The command, and what it has written so far."""

    def __init__(self, folder):
        self.out, theirs = os.pipe()
        argv = [sys.executable, "-m", "drumline", "job", "stream", "-n", "job"]
        self.process = subprocess.Popen(argv, cwd=folder, stdin=subprocess.DEVNULL, stdout=theirs)
        os.close(theirs)
        self.seen = b""
        run = RunFolder.for_job("job")
        self.logs = [os.path.join(run.path, task.log) for task in Plan.read(run.plan).ranks]

    def wait_for(self, text, timeout_s=20.0):
        deadline = time.monotonic() + timeout_s * PATIENCE
        while text not in self.seen:
            assert self.says_more(deadline - time.monotonic()), f"{text!r} is not there"
            self.seen += os.read(self.out, 1 << 20)

    def says_more(self, seconds):
        return bool(select.select([self.out], [], [], max(0.0, seconds))[0])

    def write(self, rank, data):
        with open(self.logs[rank], "ab") as file:
            file.write(data)

    def watched(self):
        """How many files and folders the kernel tells it about."""
        process = f"/proc/{self.process.pid}"
        count = 0
        for descriptor in os.listdir(f"{process}/fd"):
            if os.readlink(f"{process}/fd/{descriptor}") == "anon_inode:inotify":
                with open(f"{process}/fdinfo/{descriptor}") as file:
                    count += file.read().count("inotify wd")
        return count

    def cpu_s(self):
        with open(f"/proc/{self.process.pid}/schedstat") as file:
            return int(file.read().split()[0]) / 1e9

    def bytes_read(self):
        with open(f"/proc/{self.process.pid}/io") as file:
            return int(file.readline().removeprefix("rchar: "))


@pytest.fixture
def streamed(cli, tmp_path):
    """Of a job whose ranks only wait; what stands in their logs is the test's."""
    distribution = {"type": "pytorch", "process_count_per_instance": RANKS}
    write_job(tmp_path, "echo ready; exec tail -f /dev/null", distribution=distribution)
    assert cli("job", "create", "-f", "job.yml", "-n", "job").rc == 0
    streamed = Streamed(tmp_path)
    try:
        for rank in range(RANKS):
            streamed.wait_for(b"[%d|node-0] ready\n" % rank)
        wait_until(lambda: streamed.watched() == RANKS + 1, 20.0, "all logs to be watched")
        yield streamed
    finally:
        streamed.process.kill()
        streamed.process.wait()
        os.close(streamed.out)
        cancel("job", at_once=True)


def test_lines_are_seen_at_once_and_waiting_for_them_costs_nothing(streamed):
    took = []
    for number in range(15):
        began = time.monotonic()
        streamed.write(number % 3, b"line %d\n" % number)
        streamed.wait_for(b"[%d|node-0] line %d\n" % (number % 3, number))
        took.append(time.monotonic() - began)
    assert statistics.median(took) < LATENCY_S

    # All are watched again, and nothing more happens.
    wait_until(lambda: streamed.watched() == RANKS + 1, 20.0, "all logs to be watched")
    before, began = streamed.cpu_s(), time.monotonic()
    assert not streamed.says_more(1.0)
    assert streamed.cpu_s() - before < IDLE_CORES * (time.monotonic() - began)

    before = streamed.bytes_read()
    data = b"".join(b"%099d\n" % number for number in range(20_000))
    streamed.write(5, data)
    streamed.wait_for(b"[5|node-0] %099d\n" % 19_999)
    read = streamed.bytes_read() - before
    assert len(data) <= read < len(data) * 1.1
    ours = [line for line in streamed.seen.split(b"\n") if line.startswith(b"[5|")]
    assert [b"[5|node-0] ready", *(b"[5|node-0] " + line for line in data[:-1].split(b"\n"))] == ours
