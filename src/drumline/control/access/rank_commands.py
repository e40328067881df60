"""Running a command beside a rank: in its place, and as no part of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drumline.contract.errors import NotFoundError, UsageError
from drumline.contract.plan import Plan
from drumline.control.jobs import lookup
from drumline.control.jobs.recovery import recover
from drumline.control.logs.printer import has_ranks, labels_of
from drumline.engines.engine_table import engine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from drumline.contract.folder import RunFolder
    from drumline.contract.outcome import Outcome, RankOutcome


def run_beside_rank(name: str, rank: str, words: Sequence[str]) -> int:
    """
    Run a command, or a shell for none, in the place of a rank; return its exit code. Blocks, with this process's input
    and output. Raises NotFoundError, UsageError, EngineError.
    """
    folder = lookup.folder_of(name)
    if not has_ranks(folder):
        raise UsageError(
            f"job {name} has no ranks, its steps have", "drumline job exec NAME_OF_A_STEPS_JOB --rank 0"
        )
    outcome = recover(folder)
    label, found = _find_rank(folder, outcome, rank)
    return engine(outcome.engine).run_beside(folder, outcome, label, found, words)


def _find_rank(folder: RunFolder, outcome: Outcome, text: str) -> tuple[str, RankOutcome]:
    """Return a rank that runs, and its label. Raises UsageError, NotFoundError."""
    plan = Plan.read(folder.plan)
    named = lookup.as_arguments(folder.name)
    chosen = labels_of(text, plan, "--rank") or frozenset()
    if len(chosen) != 1:
        raise UsageError("--rank: name one rank", f"drumline job exec {named} --rank 0")
    (label,) = chosen
    found = outcome.ranks.get(next(task.rank for task in plan.ranks if task.label == label))
    if outcome.is_final:
        raise NotFoundError(f"job {folder.name} has ended; no rank of it runs", f"drumline job show {named}")
    if found is None or found.pid is None:
        raise NotFoundError(f"rank {label} has not started; the job is {outcome.status}", outcome.reason)
    if found.ended is not None:
        raise NotFoundError(
            f"rank {label} has ended ({found.state})", f"drumline job logs {named} --rank {label}"
        )
    if found.lost is not None:
        raise NotFoundError(f"rank {label} is lost with its node", f"drumline job show {named}")
    return label, found
