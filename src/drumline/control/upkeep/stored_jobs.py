"""The jobs of a home as its upkeep sees them: whose steps they are, whether they have ended, what they speak of."""

from __future__ import annotations

import errno
import os
import re
import time
from typing import TYPE_CHECKING

from drumline.contract import process_identity
from drumline.contract.folder import RunFolder
from drumline.contract.mlflow_variables import run_id_of
from drumline.contract.outcome import fold
from drumline.contract.record import NamedTuple
from drumline.control.jobs.job_outcome import read_outcome
from drumline.control.jobs.lookup import all_names

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from drumline.contract.outcome import Outcome


_PARENT = re.compile(rb"^ ?[\"']?parent_job_name[\"']?: [\"']?([^\"',\n]+)", re.MULTILINE)
_DIGEST = re.compile(rb"(?<![0-9a-f])(?:[0-9a-f]{64}|[0-9a-f]{32})(?![0-9a-f])")
_JOB = re.compile(rb"\b(?:jobs/|runs:/+|mlruns/[0-9]+/)([A-Za-z0-9_][A-Za-z0-9_.-]*)")
_MOST_BYTES = 256 << 20
_ENDING_S = 60.0
"""More than a supervisor takes to end after its job."""


class StoredJob(NamedTuple):
    """One job. ``parent``: the job whose step or trial it is; empty for none."""

    folder: RunFolder
    outcome: Outcome
    parent: str
    digests: frozenset[str]
    """The snapshots and environments that its files name."""

    mentions: frozenset[str]
    """The jobs whose outputs its files name; a job by the id of its MLflow run, where they name that."""

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def end_time(self) -> float:
        """Return when it ended, in seconds since 1970; infinity while it has not."""
        if not self.outcome.is_final:
            return float("inf")
        return self.outcome.ended or self.outcome.created or 0.0

    @property
    def is_over(self) -> bool:
        """Return whether it has ended, and its supervisor or driver too; of another machine's that is not known."""
        if not self.outcome.is_final:
            return False
        who = self.folder.read_json(self.folder.supervisor)
        if who is None or process_identity.is_ours_to_judge(who):
            return not process_identity.is_alive(who)
        return time.time() - self.end_time > _ENDING_S


class StoredJobs:
    """All jobs of the current workspace."""

    def __init__(self) -> None:
        found = (read_job(RunFolder.for_job(name)) for name in all_names())
        self.by_name = {job.name: job for job in found if job is not None}

    def find_top(self, name: str) -> str:
        """Return the job that a job is a step of, or a step of a step; itself if it is none."""
        seen = {name}
        while (parent := self.by_name[name].parent) in self.by_name and parent not in seen:
            seen.add(parent)
            name = parent
        return name

    def list_family(self, name: str) -> list[str]:
        """Return a job, and all that are steps or trials below it."""
        found = [name]
        for each in found:
            found += [
                job.name for job in self.by_name.values() if job.parent == each and job.name not in found
            ]
        return found

    def families(self) -> dict[str, list[str]]:
        """Return all jobs that are no steps, each with all jobs below it, itself first."""
        found: dict[str, list[str]] = {name: [name] for name in self.by_name if self.find_top(name) == name}
        for name in self.by_name:
            top = self.find_top(name)
            if top != name:
                found.setdefault(top, [top]).append(name)
        return found


def read_job(folder: RunFolder) -> StoredJob | None:
    """Return what is known of a job; None for a folder that holds none."""
    outcome = fold(folder.read_events())
    if outcome.created is None:
        return None
    if not outcome.is_final:
        outcome = read_outcome(folder)
    text = _read_all(folder)
    parent = _PARENT.search(_read(folder.job))
    return StoredJob(
        folder,
        outcome,
        parent[1].decode("utf-8", "replace").strip() if parent else "",
        find_digests(text),
        find_mentions(text) - {folder.name},
    )


def read_digests(folder: RunFolder) -> frozenset[str]:
    """Return the digests that the files of a run folder name, which may not be a job yet."""
    return find_digests(_read_all(folder))


def _read_all(folder: RunFolder) -> bytes:
    return b"\n".join(map(_read, (folder.job, folder.plan, folder.graph, folder.stored_code)))


def find_digests(text: bytes) -> frozenset[str]:
    """
    Find the digests of snapshots and environments in a text.

    >>> sorted(find_digests(b"snapshots/" + b"0a" * 32 + b" and " + b"0" * 65))
    ['0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a']
    """
    return frozenset(one.decode() for one in _DIGEST.findall(text))


def find_mentions(text: bytes) -> frozenset[str]:
    """
    Find the names of jobs that a text refers to.

    >>> sorted(find_mentions(b"azureml://jobs/calm_drum/outputs/model, runs:/bold_bell/model"))
    ['bold_bell', 'calm_drum']
    """
    return frozenset(one.decode() for one in _JOB.findall(text))


def read_assets(home: str) -> Iterator[tuple[str, bytes]]:
    """Yield the records of all assets of a home: ``data:digits:1``, and the text."""
    top = os.path.join(home, "assets")
    for kind in list_names(top):
        for name in list_names(os.path.join(top, kind)):
            for file in list_names(os.path.join(top, kind, name)):
                if file.endswith(".yml"):
                    yield f"{kind}:{name}:{file[:-4]}", _read(os.path.join(top, kind, name, file))


def list_names(folder: str) -> list[str]:
    """Return the names in a folder, sorted; none if it is not there. Raises OSError for a disk that does not answer."""
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _read(path: str) -> bytes:
    """
    Read a plain file of ours; empty if there is none: a job can put a pipe into its folder. Raises OSError for a disk
    that does not answer: what cannot be read may be needed.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            return file.read(_MOST_BYTES) or b""
    except OSError as error:
        if error.errno not in (
            errno.ENOENT,
            errno.ENOTDIR,
            errno.ELOOP,
            errno.ENXIO,
            errno.EISDIR,
            errno.EAGAIN,
        ):
            raise
        return b""


# reasons to keep a job


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
        kind, _, asset = name.partition(":")
        noun = "data asset" if kind == "data" else kind
        for each in sorted({gone[one] for one in find_mentions(text) & gone.keys()}):
            found.append(Need(each, name, LOSES, f"{noun} {asset} is stored in job {each}"))
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
