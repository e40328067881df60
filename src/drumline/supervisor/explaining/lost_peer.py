"""Ranks that failed because a peer was gone or late, by what they said: then another one began."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from drumline.contract.record import compile_late

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from drumline.contract.events import RankExited

_TIMED_OUT = (
    r"[Tt]imed out waiting|[Ss]ocket [Tt]imeout|wait timeout"
    r"|Timed out after \d+ seconds waiting for clients|The client socket has timed out"
    r"|[Ww]atchdog caught collective operation timeout|[Cc]ollective .{1,60}timed out"
    r"|Application timeout caused pair closure|failed to pass monitoredBarrier|successfully reached monitoredBarrier"
)
_CUT_OFF = compile_late(
    r"Connection closed by peer|Connection reset by peer|Broken pipe|Connection refused|Connection aborted"
    r"|[Ss]ocket closed|closed the connection|Connection was likely closed|remote process exited|ncclRemoteError"
    r"|failed to connect to all addresses|failed to recv|Failed to recv"
    r"|Lost connection|peer (?:is )?gone|The client socket has failed|MPI_ERR_PROC_FAILED"
    # PyTorch's store says so where a signal comes while it waits: ours, to ranks that are left.
    r"|^Interrupted system call|heartbeat timeout|[Pp]eer .{1,40}disconnected|" + _TIMED_OUT
)
_GAVE_UP = compile_late(_TIMED_OUT)
_NAMED = compile_late(r"Ranks? (\d[\d, ]*) ?failed to pass monitoredBarrier")
"""Source: torch/csrc/distributed/c10d/ProcessGroupGloo.cpp, monitoredBarrier."""

_TYPES = (
    "ConnectionResetError",
    "BrokenPipeError",
    "ConnectionAbortedError",
    "ConnectionRefusedError",
    "HorovodInternalError",
)


_OPEN_MPI_CODE = 14
"""
With which Open MPI ends a rank whose connection to a peer was closed; what it says of that goes to its launcher.
Source: mpi.h, MPI_ERR_UNKNOWN; pml_ob1.c, mca_pml_ob1_error_handler.
"""


def explain_mpi_code(code: int | None) -> str:
    """Explain what the exit code of a rank that an MPI's launcher started says of a peer; empty for nothing."""
    return "MPI lost a peer" if code == _OPEN_MPI_CODE else ""


_ABORT = compile_late(r"application called MPI_Abort\(.{1,100}, (-?\d{1,10})\) - process (\d{1,9})$")
"""
What MPICH and its kin say of it. Their launcher then ends all ranks, this one as well, so its end does not tell.
Source: MPICH, src/mpi/init/abort.c.
"""


def find_abort(exits: Iterable[RankExited]) -> RankExited | None:
    """Return the end of a rank that called MPI_Abort and was cut off then, as if it had ended by itself."""
    for one in exits:
        found = _ABORT.search((one.evidence or {}).get("said", ""))
        if found and int(found[2]) == one.rank and one.signal:
            code = int(found[1]) & 0xFF or 1
            return one._replace(code=code, signal=None, evidence={**(one.evidence or {}), "told": None})
    return None


def find_lost_peer(exit_: RankExited) -> str:
    """
    Find the words that say that a peer was gone or late: ``Connection closed by peer``; empty when there are none.
    """
    failure = (exit_.evidence or {}).get("failure")
    if failure:
        return find_in_exception(failure)
    if exit_.signal in (9, 15):
        return ""
    evidence = exit_.evidence or {}
    if evidence.get("lost_peer"):
        return str(evidence["lost_peer"])
    found = _CUT_OFF.search(f"{evidence.get('said', '')} {evidence.get('gave_up', '')}")
    return found[0] if found else ""


def find_in_exception(failure: Mapping[str, Any]) -> str:
    """Find those words in an exception's type and message, or in one that it came of (``exit_evidence.unchain``)."""
    if failure.get("because"):
        return str(failure["because"])
    kind = str(failure["type"]).rpartition(".")[2]
    return _find_cut_off(str(failure["message"])) or (kind if kind in _TYPES else "")


@lru_cache(maxsize=64)
def _find_cut_off(message: str) -> str:
    """Return the words in a message; the ranks of a large job say the same, and each is asked several times."""
    found = _CUT_OFF.search(message)
    return found[0] if found else ""


def may_be_other_connection(exit_: RankExited) -> bool:
    """Return whether the connection may have been to another, such as a service that the program downloads from."""
    failure = (exit_.evidence or {}).get("failure")
    return failure is not None and str(failure["type"]).rpartition(".")[2] in _TYPES


def gave_up_waiting(exit_: RankExited) -> bool:
    """Return whether a rank's end says that a peer was late, and not that it was gone."""
    return _GAVE_UP.search(find_lost_peer(exit_)) is not None


def read_named_ranks(exit_: RankExited) -> list[int]:
    """Return the ranks that it says it has waited for in vain, by their numbers in its process group."""
    failure = (exit_.evidence or {}).get("failure")
    found = _NAMED.search(failure["message"]) if failure else None
    return [int(rank) for rank in re.findall(r"\d+", found[1])] if found else []
