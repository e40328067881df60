"""
The collective of a process, by PyTorch's flight recorder, where the job uses that (``TORCH_FR_BUFFER_SIZE``).

The hook (``hook/sitecustomize.py``) then has a thread that reads from a pipe named after the file of its notes and its
process id, and writes the record to a file beside that. It answers also while the program waits in native code.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from typing import TYPE_CHECKING, Any, Optional

from drumline.node.diagnostics import failures

if TYPE_CHECKING:
    from collections.abc import Iterable

PIPE = "%s.%d.ask"
RECORD = "%s.%d.record"
"""Of the file of the notes and the process id. The hook has both too: it cannot import this."""

_ANSWER_TIMEOUT_S = 0.5
_POLL_INTERVAL_S = 0.002
_MAX_BYTES = 16 << 20


def read_collectives(asked: Iterable[tuple[str, int]]) -> dict[int, dict[str, Any]]:
    """
    Return for each of these processes that answers: name, seq, group (empty for that of all ranks), is_waiting.

    ``asked``: the file of the notes, and the process id. Blocks, for half a second at most.
    """
    waiting = {}
    for notes, pid in asked:
        if not notes:
            continue
        path = RECORD % (notes, pid)
        # An answer that came too late for the last question.
        with contextlib.suppress(OSError):
            os.unlink(path)
        if _request_record(PIPE % (notes, pid)):
            waiting[pid] = path
    found: dict[int, dict[str, Any]] = {}
    deadline = time.monotonic() + _ANSWER_TIMEOUT_S
    while waiting and time.monotonic() < deadline:
        time.sleep(_POLL_INTERVAL_S)
        for pid, path in list(waiting.items()):
            if os.path.exists(path):
                del waiting[pid]
                entry = _find_current(_read_record(path))
                if entry is not None:
                    found[pid] = entry
    return found


def _request_record(pipe: str) -> bool:
    """Request a record; False when nobody listens, as where the recorder is not used."""
    try:
        descriptor = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.write(descriptor, b"?") == 1
    except OSError:
        return False
    finally:
        os.close(descriptor)


def _read_record(path: str) -> bytes:
    """Read a record and remove its file; the next one comes when it is asked for."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return b""
    with contextlib.suppress(OSError), open(descriptor, "rb") as file:
        os.unlink(path)
        return file.read(_MAX_BYTES)
    return b""


def _find_current(record: bytes) -> Optional[dict[str, Any]]:
    """
    Return the first collective that has not ended, else the last one.

    Source of the names: torch/csrc/distributed/c10d/FlightRecorder.hpp, record format 2.
    """
    try:
        entries = [entry for entry in json.loads(record)["entries"] if not entry["is_p2p"]]
        if not entries:
            return None
        entries.sort(key=lambda entry: int(entry["record_id"]))
        current = next((entry for entry in entries if not entry["retired"]), entries[-1])
        _, group = current["process_group"]
        return {
            "name": failures.make_printable(str(current["profiling_name"]).rpartition(":")[2], 100),
            "seq": int(current["collective_seq_id"]),
            "group": "" if group in ("default_pg", "undefined") else failures.make_printable(str(group), 100),
            "is_waiting": not current["retired"],
        }
    except (ValueError, LookupError, TypeError, ArithmeticError, AttributeError, RecursionError):
        return None  # It is the job's own text.
