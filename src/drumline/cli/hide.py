"""
Hiding the values of variables that were typed, in this process's command line.

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

_VARIABLES_FIELD = "environment_variables"


def hide_values(words: Iterable[str]) -> None:
    """
    Replace values by asterisks. ``words``: NAME=VALUE, as they were typed. Never raises.

    To be called before anything is forked from this process.
    """
    typed = [value for _, _, value in (word.partition("=") for word in words) if value]
    if not typed:
        return
    try:
        import ctypes

        with open("/proc/self/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        start, end = int(fields[_ARG_START]), int(fields[_ARG_END])
        line = ctypes.string_at(start, end - start)
        for value in map(os.fsencode, typed):
            at = line.find(b"=" + value + b"\0")
            while at >= 0:
                ctypes.memset(start + at + 1, ord("*"), len(value))
                at = line.find(b"=" + value + b"\0", at + 1)
    except (ImportError, OSError, ValueError, IndexError):
        return


def hide_set_values(given: Iterable[str]) -> None:
    """Hide the values of those words of ``--set`` that set environment variables."""
    hide_values(word for word in given if _VARIABLES_FIELD in word.partition("=")[0])
