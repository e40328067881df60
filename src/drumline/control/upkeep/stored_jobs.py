"""
What a home stores, as its upkeep sees it: the jobs, whose steps they are, whether they have ended, what they speak of;
snapshots and environments, with the images built for them: when each was last used, and who needs it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import subprocess
import time
from typing import TYPE_CHECKING

from drumline.contract import process_identity
from drumline.contract.folder import RunFolder
from drumline.contract.mlflow_variables import run_id_of
from drumline.contract.outcome import fold
from drumline.contract.record import NamedTuple
from drumline.control.jobs.job_outcome import read_outcome
from drumline.control.jobs.lookup import all_names
from drumline.staging.environments import containers
from drumline.staging.environments.environment_folder import CONTAINERS, FOLDER, MARKER

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from drumline.contract.outcome import Outcome
    from drumline.control.upkeep.trash import TrashRemoval


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


UPLOADS = "uploads"
"""The folder of code that clients of the REST API upload."""

_LIMIT_S = 60.0
_DIGEST_LENGTHS = (32, 64)


class Content(NamedTuple):
    """A snapshot, an upload or an environment. ``used``: when it was last used, in seconds since 1970."""

    path: str
    root: str
    used: float
    engine: str = ""
    """Of an environment with an image: podman or docker."""

    image: str = ""
    """Empty for an image that was pulled by its name, which may be others' too."""

    @property
    def digest(self) -> str:
        return os.path.basename(self.path)


class Needed(NamedTuple):
    """Digests: snapshots that jobs and assets name, and environments of jobs that have not ended."""

    snapshots: frozenset[str]
    environments: frozenset[str]


def list_code(root: str) -> Iterator[Content]:
    """Yield the snapshots of a home, and code that clients uploaded, of which jobs and assets have snapshots."""
    for folder, list_them in (("snapshots", _list_digests), (UPLOADS, list_names)):
        for name in list_them(os.path.join(root, folder)):
            path = os.path.join(root, folder, name)
            with contextlib.suppress(OSError):
                yield Content(path, root, os.lstat(path).st_mtime)


def list_environments(root: str) -> Iterator[Content]:
    """Yield the environments of a home, those that a killed build left too."""
    for name in _list_digests(os.path.join(root, FOLDER)):
        path = os.path.join(root, FOLDER, name)
        marker = os.path.join(path, MARKER)
        with contextlib.suppress(OSError):
            used = os.lstat(marker if os.path.exists(marker) else path).st_mtime
            made = RunFolder(path).read_json(marker) or {}
            recipe, kind = made.get("recipe"), str(made.get("kind") or "")
            recipe = recipe if isinstance(recipe, dict) else {}
            is_ours = kind in CONTAINERS and kind != "apptainer" and recipe.get("is_made")
            image = str(recipe.get("image") or "") if is_ours else ""
            yield Content(path, root, used, kind if image else "", image)


def _list_digests(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return sorted(
                one.name
                for one in entries
                if len(one.name) in _DIGEST_LENGTHS
                and one.name.isalnum()
                and one.is_dir(follow_symlinks=False)
            )
    except (FileNotFoundError, NotADirectoryError):
        return []


def find_needed(roots: Iterable[str], jobs: StoredJobs, gone: Collection[str]) -> Needed:
    """
    Find the stored content that jobs need; jobs of other homes in the same folders count.

    ``gone``: names of jobs of this workspace that do not count.
    """
    by_path = {os.path.realpath(job.folder.path): job for job in jobs.by_name.values()}
    left = {path for path, job in by_path.items() if job.name in gone}
    snapshots: set[str] = set()
    environments: set[str] = set()
    for root in roots:
        jobs_of_root = os.path.join(root, "jobs")
        for name in list_names(jobs_of_root):
            link = os.path.join(jobs_of_root, name)
            path = os.path.realpath(link)
            # What cannot be looked at may need anything.
            if path in left or os.path.islink(link) or os.path.isfile(link):
                continue
            job = by_path.get(path) or read_job(RunFolder(path))
            digests = job.digests if job else read_digests(RunFolder(path))
            snapshots |= digests
            if job is None or not job.outcome.is_final:
                environments |= digests
        for _, text in read_assets(root):
            snapshots |= find_digests(text)
    return Needed(frozenset(snapshots), frozenset(environments))


def remove_environment(content: Content, removal: TrashRemoval) -> bool:
    """
    Take an environment and its image, unless a build or a container uses it; return whether it went.

    The engine is asked first: an environment whose image is gone is built again.
    """
    with contextlib.ExitStack() as held:
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            lock = os.open(f"{content.path}.lock", flags, 0o600)
            held.callback(os.close, lock)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            pass  # A file system without locks, or without room for the file of one.
        if content.image and not _remove_image(content):
            return False
        removal.take(content.path, content.root, "environment")
    return True


def _remove_image(content: Content) -> bool:
    program = containers.program_of(content.engine)
    if not program:
        return True  # Its engine is gone, and took the image along.
    _run(program, "rmi", f"{content.image}-base")
    return _run(program, "rmi", content.image) is not None or measure_image(content) == 0


def measure_image(content: Content) -> int:
    """Return the bytes of the image that was built for an environment; 0 if there is none."""
    program = containers.program_of(content.engine) if content.image else ""
    said = _run(program, "image", "inspect", "--format", "{{.Size}}", content.image) if program else None
    return int(said) if said and said.isdigit() else 0


def _run(program: str, *words: str) -> str | None:
    """Return what the engine prints; None if it fails."""
    try:
        done = subprocess.run(  # noqa: S603 - the engine of this machine
            [program, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_LIMIT_S,
            check=False,
            text=True,
            errors="replace",
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
