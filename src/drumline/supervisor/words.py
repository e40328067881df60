"""What is said about the end of a rank, for a person at 2 a.m."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from drumline.contract.events import RankExited

_MEANINGS = {
    "SIGKILL": "killed from outside; the kernel does that when memory runs out",
    "SIGSEGV": "it touched memory that is not its own",
    "SIGBUS": "often a full /dev/shm",
    "SIGABRT": "it gave up by itself, often a failed check in native code",
    "SIGFPE": "an arithmetic error in native code",
    "SIGILL": "an instruction that this processor does not have",
    "SIGXCPU": "its CPU time limit was reached",
    "SIGXFSZ": "its file size limit was reached",
}


def failed(label: str, exit_: RankExited) -> str:
    """How a rank ended, without what came of it: ``rank 3 on node 1 exited with code 1``."""
    who = f"rank {label} on node {exit_.node}"
    if exit_.error:
        return f"{who} did not start: {exit_.error}"
    if exit_.signal:
        return f"{who} was ended by {signal_words(exit_.signal)}"
    code = exit_.code or 0
    if code == 127:
        return f"{who} exited with code 127 (a command was not found)"
    if code == 126:
        return f"{who} exited with code 126 (a command could not be executed)"
    if 128 < code < 128 + 65:
        return f"{who} exited with code {code} (a command in it was ended by {signal_words(code - 128)})"
    return f"{who} exited with code {code}"


def completed(awaited: Sequence[str], stopped: Sequence[str]) -> str:
    """
    Which ranks ended by themselves and which were then ended by us, which is no failure; both by label.

    >>> completed(["0", "1", "2", "3"], [])
    'all 4 ranks ended with exit code 0'
    >>> completed(["chief"], ["0", "1", "ps0"])
    'the chief ended with exit code 0; the 2 workers and the parameter server were then stopped'
    """
    said = f"{_ended(awaited, stopped)} ended with exit code 0"
    if not stopped:
        return said
    verb = "was" if len(stopped) == 1 else "were"
    return f"{said}; {_listing(stopped)} {verb} then stopped"


def _ended(awaited: Sequence[str], stopped: Sequence[str]) -> str:
    if any(not label.isdigit() for label in awaited):
        return _listing(sorted(awaited, key=str.isdigit))
    roles = {_role(label) for label in stopped}
    what = "worker" if roles - {"Ray node"} else "rank"
    return f"its only {what}" if len(awaited) == 1 else f"all {len(awaited)} {what}s"


def _listing(labels: Sequence[str]) -> str:
    """``the chief and the 2 workers``, in the order of the labels."""
    roles = [_role(label) for label in labels]
    said = []
    for role in dict.fromkeys(roles):
        count = roles.count(role)
        said.append(f"the {role}" if count == 1 else f"the {count} {role}s")
    return " and ".join((", ".join(said[:-1]), said[-1])) if len(said) > 1 else said[0]


def _role(label: str) -> str:
    """What a person calls a rank of that label."""
    role = label.rstrip("0123456789")
    return {"": "worker", "ps": "parameter server", "ray": "Ray node"}.get(role, role)


def signal_words(number: int) -> str:
    """``signal 9 (SIGKILL: killed from outside; ...)``."""
    try:
        name = signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
    meaning = _MEANINGS.get(name)
    return f"signal {number} ({name}: {meaning})" if meaning else f"signal {number} ({name})"


def others_stopped(count: int) -> str:
    """The second half of a failure's sentence; empty when there are no others."""
    if count == 0:
        return ""
    return (
        "; the other rank was then stopped" if count == 1 else f"; the other {count} ranks were then stopped"
    )


def helper_ended(what: str, how: dict[str, Any]) -> str:
    """How a program that is no rank ended: ``mpirun exited with code 213``."""
    if how["error"]:
        return f"{what} did not start: {how['error']}"
    return (
        f"{what} was ended by {signal_words(how['signal'])}"
        if how["signal"]
        else f"{what} exited with code {how['code']}"
    )


def last_words(log: str) -> str:
    """How a launcher's explanation begins, and where all of it is; empty when it said nothing."""
    try:
        with open(log, "rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - 16384))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    said = [line.strip(" =") for line in lines if line.strip(" -=*")]
    return f" ({said[0][:200]} ... see {log})" if said else ""
