"""
Which of a rank's exceptions tells why it failed: of those that came of each other, and of those of its processes.

The exception that ends a program is often a consequence, such as that of a barrier in ``finally`` after the one that
counts. A launcher inside a rank, such as torchrun, fails because one of the processes that it started did.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from drumline.supervisor import cut_off

if TYPE_CHECKING:
    from typing import Any

_HIDES_ANOTHER = re.compile(
    r"DataLoader worker \(pid\(s\) [\d, ]+\) exited unexpectedly"
    # PyTorch's writer of archives, which is closed after a write has failed.
    r"|inline_container\.cc.*unexpected pos \d+ vs \d+"
)
_NAMES_ITS_END = re.compile(r"terminated with|died with")
"""How a launcher says with which signal or code a process has ended: of multiprocessing and subprocess."""

_SIGKILL, _SIGTERM = 9, 15


def settle(evidence: dict[str, Any], at: float) -> None:
    """
    Let ``failure`` be the exception that tells most; what else was known of the rank's exceptions goes.

    ``at``: when the rank ended. ``after`` in the failure is what says that its rank was cut off once that had happened;
    ``inner`` is a process that failed without an exception, ``inner_rank`` the one that a launcher gave its number to.
    """
    inner = [unchained(one) for one in evidence.pop("inner", [])]
    launcher, reported = evidence.pop("launcher", None), evidence.pop("reported", [])
    failure = evidence.get("failure")
    if inner or (reported and (failure is None or _is_elastic(failure))):
        evidence["failure"] = _of_launcher(launcher or failure, inner, reported, at)
    elif failure:
        evidence["failure"] = unchained(failure)
    for name in ("pid", "saved_to"):
        evidence.get("failure", {}).pop(name, None)


def unchained(failure: dict[str, Any]) -> dict[str, Any]:
    """
    The last exception counts, as in Python's traceback, unless it only hides another.

    Of one that was cut off while another exception was being handled, that other one counts; one that was raised
    because the rank was cut off, counts as cut off.
    """
    rest = {name: value for name, value in failure.items() if name != "chain"}
    chain = [rest, *failure.get("chain", [])]
    hiding = [bool(cut_off.of(one) or _HIDES_ANOTHER.search(one["message"])) for one in chain]
    if hiding[-1]:
        gone = cut_off.of(chain[-1])
        return {**rest, "because": gone} if gone and not hiding[0] else rest
    if not any(hiding):
        return rest
    last = len(hiding) - 1 - hiding[::-1].index(True)
    after = next((gone for one in chain[: last + 1] if (gone := cut_off.of(one))), "")
    return {**rest, **chain[last + 1], **({"after": after} if after else {})}


def _is_elastic(failure: dict[str, Any]) -> bool:
    return str(failure["type"]).rpartition(".")[2] == "ChildFailedError"


def _of_launcher(
    launcher: dict[str, Any] | None, inner: list[dict[str, Any]], reported: list[dict[str, Any]], at: float
) -> dict[str, Any]:
    """``launcher``: its own exception. ``reported``: the failures that it lists, that which it saw first in front."""
    ranks = {one["pid"]: one["rank"] for one in reported}
    # Not those of processes before a restart, nor what a process of one of them failed of.
    inner = [one for one in inner if one["pid"] in ranks] or inner
    noted = {one["pid"] for one in inner}
    silent = [one for one in reported if one["pid"] not in noted and one["signal"] != _SIGTERM]
    began = [one for one in inner if not cut_off.of(one)]
    if silent and (not began or (silent[0] is reported[0] and silent[0]["signal"] == _SIGKILL)):
        # Nobody knows when it ended, but that it was before the others missed it.
        earliest = min([one["at"] for one in (*inner, launcher) if one], default=at)
        nothing = {"type": "", "message": "", "file": "", "line": 0, "function": ""}
        return {**nothing, "at": earliest, "inner": silent[0]}
    if not began and launcher and (not inner or _NAMES_ITS_END.search(launcher["message"])):
        return unchained(launcher)
    chosen = min(began or inner, key=lambda one: float(one["at"]))
    return {**chosen, "inner_rank": ranks[chosen["pid"]]} if chosen["pid"] in ranks else chosen
