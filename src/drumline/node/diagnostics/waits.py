"""
The waits of a process: whether it spins, as MPI, NCCL and CUDA do in a wait, and the collective that it is in.

All of it is circumstantial: the supervisor decides what it means (``supervisor/watching/hang.py``).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from typing import TYPE_CHECKING, Any, Optional

from drumline.contract import installed_mpi
from drumline.contract.folder import read_plain
from drumline.contract.record import NamedTuple
from drumline.linux import cgroups, process_usage
from drumline.node.diagnostics import failures

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


_SPINNING_THREADS = ("NCCL", "pt_nccl")
"""Begin the names of the threads that move NCCL's data, or watch it. Source: nccl, src/proxy.cc; PyTorch."""

_GPU = re.compile(r"/dev/(nvidia\d+|kfd|dri/renderD\d+)$")
_MAX_MAPS_BYTES = 4 << 20
_MAX_SOURCE_BYTES = 2 << 20

_MPI_CALL = re.compile(
    r"\.(barrier|bcast|i?reduce(_scatter(_block)?)?|allreduce|i?gatherv?|allgatherv?|i?scatterv?|alltoall[vw]?"
    r"|scan|exscan|s?send|recv|sendrecv(_replace)?|m?probe|wait(all|any|some)?|fence)\s*\(",
    re.IGNORECASE,
)
"""
Methods of mpi4py that wait for other ranks. They are native, so the line of the program is all that names them.
Source: https://mpi4py.readthedocs.io/en/stable/overview.html
"""


class Spin(NamedTuple):
    """
    A spin of a process in a library. ``library``: the one that may spin in this process, ``MPI``, ``GPU`` or empty.
    ``call``: of MPI, on its line.
    """

    cpu_s: float
    """Used so far by the threads that may be spinning."""

    library: str
    call: str


def measure_spin(pid: int, frame: Sequence[Any] | None, cwd: str, *, joins: bool) -> Spin:
    """
    Return what is known of a process whose stack is known. Costs a few milliseconds.

    ``frame``: the innermost, as file, line, function. ``joins``: its main thread waits for another, whose stack it is.
    """
    threads: list[int] = []
    with contextlib.suppress(OSError):
        threads = [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    stats = [
        process_usage.read_thread_stat(pid, thread)
        for thread in threads
        if joins
        or thread == pid
        or cgroups.read_text(f"/proc/{pid}/task/{thread}/comm").startswith(_SPINNING_THREADS)
    ]
    cpu_s = sum(stat.own for stat in stats if stat) / process_usage.TICKS_PER_S
    library = "MPI" if list_mpi_libraries(pid) else "GPU" if _has_gpu(pid) else ""
    found = _MPI_CALL.search(_read_source_line(frame, cwd)) if library == "MPI" and frame else None
    return Spin(cpu_s, library, found[1] if found else "")


def _has_gpu(pid: int) -> bool:
    folder = f"/proc/{pid}/fd"
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            with contextlib.suppress(OSError):
                if _GPU.match(os.readlink(f"{folder}/{name}")):
                    return True
    return False


def list_mpi_libraries(pid: int) -> set[str]:
    """Return the names of the libraries of an MPI that a process has loaded, such as ``libmpi.so.40.30.4``."""
    try:
        with open(f"/proc/{pid}/maps", "rb") as file:
            return {name.decode() for name in installed_mpi.LIBRARY.findall(file.read(_MAX_MAPS_BYTES))}
    except OSError:
        return set()


def _read_source_line(frame: Sequence[Any], cwd: str) -> str:
    """Return the line of the program, where its file can still be read."""
    file, number, _ = frame
    path = os.path.join(cwd, str(file))
    # A program may be a pipe or a device, which reading would use up or wait for.
    if not os.path.isfile(path):
        return ""
    try:
        with open(path, errors="replace") as source:
            lines = source.read(_MAX_SOURCE_BYTES).split("\n")
    except OSError:
        return ""
    return lines[int(number) - 1] if 0 < int(number) <= len(lines) else ""


# The collective of a process, by PyTorch's flight recorder, where the job uses that (``TORCH_FR_BUFFER_SIZE``).


PIPE = "%s.%d.ask"
RECORD = "%s.%d.record"
"""Of the file of the notes and the process id. The hook has both too: it cannot import this."""

_ANSWER_TIMEOUT_S = 0.5
_POLL_INTERVAL_S = 0.002
_MAX_BYTES = 16 << 20


class Collective(NamedTuple):
    """A collective of a process. ``group``: empty for that of all ranks."""

    name: str
    seq: int
    group: str
    is_waiting: bool


def read_collectives(asked: Iterable[tuple[str, int]]) -> dict[int, Collective]:
    """
    Return the collective of each of these processes that answers.

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
    collectives: dict[int, Collective] = {}
    deadline = time.monotonic() + _ANSWER_TIMEOUT_S
    while waiting and time.monotonic() < deadline:
        time.sleep(_POLL_INTERVAL_S)
        for pid, path in list(waiting.items()):
            if os.path.exists(path):
                del waiting[pid]
                entry = _find_current(read_plain(path, _MAX_BYTES))
                # The next one comes when it is asked for.
                with contextlib.suppress(OSError):
                    os.unlink(path)
                if entry is not None:
                    collectives[pid] = entry
    return collectives


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


def _find_current(record: bytes) -> Optional[Collective]:
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
        return Collective(
            failures.make_printable(str(current["profiling_name"]).rpartition(":")[2], 100),
            int(current["collective_seq_id"]),
            "" if group in ("default_pg", "undefined") else failures.make_printable(str(group), 100),
            is_waiting=not current["retired"],
        )
    except (ValueError, LookupError, TypeError, ArithmeticError, AttributeError, RecursionError):
        return None  # It is the job's own text.
