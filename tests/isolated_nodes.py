"""Computes whose nodes are isolated, and what is left of them, for tests. They need root, or user namespaces."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from drumline.contract.errors import EngineError
from drumline.engines.local.isolation import inside, needs
from drumline.engines.local.isolation.settings import read_isolation


def skip_without(**settings: Any) -> None:
    """Skip the test where this machine cannot play such nodes."""
    isolation = read_isolation({"isolation": "namespace", **settings})
    assert isolation is not None
    try:
        inside.find_program("tc")
        needs.check_limits(isolation)
        needs.try_here(isolation)
    except EngineError as error:
        pytest.skip(f"{error.message} ({error.hint})")


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
