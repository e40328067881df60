"""Waiting for a condition, with an end: the one place in the tests that lets time pass."""

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

_PAUSE_S = 0.01

PATIENCE = 4
"""By which every limit grows: a shared machine may be slow, and what comes in time is not waited for any longer."""


def wait_until(predicate: Callable[[], T], timeout_s: float = 10.0, what: str = "") -> T:
    """
    The first true value of the predicate, which is asked every 10 ms.

    Raises TimeoutError after timeout_s times PATIENCE; it names `what` was waited for, or else the predicate.
    """
    timeout_s *= PATIENCE
    deadline = time.monotonic() + timeout_s
    while True:
        value = predicate()
        if value:
            return value
        if time.monotonic() >= deadline:
            name = what or getattr(predicate, "__qualname__", repr(predicate))
            raise TimeoutError(f"not within {timeout_s:g} s: {name}")
        time.sleep(_PAUSE_S)


def remove_folder(folder: Path) -> None:
    """Remove the folder of a job that runs, and may make a file in it meanwhile. Raises TimeoutError."""

    def is_removed() -> bool:
        shutil.rmtree(folder, ignore_errors=True)
        return not folder.exists()

    wait_until(is_removed, what=f"{folder} to be removed")


def yields_to_others(pid: int) -> bool:
    """
    Whether a process has the lowest priority, as the one that stores the code of ``drumline run`` afterwards: on a busy
    machine it takes half a minute, and ends by itself.
    """
    try:
        return os.getpriority(os.PRIO_PROCESS, pid) == 19
    except ProcessLookupError:
        return True
