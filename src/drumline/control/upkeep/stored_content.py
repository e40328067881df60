"""Snapshots and environments of a home, with the images built for them: when each was last used, and who needs it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
from typing import TYPE_CHECKING

from drumline.contract.folder import RunFolder
from drumline.contract.record import NamedTuple
from drumline.control.upkeep import stored_jobs
from drumline.staging.environments import containers
from drumline.staging.environments.environment_folder import CONTAINERS, FOLDER, MARKER

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from drumline.control.upkeep.stored_jobs import StoredJobs
    from drumline.control.upkeep.trash import TrashRemoval

_LIMIT_S = 60.0
_DIGEST_LENGTHS = (32, 64)


class Content(NamedTuple):
    """A snapshot or an environment. ``used``: when it was last used, in seconds since 1970."""

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


def list_snapshots(root: str) -> Iterator[Content]:
    for name in _list_digests(os.path.join(root, "snapshots")):
        path = os.path.join(root, "snapshots", name)
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
        for name in stored_jobs.list_names(jobs_of_root):
            link = os.path.join(jobs_of_root, name)
            path = os.path.realpath(link)
            # What cannot be looked at may need anything.
            if path in left or os.path.islink(link) or os.path.isfile(link):
                continue
            job = by_path.get(path) or stored_jobs.read_job(RunFolder(path))
            digests = job.digests if job else stored_jobs.read_digests(RunFolder(path))
            snapshots |= digests
            if job is None or not job.outcome.is_final:
                environments |= digests
        for _, text in stored_jobs.read_assets(root):
            snapshots |= stored_jobs.find_digests(text)
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
