"""
The evidence of a rank's end in the event ``RankExited``, and the choice of the exception that tells why it failed.

The exception that ends a program is often a consequence, such as that of a barrier in ``finally`` after the one that
counts. A launcher inside a rank, such as torchrun, fails because one of the processes that it started did.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from drumline.contract.record import compile_late
from drumline.supervisor.explaining import missing_rank

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from drumline.contract.evidence import (
        ExitEvidence,
        NotedException,
        RaisedException,
        RecordedEvidence,
        RecordedFailure,
        ReportedProcess,
    )
    from drumline.contract.messages import RankEnded

    class ChosenFailure(RecordedFailure):
        """A failure with the time by the rank's machine."""

        at: float
        pid: int


_HIDES_ANOTHER = compile_late(
    r"DataLoader worker \(pid\(s\) [\d, ]+\) exited unexpectedly"
    # PyTorch's writer of archives, which is closed after a write has failed.
    r"|inline_container\.cc.*unexpected pos \d+ vs \d+"
)
_LOADER_SOCKET_CLOSED = ("EOFError", "FileNotFoundError")
"""What a program may meet at the socket of a process of PyTorch's loader that has ended. Others: ``lost_peer``."""

_ENDED_WORKER = compile_late(r"DataLoader worker \(pid \d+\) (?:is killed by signal|exited unexpectedly)")
_NAMES_ITS_END = compile_late(r"terminated with|died with")
"""How a launcher says with which signal or code a process has ended: of multiprocessing and subprocess."""

_SIGKILL, _SIGTERM = 9, 15


def record_evidence(ended: RankEnded, wall: Callable[[float], float]) -> RecordedEvidence:
    """Return the evidence for the event of a rank's end; ``wall`` makes seconds since 1970 of the rank's times."""
    evidence = ended.evidence
    if evidence is None:
        return {}
    recorded = cast("RecordedEvidence", {**(evidence.facts or {})})
    if evidence.left_at is not None:
        recorded["left"] = wall(evidence.left_at)
    if evidence.collectives is not None:
        recorded["collectives"], recorded["world"] = evidence.collectives, evidence.world
    if evidence.terminated_at is not None and evidence.told_at is None:
        recorded["terminated"] = wall(evidence.terminated_at)
    if evidence.told_at is not None or ended.code != 0:
        recorded["told"] = None if evidence.told_at is None else wall(evidence.told_at)
    failure = choose_failure(evidence, ended.at)
    if failure:
        rest = {name: value for name, value in failure.items() if name not in ("at", "pid", "saved_to")}
        recorded["failure"] = cast("RecordedFailure", {**rest, "time": wall(failure["at"])})
    return recorded


def choose_failure(evidence: ExitEvidence, at: float) -> ChosenFailure | None:
    """
    Return the exception that tells most; None where there is none.

    ``at``: when the rank ended. ``after`` in the failure is what says that its rank was cut off once that had happened;
    ``inner`` is a process that failed without an exception, ``inner_rank`` the one that a launcher gave its number to.
    """
    inner = [unchain(one) for one in evidence.inner]
    failure = evidence.failure
    is_of_launcher = failure is None or str(failure["type"]).rpartition(".")[2] == "ChildFailedError"
    if inner or (evidence.reported and is_of_launcher):
        return _choose_in_launcher(evidence.launcher or failure, inner, evidence.reported, at)
    return unchain(failure) if failure else None


def unchain(failure: NotedException) -> ChosenFailure:
    """
    Choose among chained exceptions: the last one counts, as in Python's traceback, unless it only hides another.

    Of one that was cut off while another exception was being handled, that other one counts; one that was raised
    because the rank was cut off, counts as cut off.
    """
    rest = cast("ChosenFailure", {name: value for name, value in failure.items() if name != "chain"})
    chain: list[RaisedException] = [failure, *failure.get("chain", [])]
    hiding = [_hides_another(one, chain[index + 1 :]) for index, one in enumerate(chain)]
    if hiding[-1]:
        gone = missing_rank.find_in_exception(chain[-1])
        if gone and not hiding[0]:
            rest["because"] = gone
        return rest
    if not any(hiding):
        return rest
    last = len(hiding) - 1 - hiding[::-1].index(True)
    after = next((gone for one in chain[: last + 1] if (gone := missing_rank.find_in_exception(one))), "")
    rest.update(cast("ChosenFailure", chain[last + 1]))
    if after:
        rest["after"] = after
    return rest


def _hides_another(one: RaisedException, before: Sequence[RaisedException]) -> bool:
    """Return whether an exception only follows from one of those that came before it."""
    if missing_rank.find_in_exception(one) or _HIDES_ANOTHER.search(one["message"]):
        return True
    return one["type"] in _LOADER_SOCKET_CLOSED and any(
        _ENDED_WORKER.search(cause["message"]) for cause in before
    )


def _choose_in_launcher(
    launcher: NotedException | None,
    inner: list[ChosenFailure],
    reported: Sequence[ReportedProcess],
    at: float,
) -> ChosenFailure:
    """
    Choose a failure. ``launcher``: its own exception. ``reported``: the failures that it lists, the first seen in
    front.
    """
    ranks = {one["pid"]: one["rank"] for one in reported}
    # Not those of processes before a restart, nor what a process of one of them failed of.
    inner = [one for one in inner if one["pid"] in ranks] or inner
    noted = {one["pid"] for one in inner}
    silent = [one for one in reported if one["pid"] not in noted and one["signal"] != _SIGTERM]
    began = [one for one in inner if not missing_rank.find_in_exception(one)]
    if silent and (not began or (silent[0] is reported[0] and silent[0]["signal"] == _SIGKILL)):
        # Nobody knows when it ended, but that it was before the others missed it.
        earliest = min([one["at"] for one in (*inner, launcher) if one], default=at)
        nothing: RaisedException = {"type": "", "message": "", "file": "", "line": 0, "function": ""}
        return cast("ChosenFailure", {**nothing, "at": earliest, "inner": silent[0]})
    if not began and launcher and (not inner or _NAMES_ITS_END.search(launcher["message"])):
        return unchain(launcher)
    chosen = min(began or inner, key=lambda one: one["at"]).copy()
    if chosen["pid"] in ranks:
        chosen["inner_rank"] = ranks[chosen["pid"]]
    return chosen
