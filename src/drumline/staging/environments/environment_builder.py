"""
One environment, made in its place: virtual environments cannot be moved.

Of several that want the same, one builds and the others wait. What a killed one left has no marker, and is removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import time
from typing import TYPE_CHECKING

from drumline.contract.folder import private_folder, write_whole
from drumline.contract.record import NamedTuple
from drumline.staging.environments.environment_folder import (
    CONTAINERS,
    LOCK_FILE,
    MARKER,
    clear_build_folders,
    interpreter_of,
)
from drumline.staging.environments.tool import BuildError, Tool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from drumline.contract.plan import Build


_OWN = {
    "PYTHONPATH": "",
    "PYTHONHOME": "",
    "PYTHONNOUSERSITE": "1",
    "PIP_USER": "0",
    "PIP_TARGET": "",
    "PIP_PREFIX": "",
    "PIP_ROOT": "",
}
"""
By which pip puts packages where they belong, and takes none for installed that are somewhere else. What is empty is as
not set.
"""


class BuildResult(NamedTuple):
    seconds: float
    reused: bool
    """Whether somebody else made it, maybe meanwhile."""


def build_environment(
    wanted: Build, log: int, told: Callable[[str], None], *, who: str = "", is_forced: bool = False
) -> BuildResult:
    """
    Build an environment unless it is there. Blocks, also while another process builds it.

    ``log``: a descriptor for what the tools say. ``told``: what is being done, in words. ``who``: wants it, as others
    are told who wait. ``is_forced``: make it again. Raises BuildError.
    """
    begun = time.monotonic()
    tool = Tool(log, told, _OWN)
    try:
        private_folder(os.path.dirname(wanted.prefix))
        with _hold_lock(f"{wanted.prefix}.lock", who, tool):
            if is_ready(wanted) and not is_forced:
                return BuildResult(time.monotonic() - begun, reused=True)
            _make(wanted, tool)
            return BuildResult(time.monotonic() - begun, reused=False)
    except OSError as error:
        why = error.strerror or str(error)
        raise BuildError(f"the environment cannot be made in {wanted.prefix}: {why}") from error


def _make(wanted: Build, tool: Tool) -> None:
    """Build it in its place; a working one stays if this fails."""
    clear_build_folders(wanted.prefix)
    before = f"{wanted.prefix}.build-before"
    is_there = is_ready(wanted)
    if is_there:
        os.rename(wanted.prefix, before)
    else:
        shutil.rmtree(wanted.prefix, ignore_errors=True)
        if os.path.lexists(wanted.prefix):
            shutil.rmtree(wanted.prefix)
    try:
        _fill(wanted, tool)
    except BaseException:
        shutil.rmtree(wanted.prefix, ignore_errors=True)
        if is_there:
            os.rename(before, wanted.prefix)
        raise
    shutil.rmtree(before, ignore_errors=True)


def _fill(wanted: Build, tool: Tool) -> None:
    begun = time.time()
    os.mkdir(wanted.prefix, 0o700)
    _choose_maker(wanted.kind)(wanted, tool)
    made = {"kind": wanted.kind, "name": wanted.name, "made": begun, "seconds": round(time.time() - begun, 3)}
    text = json.dumps({**made, "recipe": dict(wanted.recipe)}) + "\n"
    write_whole(os.path.join(wanted.prefix, MARKER), text)


def _choose_maker(kind: str) -> Callable[[Build, Tool], None]:
    if kind == "uv":
        from drumline.staging.environments import uv

        return uv.make
    if kind == "conda":
        from drumline.staging.environments import conda

        return conda.make
    if kind in CONTAINERS:
        from drumline.staging.environments import containers

        return containers.make
    raise BuildError(f"cannot build an environment of kind {kind!r}")


@contextlib.contextmanager
def _hold_lock(path: str, who: str, tool: Tool) -> Iterator[None]:
    """Hold the lock, whose file stays and names its holder. Without locks, work is done twice at worst."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            text = os.pread(descriptor, 300, 0).decode("utf-8", "replace")
            other = " ".join("".join(char if char.isprintable() else " " for char in text).split())
            tool.say(f"waiting for {other or 'another process'}, which builds the same")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError:
            pass  # A file system without locks.
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, who.encode("utf-8", "replace")[:300], 0)
        yield
    finally:
        os.close(descriptor)


# the state of an environment, and the jobs that use it


def is_ready(build: Build) -> bool:
    """Return whether it is complete. Quick, and writes nothing."""
    if not os.path.isfile(os.path.join(build.prefix, MARKER)):
        return False
    if build.kind in CONTAINERS:
        from drumline.staging.environments import containers

        return containers.has_image(build)
    # A link, which leads nowhere when the Python below is gone.
    return os.path.exists(interpreter_of(build))


def note_use(build: Build, run_folder: str) -> None:
    """Note that a job uses it, which is ready, and put its lock file into the run folder. Raises nothing."""
    with contextlib.suppress(OSError):
        os.utime(os.path.join(build.prefix, MARKER))
    with contextlib.suppress(OSError, ValueError):
        with open(os.path.join(build.prefix, LOCK_FILE), encoding="utf-8", errors="replace") as file:
            text = file.read(1 << 22)
        write_whole(os.path.join(run_folder, LOCK_FILE), text)
