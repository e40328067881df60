"""
The times at which this process enters collectives, where no DistributedDataParallel notes them: with FSDP, DeepSpeed or
a loop that reduces by itself.

PyTorch's flight recorder has these times too, but hands out all of its 2,000 entries at once, which holds the program
up for a tenth of a second. So the methods of ``ProcessGroup`` by which a program enters a collective note the time. C++
that enters one by itself, as DistributedDataParallel's does, does not call them, nor does a compiled graph. As careful
as ``sitecustomize``: the standard library alone, and where anything is otherwise, nothing is noted.
"""

from __future__ import annotations

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

_MOST = 4096
"""Of a step, of which more are not noted: a program may use PyTorch for long without a step."""


class Collectives:
    """The times at which this process has entered collectives of all ranks since the last ``take``."""

    def __init__(self) -> None:
        self._ranks = 0
        """Of the default group, the first time that a collective began; WORLD_SIZE is not set below mpirun."""

        self._times: list[float] = []

    def note(self, group: Any) -> None:
        """Note that a collective of ``group`` begins now. Raises ValueError where there is no default group."""
        if not self._ranks:
            self._ranks = sys.modules["torch.distributed"].get_world_size()
        if group.size() == self._ranks and len(self._times) < _MOST:
            self._times.append(time())

    def take(self, most: int) -> list[float]:
        """Return at most so many of the times, in seconds since 1970: every one, or every second one and so on."""
        times, self._times = self._times, []
        return times[:: -(-len(times) // most) or 1]


def put_into(group: Any, collectives: Collectives, is_on: Callable[[], bool]) -> None:
    """Note the collectives that begin by a method of ``group``, the class ProcessGroup, while ``is_on``."""
    for name in _METHODS:
        own = getattr(group, name, None)
        if callable(own):
            setattr(group, name, _make_noting(own, collectives, is_on))


def _make_noting(own: Any, collectives: Collectives, is_on: Callable[[], bool]) -> Any:
    from functools import update_wrapper

    def begin(self: Any, *arguments: Any, **named: Any) -> Any:
        try:
            if is_on():
                collectives.note(self)
        except Exception:
            pass
        return own(self, *arguments, **named)

    # A group that is written in Python calls its base with this method. What binds it to C++ takes a Python function
    # for the method of such a group, and would call it for ever, unless the caller has the method's name.
    begin.__code__ = begin.__code__.replace(co_name=own.__name__)
    return update_wrapper(begin, own)
