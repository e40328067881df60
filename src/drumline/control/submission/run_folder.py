"""The making of a run folder: its name, what is written first, and its removal where it becomes no job."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from drumline.contract import events as e
from drumline.contract import status
from drumline.contract.errors import DrumlineError, PlanError
from drumline.contract.folder import RunFolder, home, private_folder

if TYPE_CHECKING:
    from collections.abc import Iterator


_HALF_MADE_S = 60.0
WORKING_FOLDER = "drumline.working_folder"
"""The property of a job that runs in the user's own folder."""

ISOLATION = "drumline.isolation"
"""The property of a job of ``drumline run --isolate``: the settings of its nodes, as JSON."""


_REMOVAL_LOCK = "removal.lock"
REMOVAL_LIMIT_S = 60.0
"""How long a removal waits for submissions, and for another removal."""

_REMOVAL_POLL_S = 0.02


@contextmanager
def hold_removal_lock(root: str, *, alone: bool = False) -> Iterator[None]:
    """
    Keep ``prune`` and ``job delete`` out of a home while a job is planned and written.

    ``alone``: for them, to keep submissions out while they choose and move what is to go. Raises DrumlineError if
    another process keeps them waiting for too long. On a file system without locks nobody waits.
    """
    import fcntl

    lock = None
    # A home may not be there yet, or cannot be written to: nothing is removed there.
    with suppress(OSError):
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        lock = os.open(os.path.join(root, _REMOVAL_LOCK), flags, 0o600)
    try:
        if lock is not None and alone:
            _lock_alone(lock, root)
        elif lock is not None:
            with suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_SH)
        yield
    finally:
        if lock is not None:
            os.close(lock)


def _lock_alone(lock: int, root: str) -> None:
    import fcntl

    deadline = time.monotonic() + REMOVAL_LIMIT_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                what = f"another process submits or removes jobs in {root}, and does not end"
                raise DrumlineError(what, "try again when it has ended") from None
            time.sleep(_REMOVAL_POLL_S)
        except OSError:
            return
        else:
            return


def create_folder(job: Any, root: str) -> RunFolder:
    """
    Create a run folder under the job's name; exactly one of several at once gets it.

    One that is to be in another folder than the home's has a link there.
    """
    folder = RunFolder.for_job(str(job.name), root)
    link = _link_of(folder)
    is_elsewhere = os.path.dirname(link) != os.path.dirname(folder.path)
    try:
        if is_elsewhere:
            private_folder(os.path.dirname(link))
            if os.path.islink(link) and not os.path.exists(link):
                os.unlink(link)  # Of a job whose run folder was removed.
            os.symlink(folder.path, link)
        try:
            folder.create()
        except BaseException:
            if is_elsewhere:
                os.unlink(link)
            raise
    except FileExistsError as error:
        # A file in the place of the home is another error.
        if not os.path.lexists(folder.path) and not os.path.lexists(link):
            raise
        if _remove_abandoned(folder):
            return create_folder(job, root)
        raise name_taken(str(job.name)) from error
    return folder


def forget_stored_name(job: Any) -> None:
    """Take the name from a job that was read from the file of the run folder of that name: that is another job."""
    source = str(job._source or "")
    if not job.name or os.path.basename(source) != "job.yml":
        return
    if os.path.realpath(source) == os.path.realpath(RunFolder.for_job(job.name).job):
        if job.display_name == job.name:
            job.display_name = None
        job.name = None
        if hasattr(job, "parent_job_name"):
            job.parent_job_name = None


def name_taken(name: str) -> PlanError:
    """Return the error of a submission under the name of a job that is there."""
    hint = f"drumline job show -n {name}, or leave the name out for a new one"
    return PlanError(f"name: there is a job {name!r} already", hint)


