"""The interpreter that a path stands for, and the one that is active, on this machine."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING

from drumline.contract.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping


def behind(python: str) -> str:
    """Look through a shim, such as pyenv's: it would find another Python in another folder. Raises UsageError."""
    from drumline.linux import pyenv_shims

    try:
        return pyenv_shims.resolve_interpreter(python, os.environ)
    except OSError as error:
        raise UsageError(str(error.strerror), "name the interpreter itself") from error


def find_active(environ: Mapping[str, str]) -> str:
    """
    Return the Python that is active in the shell of whoever submits, never our own; empty for none.

    It is that of VIRTUAL_ENV or CONDA_PREFIX, else the first ``python`` of PATH, else the first ``python3``.
    """
    own = os.path.realpath(sys.prefix)
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        python = os.path.join(environ.get(name, ""), "bin", "python")
        if environ.get(name) and os.path.realpath(environ[name]) != own and os.access(python, os.X_OK):
            return behind(os.path.abspath(python))
    folders = [one for one in environ.get("PATH", "").split(os.pathsep) if os.path.isabs(one)]
    others = os.pathsep.join(one for one in folders if os.path.realpath(one) != os.path.join(own, "bin"))
    for name in ("python", "python3"):
        found = shutil.which(name, path=others) if others else None
        if found:
            return behind(found)
    return ""


def find_named(named: str) -> str:
    """
    Return the Python that ``--python`` names: a path, a virtual environment, or a program of PATH. Raises UsageError.

    An absolute path that is not there may be one of a compute's nodes.
    """
    path = os.path.expanduser(named)
    is_program = os.sep not in path and not os.path.exists(os.path.join(path, "bin", "python"))
    if is_program:
        path = shutil.which(path) or ""
    elif os.path.isdir(path):
        path = os.path.join(path, "bin", "python")
    path = os.path.abspath(path) if path and (os.path.exists(path) or os.path.isabs(path)) else ""
    if not path or os.path.isdir(path):
        raise UsageError(
            f"--python: there is no {named!r}", "give the path of a Python, or of a virtual environment"
        )
    return path


def check_can_run(python: str) -> None:
    """Raise UsageError for a file that is no program."""
    if not os.path.isfile(python) or not os.access(python, os.X_OK):
        what = f"the Python {python!r} is not there, or cannot be run"
        raise UsageError(what, "--python, or DRUMLINE_PYTHON, names another")
