"""
Exceptions in flight while a rank still cleans up: those that its main thread handles, asked before it is ended.

A Python that has the hook answers a signal by a file beside its notes (``hook/in_flight.py``), as soon as its main
thread runs Python: one that is inside of native code answers when that returns. Nobody else is sent the signal. It may
interrupt a system call, so it is for jobs that end anyway.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from typing import TYPE_CHECKING, Optional

from drumline.linux import descendants, kernel
from drumline.node.diagnostics import failures, stacks

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from drumline.contract.evidence import RaisedException

SIGNAL = int(getattr(signal, "SIGRTMAX", 64)) - 5
"""The hook has it too: it cannot import this."""

_ANSWER_TIMEOUT_S = 0.1
_POLL_INTERVAL_S = 0.002
_MAX_PROCESSES = 8


def read_in_flight(
    ranks: Mapping[int, int], notes: Mapping[int, str], cwd: str
) -> dict[int, list[RaisedException]]:
    """
    Return the exceptions in flight as ``read_answers`` does, by rank, of the ranks that answer.

    ``ranks``: to the pid of each one's first process. ``notes``: the file of each rank's. Blocks, for a tenth of a
    second at most.
    """
    asked = {rank: send_request(pid, notes[rank]) for rank, pid in ranks.items()}
    told: dict[int, list[RaisedException]] = {}
    deadline = time.monotonic() + _ANSWER_TIMEOUT_S
    while any(pids and rank not in told for rank, pids in asked.items()) and time.monotonic() < deadline:
        time.sleep(_POLL_INTERVAL_S)
        for rank, pids in asked.items():
            one = read_answers(pids, notes[rank], cwd) if rank not in told else None
            if one is not None:
                told[rank] = one
    return told


def send_request(pid: int, notes: str) -> list[int]:
    """Ask a rank's processes, of which ``pid`` is the first; those that may answer."""
    asked: list[int] = []
    for one in (pid, *descendants.list_descendants(pid)):
        if notes and len(asked) < _MAX_PROCESSES and _handles_request(one):
            # An answer to an earlier question.
            with contextlib.suppress(OSError):
                os.unlink(failures.IN_FLIGHT % (notes, one))
            with contextlib.suppress(OSError):
                kernel.signal_thread(one, one, SIGNAL)
                asked.append(one)
    return asked


def read_answers(asked: Iterable[int], notes: str, cwd: str) -> Optional[list[RaisedException]]:
    """Return the exceptions as of ``failures.read_in_flight``. Empty: there is none. None: nobody has answered."""
    answers = (failures.read_in_flight(notes, pid, cwd) for pid in asked)
    return max((one for one in answers if one is not None), key=len, default=None)


def _handles_request(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/status", errors="replace") as file:
            caught = re.search(r"^SigCgt:\s*([0-9a-f]+)", file.read(), re.MULTILINE)
    except OSError:
        return False
    return caught is not None and bool(int(caught[1], 16) >> (SIGNAL - 1) & 1) and stacks.has_hook(pid)