def _remove_abandoned(folder: RunFolder) -> bool:
    """
    Remove a run folder whose maker ended before it was a job. Return whether the name is free then.

    Of several submissions that find it one removes it: another would remove what the first has made in its place.
    """
    import fcntl

    if not folder.is_abandoned(_HALF_MADE_S):
        return False
    descriptor = os.open(os.path.dirname(folder.path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if folder.is_abandoned(_HALF_MADE_S):
            remove_folder(folder)
    finally:
        os.close(descriptor)
    return not os.path.lexists(folder.path)


def check_is_ours(folder: RunFolder) -> None:
    """Raise PlanError if another submission has taken the name because this one was idle for too long."""
    if folder.was_taken_over():
        hint = "submit it again, under another name or without one"
        raise PlanError(f"name: another submission took the name {folder.name!r} meanwhile", hint)


def remove_folder(folder: RunFolder) -> None:
    """Remove a run folder that is not a job yet, unless another submission has taken its name."""
    import shutil

    if folder.was_taken_over():
        return
    shutil.rmtree(folder.path, ignore_errors=True)
    link = _link_of(folder)
    if os.path.islink(link):
        os.unlink(link)


def write_off(folder: RunFolder, why: str) -> None:
    """Record the end of a job that its engine did not take; no secret of it is left. Raises OSError."""
    folder.append(e.JobEnded(time.time(), status.FAILED, 1, why))
    folder.remove_secrets()


def _link_of(folder: RunFolder) -> str:
    """Return the path of the link in this home to a run folder that is elsewhere."""
    return os.path.join(home(), "jobs", folder.name)


@contextmanager
def block_signals(*, forks: bool) -> Iterator[None]:
    """Block SIGINT and SIGTERM, which would end a supervisor without a session of its own, or leave half a job."""
    if not forks:
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def text_of(job: Any, in_place: str = "") -> str:
    """Return the text of job.yml. Raises PlanError for invalid Unicode."""
    from drumline.spec.jobs.job import to_dict

    # Whoever reads it later does so from another folder.
    spec = to_dict(job, absolute=True)
    spec.setdefault("display_name", job.name)
    spec.setdefault("experiment_name", "Default")
    if in_place:
        shown = in_place.encode("utf-8", "backslashreplace").decode()
        spec["properties"] = {**(spec.get("properties") or {}), WORKING_FOLDER: shown}
    code = spec.get("code")
    if isinstance(code, str) and os.path.isdir(code):
        head = read_head(code)
        if head:
            # A rerun has that of the code that was stored then.
            spec["properties"] = {**head, **(spec.get("properties") or {})}
    # JSON is YAML too, and its module is there already when there was no file to read.
    try:
        text = json.dumps(spec, ensure_ascii=False, indent=1) if in_place else _yaml(spec)
        text.encode()
    except UnicodeEncodeError as error:
        raise PlanError("the job holds text that is not Unicode, and cannot be written down") from error
    return text


def _yaml(spec: dict[str, Any]) -> str:
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return str(yaml.dump(spec, Dumper=dumper, sort_keys=False, allow_unicode=True))


# the commit of the code, from git's own files


_MOST_PARENTS = 40
_MOST_BYTES = 1 << 22
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


def read_head(folder: str) -> dict[str, str]:
    """
    Return the commit and the branch as properties of a job, in Azure ML's spelling; empty where there is no repository.
    """
    git = _find_git(folder)
    head = _read(os.path.join(git, "HEAD")) if git else ""
    if not head:
        return {}
    if not head.startswith("ref: "):
        return {"azureml.git.commit": head} if _COMMIT.fullmatch(head) else {}
    ref = head.removeprefix("ref: ")
    if not ref.startswith("refs/") or ".." in ref.split("/"):
        return {}
    commit = _read_ref(git, ref)
    if not _COMMIT.fullmatch(commit):
        return {}
    return {"azureml.git.commit": commit, "azureml.git.branch": ref.removeprefix("refs/heads/")}


def _find_git(folder: str) -> str:
    """Return the folder of git for a working folder, or the nearest above it; empty for none."""
    for _ in range(_MOST_PARENTS):
        path = os.path.join(folder, ".git")
        if os.path.isdir(path):
            return path
        if os.path.isfile(path):
            # A worktree or a submodule.
            text = _read(path)
            return os.path.join(folder, text.removeprefix("gitdir: ")) if text.startswith("gitdir: ") else ""
        above = os.path.dirname(folder)
        if above == folder:
            break
        folder = above
    return ""


def _read_ref(git: str, ref: str) -> str:
    common = _read(os.path.join(git, "commondir"))
    places = [git, os.path.join(git, common)] if common else [git]
    for place in places:
        found = _read(os.path.join(place, ref))
        if found:
            return found
    for place in places:
        for line in _read(os.path.join(place, "packed-refs")).splitlines():
            if line.endswith(f" {ref}"):
                return line.split(" ", 1)[0]
    return ""


def _read(path: str) -> str:
    """Return the text of a small file; empty when it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, encoding="utf-8", errors="replace") as file:
            return file.read(_MOST_BYTES).strip()
    except OSError:
        return ""
