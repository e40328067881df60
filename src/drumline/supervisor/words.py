"""What is said about the end of a rank, for a person at 2 a.m."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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


def completed(rank_count: int, server_count: int) -> str:
    """``all 4 ranks ended with exit code 0``. Parameter servers are ended by us, which is no failure."""
    said = "its only rank" if rank_count == 1 else f"all {rank_count} ranks"
    if server_count:
        said = "its only worker" if rank_count == 1 else f"all {rank_count} workers"
    said += " ended with exit code 0"
    if server_count == 1:
        return said + "; the parameter server was then stopped"
    return said + (f"; the {server_count} parameter servers were then stopped" if server_count else "")


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
