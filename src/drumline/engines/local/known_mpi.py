"""
The version of this machine's MPI, remembered from the last time its launcher was asked, which takes 10 ms of a start.

It holds for a program that has not changed since. A script is asked each time: what it starts may be another by now.
"""

from __future__ import annotations

import json
import os
from typing import Any

from drumline.contract import identity, mpi
from drumline.contract.folder import base_home, open_text, write_whole

_ELF = b"\x7fELF"
_MAX_BYTES = 4096


def recall(program: str, path: str) -> mpi.Mpi | None:
    """Return what was remembered of the program of that path; None: it has to be asked. Never raises."""
    try:
        with open_text(_choose_file(), "surrogateescape") as file:
            known = json.loads(file.read(_MAX_BYTES))
        if known["of"] != _describe(path):
            return None
        kind, major, minor = known["mpi"]
        return mpi.Mpi(str(kind), int(major), int(minor), program)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def remember(path: str, found: mpi.Mpi) -> None:
    """Remember it, where jobs have left a place for that. Never raises."""
    try:
        with open(path, "rb") as file:
            if file.read(len(_ELF)) != _ELF:
                return
        known = {"of": _describe(path), "mpi": [found.kind, found.major, found.minor]}
        if os.path.isdir(os.path.dirname(_choose_file())):
            write_whole(_choose_file(), json.dumps(known))
    except OSError:
        return


def _choose_file() -> str:
    return os.path.join(base_home(), "engines", f"mpi-{identity.name_machine()}.json")


def _describe(path: str) -> list[Any]:
    """Return what tells this program from another, or from a later version. Raises OSError."""
    about = os.stat(path)
    return [path, about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns]
