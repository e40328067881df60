"""When samples are taken, and what becomes of their file."""

import itertools
import os
import resource
import subprocess
import sys

import pytest

from drumline.contract import samples
from drumline.node.metrics import sampling
from drumline.node.metrics.log_files import INTERVAL_S, SampleLines, compute_kept_interval_s
from drumline.node.metrics.sampling import Sampler

DAY_S = 86400.0
LINE = 900
"""Bytes of a sample of eight ranks."""


def line_at(now):
    return f"{now:.1f} ".encode().ljust(LINE - 1, b".") + b"\n"


def times_in(path):
    lines = path.read_bytes().splitlines()
    assert all(len(line) == LINE - 1 for line in lines)
    return [float(line.split()[0]) for line in lines]


def test_a_month_is_some_megabytes_and_the_newest_are_always_there(tmp_path):
    path = tmp_path / "system_metrics" / "node-0.jsonl"
    file = SampleLines(str(path))
    hours = itertools.takewhile(lambda now: now < DAY_S / 8, itertools.count(0.0, INTERVAL_S))
    days = itertools.takewhile(lambda now: now < 30 * DAY_S, itertools.count(DAY_S / 8, 120.0))
    last = []
    for number, now in enumerate(itertools.chain(hours, days)):
        file.add(line_at(now), now)
        last = [*last[-1:], now]
        if number in (1, 2, 3, 500, 2500):
            assert times_in(path)[-2:] == last
    file.close()
    times = times_in(path)
    assert times[-2:] == last
    assert path.stat().st_size < 4.5e6
    # Dense in the first minutes, some hundred a day later.
    assert times[:100] == [INTERVAL_S * number for number in range(100)]
    gaps = [after - before for before, after in itertools.pairwise(times[:-2])]
    assert max(gaps) < 1500.0
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_no_file_grows_for_ever():
    assert compute_kept_interval_s(0) == INTERVAL_S
    assert compute_kept_interval_s(8 << 20) == float("inf")
    intervals = [compute_kept_interval_s(size) for size in range(0, 9 << 20, 1 << 16)]
    assert intervals == sorted(intervals)


def test_another_attempt_goes_on_where_the_last_one_ended(tmp_path):
    path = tmp_path / "system_metrics" / "node-0.jsonl"
    for attempt in range(2):
        file = SampleLines(str(path))
        for number in range(4):
            now = 100.0 * attempt + 5.0 * number
            file.add(line_at(now), now)
        file.close()
    assert times_in(path) == [0, 5, 10, 15, 100, 105, 110, 115]
    with path.open("ab") as cut_short:
        cut_short.write(b"half")
    file = SampleLines(str(path))
    file.add(line_at(200.0), 200.0)
    file.close()
    assert path.read_bytes().splitlines()[-2:] == [b"half", line_at(200.0)[:-1]]


def test_lines_of_any_length_leave_no_rests(tmp_path):
    path = tmp_path / "system_metrics" / "node-0.jsonl"
    file = SampleLines(str(path))
    sizes = [900, 20, 500, 3, 90, 1000, 7]
    for number, size in enumerate(sizes):
        # All within a moment: only the first and the last two stay.
        file.add(bytes([65 + number]) * size + b"\n", number / 10)
    file.close()
    assert [line[:1] for line in path.read_bytes().splitlines()] == [b"A", b"F", b"G"]
    assert len(path.read_bytes()) == 900 + 1000 + 7 + 3


@pytest.mark.parametrize("obstacle", ["pipe", "folder", "link", "gone"])
def test_what_is_in_the_way_harms_nobody(tmp_path, obstacle, capfd):
    path = tmp_path / "run" / "system_metrics" / "node-0.jsonl"
    if obstacle != "gone":
        path.parent.mkdir(parents=True)
    if obstacle == "pipe":
        os.mkfifo(path)
    elif obstacle == "folder":
        path.mkdir()
    elif obstacle == "link":
        path.symlink_to(tmp_path / "elsewhere")
    sampler = Sampler(str(path), 0)
    sampler.work({})
    sampler.finish()
    assert not (tmp_path / "elsewhere").exists()
    assert (tmp_path / "run").exists() == (obstacle != "gone")
    assert capfd.readouterr().err.count("system metrics:") == 1


