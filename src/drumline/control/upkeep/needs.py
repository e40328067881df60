"""The reasons to keep a job: jobs that have not ended, steps that were reused, assets, and inputs need it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drumline.contract.mlflow import run_id_of
from drumline.contract.record import NamedTuple
from drumline.control.upkeep import stored_jobs

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from drumline.control.upkeep.stored_jobs import StoredJob, StoredJobs

BLOCKS, LOSES, RERUNS = "blocks", "loses", "reruns"
"""A job that would fail; a job or an asset whose content would be gone; a job that could not run again."""


class Need(NamedTuple):
    """
    A need that keeps a job: ``user`` needs the job ``job``; ``how`` is one of the words above, ``what`` a sentence.
    """

    job: str
    user: str
    how: str
    what: str


def find_needs(jobs: StoredJobs, going: Collection[str], assets: Iterable[tuple[str, bytes]]) -> list[Need]:
    """Return what jobs that stay, and assets, need of those that go."""
    gone = {run_id_of(name): name for name in going} | {name: name for name in going}
    found = []
    for job in jobs.by_name.values():
        if job.name not in gone:
            found += _find_job_needs(job, gone)
    for name, text in assets:
        for each in sorted({gone[one] for one in stored_jobs.find_mentions(text) & gone.keys()}):
            found.append(Need(each, name, LOSES, f"{_name_asset(name)} is stored in job {each}"))
    return found


def _find_job_needs(job: StoredJob, gone: Mapping[str, str]) -> list[Need]:
    found = []
    taken = {step.job: step.step for step in job.outcome.steps.values() if step.job in gone}
    mentioned = {gone[one] for one in job.mentions & gone.keys()}
    for each in sorted(mentioned | taken.keys()):
        if not job.outcome.is_final:
            what = f"job {job.name} is {job.outcome.status} and reads the outputs of job {each}"
            found.append(Need(each, job.name, BLOCKS, what))
        elif each in taken:
            what = f"step {taken[each]!r} of job {job.name} has its outputs in job {each}"
            found.append(Need(each, job.name, LOSES, what))
        else:
            what = f"job {job.name} read the outputs of job {each}: it could not run again"
            found.append(Need(each, job.name, RERUNS, what))
    return found


def _name_asset(name: str) -> str:
    kind, _, rest = name.partition(":")
    noun = "data asset" if kind == "data" else kind
    return f"{noun} {rest}"
