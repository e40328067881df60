"""
Values of variables that were typed, taken out of this process's command line.

Every user of the machine can read a command line, for as long as the process runs; a supervisor that is forked from
this process has the same one until its job ends.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_ARG_START, _ARG_END = 45, 46
"""In what follows the name in ``/proc/self/stat``. Source: proc_pid_stat(5), fields 48 and 49."""

_OF_VARIABLES = "environment_variables"


def values(of: Iterable[str]) -> None:
    """
    Put asterisks in the place of values. ``of``: words NAME=VALUE, as they were typed. Never raises.

    To be called before anything is forked from this process.
    """
    typed = [value for _, _, value in (word.partition("=") for word in of) if value]
    if not typed:
        return
    try:
        import ctypes

        with open("/proc/self/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        start, end = int(fields[_ARG_START]), int(fields[_ARG_END])
        words = ctypes.string_at(start, end - start)
        for value in map(os.fsencode, typed):
            at = words.find(b"=" + value + b"\0")
            while at >= 0:
                ctypes.memset(start + at + 1, ord("*"), len(value))
                at = words.find(b"=" + value + b"\0", at + 1)
    except (ImportError, OSError, ValueError, IndexError):
        return


def values_set(given: Iterable[str]) -> None:
    """As ``values``, of those words of ``--set`` that are for environment variables."""
    values(word for word in given if _OF_VARIABLES in word.partition("=")[0])
