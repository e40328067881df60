"""Who is sent which signal, and how the job may end then."""

import random
import re
import signal
import time
from pathlib import Path
from typing import Any, NamedTuple

from chaos import BEHAVIOURS, FINAL, Trial, wait_a_moment

_ANYTIME_S = 0.4
_LATEST_S = 20.0
_STOPPED_S = 0.2

CANCELED = r"canceled by "
BY_ITSELF = r"all 2 ranks ended with exit code 0|rank [01] .*: exit code 3"


class Cell(NamedTuple):
    """``reason``: what that of the job then begins with, besides a cancel and its own end."""

    target: str
    number: int
    reason: str = ""
    attempts: int = 0


CELLS = [
    Cell("cli", signal.SIGKILL),
    Cell("cli", signal.SIGSTOP),
    Cell("cli", signal.SIGTERM),
    Cell("supervisor", signal.SIGKILL, "its supervisor was killed"),
    Cell("supervisor", signal.SIGSTOP),
    Cell("supervisor", signal.SIGTERM),
    Cell("agent", signal.SIGKILL, r"the agent of node [01]( \(node-[01]\))? was killed by SIGKILL"),
    Cell("agent", signal.SIGSTOP),
    Cell("agent", signal.SIGTERM, attempts=1),
    Cell(
        "rank",
        signal.SIGKILL,
        r"rank [01] on node [01]( \(node-[01]\))? failed.* killed by signal 9 \(SIGKILL",
    ),
    Cell("rank", signal.SIGSTOP),
    Cell(
        "rank",
        signal.SIGTERM,
        r"rank [01] on node [01]( \(node-[01]\))? failed.* killed by signal 15 \(SIGTERM",
    ),
    Cell("child", signal.SIGKILL),
    Cell("child", signal.SIGSTOP),
    Cell("child", signal.SIGTERM),
]


class Tried(NamedTuple):
    """``gone_s``: from the last that was done to it until nothing of it was left."""

    shown: dict[str, Any]
    gone_s: float


def try_point(folder: Path, point: str, kind: type[Trial] = Trial) -> Tried:
    """A job of ranks that ignore SIGTERM, whose supervisor or agent is killed there, and which is canceled else."""
    trial = kind(folder, "children,ignore", point, signal.SIGKILL)
    try:
        trial.wait_until_submitted()
        trial.wait_until_it_prints()
    finally:
        shown = trial.finish()
    return Tried(shown, trial.gone_s)


def try_cell(folder: Path, cell: Cell, seed: int, kind: type[Trial] = Trial) -> Tried:
    """One job, one signal, at a moment and with ranks that the seed decides. Raises AssertionError, TimeoutError."""
    chance = random.Random(f"{cell.target} {cell.number} {seed}")
    behaviour = chance.choice(BEHAVIOURS)
    if cell.target == "child" and "children" not in behaviour:
        behaviour = "children"
    ends = chance.choice(("", "", ",END=0", ",END=3"))
    trial = kind(folder, behaviour + ends)
    try:
        if cell.target != "cli":
            trial.wait_until_submitted()
        wait_a_moment(chance, _ANYTIME_S)
        pid = None
        deadline = time.monotonic() + _LATEST_S
        while pid is None and trial.show().get("status") not in FINAL:
            pid = trial.pid_of(cell.target, chance)
            if time.monotonic() > deadline:
                break
        if pid is not None:
            trial.send(pid, cell.number)
            wait_a_moment(chance, _STOPPED_S)
    finally:
        shown = trial.finish()
    if shown:
        allowed = "|".join(filter(None, (cell.reason, CANCELED, BY_ITSELF)))
        assert re.match(allowed, shown["reason"]), shown["reason"]
        assert len(shown["attempts"]) <= cell.attempts, shown["attempts"]
    return Tried(shown, trial.gone_s)
