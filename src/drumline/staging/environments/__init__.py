"""
Environments that are built: a folder for each content, made once, and shared by all jobs whose environment has that.

``<home>/environments/<digest>`` is the environment itself; it is whole when its marker is there, which is written last.
``<digest>.lock`` beside it is held by whoever builds. ``builder`` makes one, ``python -m`` this package does so for a
run folder.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from drumline.contract.plan import Build

FOLDER = "environments"
"""Below a home."""

MARKER = ".complete"
"""In an environment: a JSON object that says how it was made. Its time is that of the last use."""

LOCK_FILE = "environment.lock"
"""In an environment, and in the run folder of each job: what was installed, to the version."""

LOG = os.path.join("system_logs", "environment.log")
"""In the run folder."""

CONTAINERS = ("podman", "docker", "apptainer")


def prefix_of(root: str, digest: str) -> str:
    return os.path.join(root, FOLDER, digest)


def folder_beside(prefix: str) -> str:
    """A new one for what only the build needs; what a killed build left goes with the next one. Raises OSError."""
    import tempfile

    return tempfile.mkdtemp(prefix=f"{os.path.basename(prefix)}.build-", dir=os.path.dirname(prefix))


def clear_beside(prefix: str) -> None:
    """Of builds that were killed; whoever calls this holds the lock."""
    import glob
    import shutil

    for path in glob.glob(f"{glob.escape(prefix)}.build-*"):
        shutil.rmtree(path, ignore_errors=True)


def interpreter_of(build: Build) -> str:
    """Its Python, where it is one for programs of this machine; empty: they run in a container."""
    return "" if build.kind in CONTAINERS else os.path.join(build.prefix, "bin", "python")


def is_ready(build: Build) -> bool:
    """Whether nothing is left to do. Quick, and writes nothing."""
    if not os.path.isfile(os.path.join(build.prefix, MARKER)):
        return False
    if build.kind in CONTAINERS:
        from drumline.staging import containers

        return containers.is_there(build)
    # A link, which leads nowhere when the Python below is gone.
    return os.path.exists(interpreter_of(build))


def use(build: Build, run_folder: str) -> None:
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
