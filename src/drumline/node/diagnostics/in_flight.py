"""
Exceptions in flight while a rank still cleans up: those that its main thread handles, asked before it is ended.

A Python that has the hook answers a signal by a file beside its notes (``hook/in_flight.py``), as soon as its main
thread runs Python: one that is inside of native code answers when that returns. Nobody else is sent the signal. It may
interrupt a system call, so it is for jobs that end anyway.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import time
from typing import TYPE_CHECKING, Any, Optional

from drumline.contract.folder import read_plain
from drumline.linux import descendants, kernel
from drumline.node.diagnostics import failures, stacks

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from drumline.contract.evidence import RaisedException

SIGNAL = int(getattr(signal, "SIGRTMAX", 64)) - 5
FILE = "%s.%d.in-flight"
"""Of the file of the notes and the process id. The hook has both too: it cannot import this."""

_ANSWER_TIMEOUT_S = 0.1
_POLL_INTERVAL_S = 0.002
_MAX_BYTES = 1 << 16
_MAX_PROCESSES = 8
_MAX_CHAIN = 8
_KINDS = {"type": str, "message": str, "file": str, "line": int, "function": str}


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
                os.unlink(FILE % (notes, one))
            with contextlib.suppress(OSError):
                kernel.signal_thread(one, one, SIGNAL)
                asked.append(one)
    return asked


def read_answers(asked: Iterable[int], notes: str, cwd: str) -> Optional[list[RaisedException]]:
    """
    Return the exceptions as type, message, file, line and function, the latest first and then what it came of.

    Empty: there is none. None: nobody has answered.
    """
    answers = [_read_answer(FILE % (notes, pid), cwd) for pid in asked]
    known = [one for one in answers if one is not None]
    return max(known, key=len) if known else None


def _handles_request(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/status", errors="replace") as file:
            caught = re.search(r"^SigCgt:\s*([0-9a-f]+)", file.read(), re.MULTILINE)
    except OSError:
        return False
    return caught is not None and bool(int(caught[1], 16) >> (SIGNAL - 1) & 1) and stacks.has_hook(pid)


def _read_answer(path: str, cwd: str) -> Optional[list[RaisedException]]:
    """Read an answer; the job may have made anything of that file."""
    try:
        told = json.loads(read_plain(path, _MAX_BYTES))
    except (ValueError, RecursionError):
        return None
    if not isinstance(told, list):
        return None
    return [_show_exception(one, cwd) for one in told[:_MAX_CHAIN] if _is_whole(one)]


def _is_whole(one: Any) -> bool:
    return isinstance(one, dict) and all(isinstance(one.get(name), kind) for name, kind in _KINDS.items())


def _show_exception(one: dict[str, Any], cwd: str) -> RaisedException:
    said = next((line for line in str(one["message"]).splitlines() if line.strip()), "")
    return {
        "type": failures.make_printable(one["type"], 200),
        "message": failures.make_printable(said.strip(), 300),
        "file": failures.show_path(one["file"], cwd),
        "line": min(one["line"], 10**9),
        "function": failures.make_printable(one["function"], 200),
    }
