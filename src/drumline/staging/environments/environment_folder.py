"""
Environments that are built: a folder for each content, made once, and shared by all jobs whose environment has that.

``<home>/environments/<digest>`` is the environment itself; it is whole when its marker is there, which is written last.
``<digest>.lock`` beside it is held by whoever builds. ``builder`` makes one.
"""

from __future__ import annotations

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


def make_build_folder(prefix: str) -> str:
    """Create a folder for the build alone; the next build removes it after a kill. Raises OSError."""
    import tempfile

    return tempfile.mkdtemp(prefix=f"{os.path.basename(prefix)}.build-", dir=os.path.dirname(prefix))


def clear_build_folders(prefix: str) -> None:
    """Remove the folders of builds that were killed; the caller holds the lock."""
    import glob
    import shutil

    for path in glob.glob(f"{glob.escape(prefix)}.build-*"):
        shutil.rmtree(path, ignore_errors=True)


def interpreter_of(build: Build) -> str:
    """Return its Python, if programs of this machine use it; empty: they run in a container."""
    return "" if build.kind in CONTAINERS else os.path.join(build.prefix, "bin", "python")