FULL = """
import resource, sys
from drumline.node.metrics.log_files import SampleLines
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (250, hard))
file = SampleLines(sys.argv[1])
for number in range(6):
    file.add(b"%d" % number * 99 + b"\\n", 5.0 * number)
    if number == 3:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
file.close()
"""


def test_a_full_disk_costs_samples_and_nothing_else(tmp_path):
    path = tmp_path / "system_metrics" / "node-0.jsonl"
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(path)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr.count("system metrics:")) == (0, 1)
    lines = path.read_bytes().splitlines()
    assert [line[:1] for line in lines][-2:] == [b"4", b"5"]
    assert {len(line) for line in lines} == {99}


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


def lines_of(path):
    return [samples.from_line(line) for line in path.read_bytes().splitlines()] if path.exists() else []


def test_samples_come_after_a_second_then_every_five_and_at_the_end(tmp_path):
    path = tmp_path / "system_metrics" / "node-1.jsonl"
    clock = Clock()
    sampler = Sampler(str(path), 2, clock=clock)
    with subprocess.Popen(["sleep", "600"]) as rank:
        try:
            for tick in range(12):
                clock.now = 1000.0 + tick
                while sampler.due_in_s() == 0.0:
                    sampler.work({rank.pid: 5})
        finally:
            rank.kill()
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    sampler.note_exit(rank.pid, 5, usage.ru_utime, usage.ru_maxrss << 10)
    clock.now = 1012.5
    sampler.finish()
    sampler.finish()
    found = lines_of(path)
    assert [sample.elapsed_s for sample in found] == [1.0, 6.0, 11.0, 12.5]
    assert {sample.attempt for sample in found} == {2}
    own = [next(use for use in sample.ranks if use.rank == 5) for sample in found]
    assert [use.has_ended for use in own] == [False, False, False, True]
    assert {use.pid for use in own} == {rank.pid}
    assert (own[0].processes, own[0].memory > 0, own[-1].memory) == (1, True, 0)
    assert own[-1].peak >= own[0].memory


def test_samples_that_cost_much_are_taken_less_often(tmp_path):
    clock, spent = Clock(), itertools.count(0.0, 0.1)
    sampler = Sampler(str(tmp_path / "node-0.jsonl"), 0, clock=clock, spent=lambda: next(spent))
    clock.now += 1.0
    sampler.work({})
    calls = 1
    while sampler.due_in_s() == 0.0:
        sampler.work({})
        calls += 1
    assert sampler.due_in_s() == pytest.approx(calls * 0.1 / sampling.MAX_CPU_SHARE)
    sampler.finish()


def test_a_job_that_is_over_at_once_has_a_sample_all_the_same(tmp_path):
    path = tmp_path / "system_metrics" / "node-0.jsonl"
    sampler = Sampler(str(path), 0)
    sampler.work({4711: 0})
    sampler.note_exit(4711, 0, 0.25, 5 << 20)
    sampler.finish()
    (sample,) = lines_of(path)
    (use,) = sample.ranks
    assert (use.cpu_s, use.peak, use.has_ended) == (0.25, 5 << 20, True)


def test_an_error_of_ours_ends_the_samples_and_nothing_else(tmp_path, capfd):
    sampler = Sampler(str(tmp_path / "node-0.jsonl"), 0, clock=lambda: 0.0)
    sampler.note_exit("no pid", [], None, None)
    assert sampler.is_broken
    sampler.work({})
    sampler.finish()
    assert sampler.due_in_s() == float("inf")
    assert capfd.readouterr().err.count("there are no more samples") == 1


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b'{"t": 1',
        b'{"t": 1e999, "a": 0}',
        b"[" * 5000,
        b'{"t":[],"a":{}}',
        b"\xff",
    ],
)
def test_what_is_no_sample_is_left_out(line):
    assert samples.from_line(line) is None
