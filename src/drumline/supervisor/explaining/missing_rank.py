"""
The rank that began, where every failure so far is a consequence: it is gone or late, and has not failed itself.

A failure is a consequence if it only reports a lost peer.

The ranks that are left are asked where they are and what they are failing of before they are told to end, and given a
moment: one may end well while others still wait for it, another still clean up after an exception.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from drumline.contract.record import NamedTuple, compile_late
from drumline.supervisor.explaining import exit_messages

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from drumline.contract.events import RankExited
    from drumline.contract.evidence import RaisedException, RecordedEvidence, RecordedFailure


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


SETTLE_S = 1.0
"""From the first rank that was cut off until the others are told to end, if nothing explains it sooner."""

ELSEWHERE_S = 3.5
"""The same, where a rank is in no collective: it may be about to end."""

CLEANING_S = 5.0
"""The same, where a rank has an exception on its way out, which is known from then on."""

ASK_AGAIN_S = 0.4

_CONTROL_FLOW = (
    "StopIteration",
    "StopAsyncIteration",
    "GeneratorExit",
    "ImportError",
    "ModuleNotFoundError",
    "Empty",
)
"""Exceptions that programs handle while they go on."""

_NUMBER = compile_late(r"-?[0-9]{1,18}")

_SAME_S = 0.5
"""Between an end and a lost connection that it explains, where that connection may have been to somebody else."""


class RunningRank(NamedTuple):
    """
    A rank that has not failed while others were cut off. ``places``: as of ``hang.list_places``. ``in_flight``: as of
    ``in_flight.read_in_flight``.
    """

    places: tuple[str, ...]
    in_flight: list[RaisedException] | None

    @property
    def waits(self) -> bool:
        """Return whether the rank is in a collective, as those are that have no part in the failure."""
        return any(place.startswith("wait in ") for place in self.places)

    def is_at(self, failed: RankExited) -> bool:
        """Return whether the rank is at the line at which that rank has failed."""
        failure = (failed.evidence or {}).get("failure")
        if not failure or not failure.get("file"):
            return self.waits
        return any(f"{failure['file']}:{failure['line']}" in place for place in self.places)

    @property
    def failure(self) -> RaisedException | None:
        """Return what the rank is failing of: the latest exception that does not tell of a peer."""
        for one in self.in_flight or ():
            if not find_in_exception(one) and str(one["type"]).rpartition(".")[2] not in _CONTROL_FLOW:
                return one
        return None


def merge_answers(before: RunningRank | None, now: RunningRank) -> RunningRank:
    """Combine two answers: where the rank was at first, and the last answer about its exceptions."""
    if before is None:
        return now
    return RunningRank(
        before.places or now.places, before.in_flight if now.in_flight is None else now.in_flight
    )


def choose_patience_s(where: Iterable[RunningRank], first: RankExited) -> float:
    """
    Choose how many seconds after the end of ``first`` the others are told to end. ``where``: of those that are left.
    """
    where = list(where)
    if any(one.failure for one in where):
        return CLEANING_S
    if gave_up_waiting(first) or may_be_other_connection(first) or all(one.waits for one in where):
        return SETTLE_S
    return ELSEWHERE_S


def find_failing_rank(
    exits: Mapping[int, RankExited], where: Mapping[int, RunningRank], first: RankExited
) -> RankExited | None:
    """Find the rank that was told to end while it cleaned up after an exception, and give it that as its failure."""
    for rank, one in sorted(where.items()):
        exit_, failure = exits.get(rank), one.failure
        if exit_ is None or failure is None or not was_told(exit_):
            continue
        evidence: RecordedEvidence = {**(exit_.evidence or {}), "told": None}
        if failure["type"] != "SystemExit":
            evidence["failure"] = cast("RecordedFailure", {**failure, "time": find_failure_time(first)})
            return exit_._replace(code=exit_.code or 1, signal=None, evidence=evidence)
        evidence.pop("failure", None)
        evidence["left"] = find_failure_time(first)
        said = failure["message"]
        # What the kernel keeps of it.
        code = int(said) & 0xFF if _NUMBER.fullmatch(said) else 1
        return exit_._replace(code=code, signal=None, evidence=evidence)
    return None


class LateRanks(NamedTuple):
    """
    Ranks that kept others waiting. ``gave_up``: the first to wait no longer. ``places``: by rank where each late one
    was, if that is known. ``node``: of the first of these.
    """

    gave_up: RankExited
    places: dict[int, str]
    node: int


def find_late_ranks(
    exits: Mapping[int, RankExited], where: Mapping[int, RunningRank], own: Sequence[RankExited]
) -> LateRanks | None:
    """
    Find the ranks that kept the others waiting until they gave up.

    These are the ranks that they name, else those that were elsewhere when looked at, else the one that waited at
    another line than all others. ``own``: the failures of which each tells of a peer.
    """
    first = min(own, key=find_failure_time)
    waited = [
        one
        for one in own
        if gave_up_waiting(one) and find_failure_time(one) <= find_failure_time(first) + _SAME_S
    ]
    if not waited:
        return None
    gave_up = min(waited, key=lambda one: (not read_named_ranks(one), find_failure_time(one)))
    named = {rank for one in waited for rank in read_named_ranks(one) if rank in exits}
    elsewhere = {
        rank
        for rank, one in where.items()
        if one.places and not one.is_at(gave_up) and _was_running(exits.get(rank), gave_up)
    }
    ranks = named or elsewhere or _find_odd_rank(own)
    others = [one for one in waited if one.rank not in ranks]
    if not ranks or not others:
        return None
    gave_up = gave_up if gave_up in others else min(others, key=find_failure_time)
    places = {rank: _describe_place(where.get(rank), exits[rank]) for rank in sorted(ranks)}
    return LateRanks(gave_up, places, exits[min(ranks)].node)


def _was_running(exit_: RankExited | None, gave_up: RankExited) -> bool:
    """Return whether a rank had not failed when others had; its own failure may be to come."""
    if exit_ is None:
        return False
    if not find_lost_peer(exit_):
        return was_told(exit_)
    return not gave_up_waiting(exit_) and find_failure_time(exit_) > find_failure_time(gave_up) + _SAME_S


def _find_odd_rank(own: Sequence[RankExited]) -> set[int]:
    """Find the rank that waited at another line of the program than all others, of which there are several."""
    lines: dict[tuple[Any, Any], set[int]] = {}
    for one in own:
        failure = (one.evidence or {}).get("failure")
        line = (failure["file"], failure["line"]) if failure else (None, None)
        lines.setdefault(line, set()).add(one.rank)
    odd = min(lines.values(), key=len)
    return odd if len(lines) == 2 and len(odd) == 1 and len(own) > 2 else set()


def _describe_place(where: RunningRank | None, exit_: RankExited) -> str:
    """Describe the place of a rank: ``was in load_batch (data.py:31)``; empty where that is not known."""
    if where and where.places:
        verb, _, rest = where.places[0].partition(" ")
        return f"{'waited' if verb == 'wait' else 'was'} {rest}"
    place = exit_messages.format_place((exit_.evidence or {}).get("failure") or {})
    return f"waited{place}" if place else ""


def find_early_end(exits: Mapping[int, RankExited], first: RankExited) -> RankExited | None:
    """
    Find the rank that the cut off ranks missed, though it ended well.

    It is the last to do so before the first of them failed, else the next. Its connections close before its end is
    seen, and much before that where it has destroyed its process group.
    """
    # Who ended is not there any more; "refused" is said of one that never was.
    if "refused" in find_lost_peer(first).lower():
        return None
    failed_at = find_failure_time(first)
    done = [one for one in exits.values() if one.code == 0 and not was_told(one)]
    before = [one for one in done if find_failure_time(one) <= failed_at]
    if before:
        return max(before, key=find_failure_time)
    if may_be_other_connection(first):
        done = [one for one in done if find_failure_time(one) <= failed_at + _SAME_S]
    return min(done, key=find_failure_time) if done else None


def find_failure_time(exit_: RankExited) -> float:
    """Return when the rank raised or left, else when its process had ended, which may be long after."""
    evidence = exit_.evidence or {}
    failure = evidence.get("failure")
    return float(failure["time"] if failure else evidence.get("left", exit_.time))


def was_told(exit_: RankExited) -> bool:
    """Return whether the rank was told to end before it did."""
    told = (exit_.evidence or {}).get("told")
    return told is not None and find_failure_time(exit_) > told
