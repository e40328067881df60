"""The interpreter that a path stands for, on this machine."""

from __future__ import annotations

import os

from drumline.contract.errors import UsageError


def behind(python: str) -> str:
    """Look through a shim, such as pyenv's: it would find another Python in another folder. Raises UsageError."""
    from drumline.node import shims

    try:
        return shims.interpreter_behind(python, os.environ)
    except OSError as error:
        raise UsageError(str(error.strerror), "name the interpreter itself") from error
