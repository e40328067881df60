"""
The memory of this server: the lists of jobs that it keeps, a few homes', each made when it is first asked for; and what
answers leave behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import functools
import gc
import sys
import threading
from collections import OrderedDict

from anyio import to_thread

from drumline.contract.errors import DrumlineError
from drumline.contract.folder import home
from drumline.control.facts.job_table import JobTable, RowFigures

_MOST_HOMES = 4
_PART_S = 0.1
_RETURN_S = 2.0
_MUCH_BLOCKS = 2000
"""Of Python's objects; fewer are not looked for."""

_MALLOC = {-8: 1, -1: 1 << 17, -3: 1 << 17}
"""M_ARENA_MAX, M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of malloc.h."""


class Tables:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lists: OrderedDict[str, RowFigures] = OrderedDict()

    def here(self) -> RowFigures:
        """Return the list of the current workspace."""
        with self._lock:
            found = self._lists.get(home())
            if found is None:
                found = self._lists[home()] = RowFigures(JobTable())
            self._lists.move_to_end(home())
            while len(self._lists) > _MOST_HOMES:
                self._lists.popitem(last=False)
            return found


async def fill(tables: Tables) -> None:
    """
    Look at the jobs before somebody asks for them, a part at a time: whoever asks meanwhile waits for one part at most.
    """
    # Whoever asks then hears what is wrong.
    with contextlib.suppress(DrumlineError, OSError):
        table = tables.here().table
        while True:
            await to_thread.run_sync(functools.partial(table.refresh, now=True))
            if not table.waiting_count:
                return
            await asyncio.sleep(_PART_S)


def share_memory() -> None:
    """Have threads share the memory that they free, and return it soon; glibc keeps some for each of them."""
    with contextlib.suppress(OSError, AttributeError):
        for option, value in _MALLOC.items():
            ctypes.CDLL(None).mallopt(option, value)


async def return_memory() -> None:
    """
    Return what answers have left, soon after them: requests are circles, which Python would keep for minutes, and the
    pages between what is still used.

    What is there by now, modules above all, is never looked at again: one look takes some milliseconds.
    """
    gc.collect()
    gc.freeze()
    known = 0
    while True:
        await asyncio.sleep(_RETURN_S)
        if abs(sys.getallocatedblocks() - known) > _MUCH_BLOCKS:
            gc.collect()
            with contextlib.suppress(OSError, AttributeError):
                ctypes.CDLL(None).malloc_trim(0)
            known = sys.getallocatedblocks()
