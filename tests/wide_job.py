"""A job of very many ranks, with lines and samples of each and one that failed, made without running anything."""

import os

from made_jobs import MadeJob

from drumline.contract import events as e
from drumline.contract import samples

FAILED = 137
"""The rank that failed first."""

_ENDING = b"""Traceback (most recent call last):
  File "train.py", line 31, in <module>
ValueError: loss is nan at step 40
"""


def make_wide_job(name="wide", nodes=16, procs=32, seconds=60):
    """Return the job, whose ranks ran for so long until rank ``FAILED`` failed."""
    job = MadeJob(name, nodes=nodes, procs=procs)
    job.start()
    count = nodes * procs
    for second in range(0, seconds, 20):
        for rank in range(count):
            lines = (f"step {step} loss {2 / (step + 1):.4f}\n" for step in range(second, second + 20))
            job.log(rank, "".join(lines), at=1002.0 + second)
    job.log(FAILED, _ENDING, at=1001.0 + seconds)
    for node in range(nodes):
        _write_samples(job, node, range(node * procs, (node + 1) * procs), seconds)
    end = 1001.0 + seconds
    job.add(e.RankExited(end, FAILED, FAILED // procs, 1, None))
    job.add(e.JobStopping(end, f"rank {FAILED} failed"))
    others = (rank for rank in range(count) if rank != FAILED)
    job.add(*(e.RankExited(end + 0.5, rank, rank // procs, None, 15) for rank in others))
    why = f"rank {FAILED} on node {FAILED // procs} failed first: exit code 1: ValueError: loss is nan at step 40"
    job.add(e.JobEnded(end + 1, "Failed", 1, why, FAILED, FAILED // procs))
    return job


def _write_samples(job, node, ranks, seconds):
    path = samples.path_of(job.folder.path, node)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        for second in range(1, seconds + 1):
            uses = tuple(_use(rank, second) for rank in ranks)
            file.write(samples.to_line(_sample(second, uses)))


def _sample(second, uses):
    memory = (50 << 30, 100 << 30)
    counts = (second << 20, second << 19)
    return samples.Sample(
        *(1001.0 + second, 0, float(second), 0.0, len(uses), memory, None, (0, 0), counts, counts, 1.0),
        *(uses, ()),
    )


def _use(rank, second):
    cpu_s = second * (0.3 + 0.7 * (rank % 13) / 13)
    memory = (200 + rank % 50 + second) << 20
    return samples.RankUse(rank, 1000 + rank, cpu_s, memory, memory, 1, 8, (0, 0, 0, 0), {}, False)
