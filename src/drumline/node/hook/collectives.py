"""
The collectives of this process: how many it has entered, and when, where no DistributedDataParallel notes the times:
with FSDP, DeepSpeed or a loop that reduces by itself.

PyTorch's flight recorder has these times too, but hands out all of its 2,000 entries at once, which holds the program
up for a tenth of a second. So the methods of ``ProcessGroup`` by which a program enters a collective note the time. C++
that enters one by itself, as DistributedDataParallel's does, does not call them, nor does a compiled graph. As careful
as ``sitecustomize``: the standard library alone, and where anything is otherwise, nothing is noted.

Counts are in memory that the agent reads whenever it likes (``node/diagnostics/activity.py`` has its layout too): a
rise is the sign that a rank goes on which neither prints nor computes.
"""

from __future__ import annotations

import os
import sys
from time import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

_METHODS = (
    "allreduce",
    "allreduce_coalesced",
    "allgather",
    "_allgather_base",
    "allgather_coalesced",
    "allgather_into_tensor_coalesced",
    "reduce_scatter",
    "_reduce_scatter_base",
    "reduce_scatter_tensor_coalesced",
    "alltoall",
    "alltoall_base",
    "all_gather_single",
    "all_gather_single_coalesced",
    "reduce_scatter_single",
    "reduce_scatter_single_coalesced",
    "all_to_all_single",
    "barrier",
)
"""In which each rank waits for all others: not those with a single sender or receiver."""

_OTHER_METHODS = ("broadcast", "reduce", "gather", "scatter", "send", "recv", "recv_anysource")

_MOST = 4096
"""Of a step, of which more are not noted: a program may use PyTorch for long without a step."""

MEMORY_NAME = "drumline-counts"
ALL, SOME = 0, 1
COUNTS, COUNT_BYTES = 4, 8
"""Collectives in which each rank waits for all others, other ones, and then those of ``steps``."""


def make_counts(move_up: Callable[[int], int]) -> Any:
    """Return the counts, in memory that forks of this process share. ``move_up``: as of ``steps``."""
    size = COUNTS * COUNT_BYTES
    try:
        from mmap import mmap

        memory = os.memfd_create(MEMORY_NAME, os.MFD_CLOEXEC)
        os.ftruncate(memory, size)
        return memoryview(mmap(move_up(memory), size)).cast("Q")
    except Exception:
        return [0] * COUNTS


class Collectives:
    """
    The number of collectives that this process has entered, and the times of those of all ranks since the last
    ``take``. ``counts``: as of ``make_counts``. ``tell``: tells what its thread handles just now; None: nobody asks.
    """

    def __init__(self, counts: Any = None, tell: Callable[[], object] | None = None) -> None:
        self.counts = counts or [0] * COUNTS
        self._tell = tell
        self._handled = id(None)
        """Of the exception that was told of: to hold it would hold all that its frames have."""

        self.ranks = 0
        """Of the default group, the first time that a collective began; WORLD_SIZE is not set below mpirun."""

        self.cut_off = 0
        """
        1 after a backward pass of DistributedDataParallel that failed: it may have begun a collective of C++, which is
        not counted. 0 again once the program goes on to another: then it was caught and meant nothing.
        """

        self._times: list[float] = []

    def note(self, group: Any, wants_time: Callable[[], bool]) -> None:
        """
        Note that a collective of ``group`` begins now, in which each of its ranks waits for all others. Raises
        ValueError where there is no default group.
        """
        self._note_begin()
        if group.size() != self._find_ranks():
            self.counts[SOME] += 1
            return
        self.counts[ALL] += 1
        if len(self._times) < _MOST and wants_time():
            self._times.append(time())

    def note_cut_off(self) -> None:
        """Note a backward pass that failed; see ``cut_off``."""
        try:
            self._find_ranks()
            self.cut_off = 1
        except Exception:
            pass

    def _find_ranks(self) -> int:
        if not self.ranks:
            self.ranks = sys.modules["torch.distributed"].get_world_size()
        return self.ranks

    def note_other(self, _group: Any, _wants_time: Callable[[], bool]) -> None:
        """Note that a collective with a single sender or receiver begins now."""
        self._note_begin()
        self.counts[SOME] += 1

    def _note_begin(self) -> None:
        """Tell what is handled as a collective begins, as in a ``finally``: nobody can ask while it does not return."""
        self.cut_off = 0
        error = sys.exc_info()[1]
        if self._tell and id(error) != self._handled:
            self._handled = id(error)
            self._tell()

    def take(self, most: int) -> list[float]:
        """Return at most so many of the times, in seconds since 1970: every one, or every second one and so on."""
        times, self._times = self._times, []
        return times[:: -(-len(times) // most) or 1]


def put_into(
    group: Any, collectives: Collectives, wants_time: Callable[[], bool], is_compiling: Callable[[], bool]
) -> None:
    """
    Note the collectives that begin by a method of ``group``, the class ProcessGroup. ``wants_time``: whether their
    times are of use too; ``is_compiling``: as of ``steps``.
    """
    notes = {
        **dict.fromkeys(_METHODS, collectives.note),
        **dict.fromkeys(_OTHER_METHODS, collectives.note_other),
    }
    for name, note in notes.items():
        own = getattr(group, name, None)
        if callable(own):
            setattr(group, name, _make_noting(own, note, wants_time, is_compiling))


def _make_noting(
    own: Any, note: Any, wants_time: Callable[[], bool], is_compiling: Callable[[], bool]
) -> Any:
    from functools import update_wrapper

    def begin(self: Any, *arguments: Any, **named: Any) -> Any:
        try:
            if not is_compiling():
                note(self, wants_time)
        except Exception:
            pass
        return own(self, *arguments, **named)

    # A group that is written in Python calls its base with this method. What binds it to C++ takes a Python function
    # for the method of such a group, and would call it for ever, unless the caller has the method's name.
    begin.__code__ = begin.__code__.replace(co_name=own.__name__)
    return update_wrapper(begin, own)
