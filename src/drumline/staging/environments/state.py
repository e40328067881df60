"""The state of an environment: whether it is complete, and which jobs use it."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from drumline.staging.environments.folder import CONTAINERS, LOCK_FILE, MARKER, interpreter_of

if TYPE_CHECKING:
    from drumline.contract.plan import Build


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
    _copy_lock(build, run_folder)


def _copy_lock(build: Build, run_folder: str) -> None:
    from drumline.contract.folder import write_whole

    with contextlib.suppress(OSError, ValueError):
        with open(os.path.join(build.prefix, LOCK_FILE), encoding="utf-8", errors="replace") as file:
            text = file.read(1 << 22)
        write_whole(os.path.join(run_folder, LOCK_FILE), text)
