"""What is known of one run of a rehearsal, and how it compares with the undisturbed run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drumline.contract import status
from drumline.contract.drills import name_drill
from drumline.contract.outcome import fold
from drumline.contract.record import NamedTuple
from drumline.control.facts.jobs import main_metric
from drumline.control.observing.metrics import read_metrics
from drumline.node import leftovers

if TYPE_CHECKING:
    from drumline.contract.folder import RunFolder
    from drumline.contract.outcome import Outcome
    from drumline.control.rehearsal.drills_file import PlannedDrill, Rehearsal

_METRICS_LIMIT_S = 5.0


class RunFacts(NamedTuple):
    """
    One run. ``steps``: how many values its metric has, and of how many different steps. ``final``: the last value;
    None without any. ``sentences``: how each attempt that did not complete ended.
    """

    job: str
    status: str
    exit_code: int | None
    seconds: float
    metric: str = ""
    final: float | None = None
    last_step: int | None = None
    steps: tuple[int, int] = (0, 0)
    attempts: int = 1
    sentences: tuple[str, ...] = ()
    left_behind: tuple[str, ...] = ()
    is_shortened: bool = False
    """Whether it was ended while all was well, after as long as it was to run."""

    @property
    def is_well(self) -> bool:
        """Return whether the job completed, or would have gone on."""
        return self.status == status.COMPLETED or self.is_shortened

    @property
    def repeat_count(self) -> int:
        """Return how many steps were done more than once, as far as the metric tells."""
        return self.steps[0] - self.steps[1]


class DrillRow(NamedTuple):
    """
    One drill of the table. ``result``: survived, failed, or not begun. ``is_ok``: it is as expected. None: not known.
    """

    drill: str
    what: str
    job: str
    result: str
    is_ok: bool
    lost_s: float | None
    repeated: int | None
    same_metric: bool | None
    metric: str
    final: float | None
    left_behind: tuple[str, ...]
    sentences: tuple[str, ...]


def gather_facts(folder: RunFolder, metric: str = "", *, is_shortened: bool = False) -> RunFacts:
    """Gather what is known of a run that has ended. ``metric``: whose values count; empty: the main one."""
    outcome = fold(folder.read_events())
    series = {
        one.name: one for one in reversed(read_metrics(folder, limit_s=_METRICS_LIMIT_S).series) if len(one)
    }
    name = metric or main_metric(series)
    one = series.get(name)
    figures = one.figures() if one is not None else None
    last = figures.last if figures else None
    counts = (len(one), len(set(one.arrays()[0]))) if one is not None else (0, 0)
    seconds = (outcome.ended or 0.0) - (outcome.started or outcome.ended or 0.0)
    return RunFacts(
        folder.name,
        outcome.status,
        outcome.exit_code,
        max(0.0, seconds),
        name if one is not None else "",
        last.value if last else None,
        last.step if last else None,
        counts,
        len(outcome.attempts) + 1,
        _list_sentences(outcome, is_well=is_shortened or outcome.status == status.COMPLETED),
        tuple(leftovers.list_leftovers(folder)),
        is_shortened,
    )


def _list_sentences(outcome: Outcome, *, is_well: bool) -> tuple[str, ...]:
    found = [one.reason for one in outcome.attempts]
    return tuple(found if is_well else [*found, outcome.reason])


def judge(
    planned: PlannedDrill, outcome: Outcome, calm: RunFacts, run: RunFacts, rehearsal: Rehearsal
) -> DrillRow:
    """Compare the run of a drill with the undisturbed one. ``outcome``: of the drill's run."""
    begun = [one for one in outcome.drills.values() if one.began is not None]
    result = ("survived" if run.is_well else "failed") if begun else "not begun"
    sentences = list(run.sentences)
    if not begun:
        refused = [one.reason for one in outcome.drills.values()]
        sentences.append(refused[0] if refused else "the job ended before the drill was to begin")
    drill = begun[0] if begun else None
    request = planned.request
    about = drill or request
    what = name_drill(about.kind, about.node, about.rank)
    has_completed = run.is_well and not run.is_shortened
    is_compared = has_completed and run.final is not None and calm.final is not None
    return DrillRow(
        planned.title,
        what.removeprefix("the drill "),
        run.job,
        result,
        bool(begun) and (run.is_well or not planned.is_to_survive),
        _count_lost(calm, run),
        max(0, run.repeat_count - calm.repeat_count) if run.metric else None,
        _is_same(calm.final, run.final, rehearsal.tolerance) if is_compared else None,
        run.metric,
        run.final,
        run.left_behind,
        tuple(sentences),
    )


def _count_lost(calm: RunFacts, run: RunFacts) -> float | None:
    """Return the seconds that a drill cost; of a run of fixed length those in which the missing steps are done."""
    if not run.is_well:
        return None
    if not run.is_shortened:
        return round(run.seconds - calm.seconds, 3)
    if not run.last_step or not calm.last_step:
        return None
    return round(max(0.0, run.seconds - run.last_step * calm.seconds / calm.last_step), 3)


def _is_same(one: float | None, other: float | None, tolerance: float) -> bool:
    """
    Return whether two values are the same but for a share of the first.

    >>> _is_same(1.0, 1.01, 0.0), _is_same(1.0, 1.01, 0.02), _is_same(float("nan"), float("nan"), 0.0)
    (False, True, True)
    """
    if one is None or other is None:
        return False
    both_nan = one != one and other != other  # noqa: PLR0124 - nan
    return both_nan or one == other or abs(one - other) <= tolerance * abs(one)
