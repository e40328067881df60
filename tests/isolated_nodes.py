"""Computes whose nodes are isolated, and what is left of them, for tests. They need root, or user namespaces."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import drumline
from drumline.contract.errors import EngineError
from drumline.engines.local.isolation import inside, needs
from drumline.engines.local.isolation.isolation_settings import read_isolation

NOBODY = 65534


def skip_without(**settings: Any) -> None:
    """Skip the test where this machine cannot play such nodes."""
    why = find_obstacle(**settings)
    if why:
        pytest.skip(why)


def find_obstacle(**settings: Any) -> str:
    """Why this machine cannot play such nodes; empty: it can."""
    isolation = read_isolation({"isolation": "namespace", **settings})
    assert isolation is not None
    try:
        inside.find_program("tc")
        needs.check_limits(isolation)
        needs.try_here(isolation)
    except EngineError as error:
        return f"{error.message} ({error.hint})"
    return ""


def write_compute(folder: Path, name: str = "lab", **settings: Any) -> Path:
    """A compute's file; JSON is YAML."""
    path = folder / f"{name}.yml"
    given = {"name": name, "type": "local", "nodes": 4, "isolation": "namespace", **settings}
    path.write_text(json.dumps(given))
    return path


def list_networks() -> set[int]:
    """The networks that processes of this machine are in, by inode."""
    found = set()
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            found.add(os.stat(f"/proc/{name}/ns/net").st_ino)
        except OSError:
            continue
    return found


def list_left(run_folder: Path) -> list[str]:
    """The scratch folders and control groups of a job's nodes that are still there."""
    return [path for path in (run_folder / "scratch").read_text().splitlines() if os.path.exists(path)]


def find_python_of_everybody() -> str:
    """A Python that an ordinary user may run; empty for none."""
    for python in (
        sys.executable,
        *(shutil.which(f"python3.{minor}", path="/usr/bin") for minor in range(11, 15)),
    ):
        if (
            python
            and run_as_nobody(
                [python, "-c", "import sys; sys.exit(sys.version_info < (3, 11))"], "/"
            ).returncode
            == 0
        ):
            return python
    return ""


@contextlib.contextmanager
def enter_folder_of_nobody() -> Iterator[tuple[str, str]]:
    """
    A folder of an ordinary user who may make isolated nodes, and a Python that this user may run.

    Skips the test where there is none. For root: ordinary users need no such folder.
    """
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chown(folder, NOBODY, NOBODY)
        python = find_python_of_everybody()
        if not python or run_as_nobody(["unshare", "--user", "--net", "true"], folder).returncode != 0:
            pytest.skip("an ordinary user has no Python 3.11, or may make no namespaces here")
        yield folder, python


def run_as_nobody(words: list[str], folder: str, packages: str = "") -> subprocess.CompletedProcess[str]:
    """In a folder of their own, with the sources of this checkout. ``packages``: a folder with more modules."""

    def become_nobody() -> None:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)

    paths = [
        *filter(None, [packages]),
        str(Path(drumline.__file__).parents[1]),
        *(path for path in sys.path if path.endswith("site-packages")),
    ]
    env = {
        "PATH": "/usr/bin:/bin",
        "HOME": folder,
        "DRUMLINE_HOME": f"{folder}/home",
        "PYTHONPATH": ":".join(paths),
    }
    try:
        return subprocess.run(
            words,
            cwd=folder,
            env=env,
            preexec_fn=become_nobody,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
    except OSError:
        return subprocess.CompletedProcess(words, 126, "", "")
