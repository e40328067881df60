"""A home with all that is measured: 10,000 jobs and three large ones, made without running any, and one that runs."""

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from made_jobs import MadeJob  # noqa: E402
from wide_job import make_wide_job  # noqa: E402

from drumline.contract import events as e  # noqa: E402
from drumline.contract.folder import RunFolder  # noqa: E402

WIDE, LINES, CURVE, LIVE = "wide", "lines", "curve", "live"
NODES, PROCS = 2, 4
"""Of the job with many lines."""

_TEMPLATE = "job_00000"
_APART_S = 60.0
_LINES_A_SECOND = 1250
_SPARK = "".join(f"{1_700_000_000_000 + step * 1000} {2 / (step + 1):.6f} {step}\n" for step in range(40))

STAMPS = """
import os
import random
import sys
import time

while not os.path.exists(sys.argv[1]):
    if os.environ["RANK"] == "0":
        print(f"stamp @{time.time_ns()}@", flush=True)
    time.sleep(random.uniform(0.6, 1.1))
"""
"""Rank 0 of the job that runs prints when it printed."""


def make_home(jobs: int, lines: int, points: int) -> None:
    """Fill the home that DRUMLINE_HOME names."""
    make_many(jobs)
    make_wide_job(WIDE, seconds=300)
    _make_lines(lines)
    _make_curve(points)


def make_many(count: int) -> None:
    """Fill it with copies of one job, each with its own times and a metric of 40 values; every seventh failed."""
    one = MadeJob(_TEMPLATE, nodes=1, procs=2)
    one.track()
    one.folder.write(one.folder.job, "type: command\ncommand: python train.py\nexperiment_name: digits\n")
    plan, job = (Path(path).read_text() for path in (one.folder.plan, one.folder.job))
    begin = time.time() - count * _APART_S
    for number in range(count):
        name = f"job_{number:05}"
        folder = RunFolder.for_job(name)
        if number:
            os.mkdir(folder.path, 0o700)
            os.mkdir(folder.user_logs, 0o700)
            Path(folder.plan).write_text(plan.replace(_TEMPLATE, name))
            Path(folder.job).write_text(job)
        events = _list_events(begin + number * _APART_S, has_failed=number % 7 == 3)
        Path(folder.events).write_bytes(b"".join(map(e.to_line, events)))
        metrics = Path(one.run_dir.replace(_TEMPLATE, name), "metrics")
        metrics.mkdir(parents=True, exist_ok=True)
        (metrics / "loss").write_text(_SPARK)


def _list_events(at: float, *, has_failed: bool) -> list[e.Event]:
    began: list[e.Event] = [
        e.JobSubmitted(at, "ann"),
        e.JobStarting(at + 1),
        e.AgentJoined(at + 1.2, 0, 99, "127.0.0.1"),
        *(e.RankStarted(at + 1.3, rank, 0, 100 + rank) for rank in range(2)),
        e.JobRunning(at + 1.4),
    ]
    if has_failed:
        why = "rank 1 on node 0 failed first: exit code 1: ValueError: loss is nan at step 12"
        return [*began, e.RankExited(at + 30, 1, 0, 1, None), e.JobEnded(at + 31, "Failed", 1, why, 1, 0)]
    exits = (e.RankExited(at + 40, rank, 0, 0, None) for rank in range(2))
    return [*began, *exits, e.JobEnded(at + 41, "Completed", 0, "all ranks completed")]


def _make_lines(count: int) -> None:
    ranks = NODES * PROCS
    job = MadeJob(LINES, nodes=NODES, procs=PROCS)
    job.start()
    each = count // ranks
    for second, first in enumerate(range(0, each, _LINES_A_SECOND)):
        upto = min(each, first + _LINES_A_SECOND)
        for rank in range(ranks):
            lines = (
                f"step {step} rank {rank} loss {2 / (step + 1):.6f} of batch {step * 7919 % 100_003}\n"
                for step in range(first, upto)
            )
            job.log(rank, "".join(lines), at=1002.0 + second)
    job.add(e.JobEnded(1003.0 + each / _LINES_A_SECOND, "Completed", 0, "all ranks completed"))


def _make_curve(count: int) -> None:
    job = MadeJob(CURVE, nodes=1, procs=1)
    job.track()
    job.start()
    metrics = Path(job.run_dir, "metrics")
    metrics.mkdir(parents=True, exist_ok=True)
    with (metrics / "loss").open("w") as file:
        for step in range(count):
            wave = (step * 2654435761 % 1000) / 5000
            file.write(f"{1_700_000_000_000 + step * 10} {1 / (1 + step / 50_000) + wave!r} {step}\n")
    job.add(e.JobEnded(1001.0 + count / 100, "Completed", 0, "all ranks completed"))


class RunningJob:
    """A job of 2x2 ranks that runs until the ``with`` is left."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._end = folder / "end"

    def __enter__(self) -> None:
        source = self._folder / "code"
        source.mkdir()
        (source / "stamps.py").write_text(STAMPS)
        file = self._folder / "live.yml"
        file.write_text(
            "type: command\n"
            f"command: python stamps.py '{self._end}'\n"
            f"code: {source}\n"
            "resources: {instance_count: 2}\n"
            "distribution: {type: pytorch, process_count_per_instance: 2}\n"
        )
        self._drumline("job", "create", "-f", str(file), "-n", LIVE)

    def __exit__(self, *_: object) -> None:
        self._end.touch()
        self._drumline("job", "wait", LIVE)
        self._drumline("warm", "stop")

    def _drumline(self, *words: str) -> None:
        argv = [sys.executable, "-m", "drumline", *words]
        subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
