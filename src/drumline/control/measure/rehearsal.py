"""
A rehearsal: the job runs once undisturbed, and once for each drill of a file, or for each of the usual ones, one run
after the other.
"""

from __future__ import annotations

import copy
import random
import time
from typing import TYPE_CHECKING, Any, Protocol

from drumline.contract import status
from drumline.contract.drill_kinds import KINDS, DrillRequest, name_drill
from drumline.contract.errors import NotFoundError, PlanError, Problem, SpecError, UsageError
from drumline.contract.outcome import fold
from drumline.contract.plan import Plan
from drumline.contract.record import NamedTuple
from drumline.contract.words import format_seconds
from drumline.control.facts import parts
from drumline.control.facts.jobs import main_metric
from drumline.control.facts.metrics import read_metrics
from drumline.control.jobs import drill_requests as requests
from drumline.control.jobs import ending
from drumline.control.jobs.drill_requests import check_settings
from drumline.control.jobs.ending import wait_for_end
from drumline.control.jobs.recovery import recover
from drumline.control.submission import planning
from drumline.control.submission.submit import submit
from drumline.node import leftovers
from drumline.spec.kinds.lines import Count
from drumline.spec.kinds.records import Record
from drumline.spec.kinds.values import Kind, ListOf, OneOf, Report, Seconds, Text, VersionText
from drumline.spec.reading.files import read_yaml
from drumline.spec.reading.source import Sequence, problem_at
from drumline.supervisor.drills import StepWatch, explain_refusal, explain_target

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from drumline.contract.folder import RunFolder
    from drumline.contract.outcome import Outcome
    from drumline.spec.reading.source import Mapping as Tree
    from drumline.spec.reading.source import Node


SURVIVE, FAIL = "survive", "fail"

_UNITS_S = {"s": 1, "m": 60, "h": 3600}


class Length(Kind):
    """A length of time: a number of seconds, or text such as ``1m30s``."""

    word = "a length of time, such as 20s or 1m30s"

    def convert(self, node: Node) -> Any:
        import re

        text = "" if isinstance(node.value, bool) else str(node.value)
        number = r"\d{1,9}(?:\.\d{1,9})?"
        if re.fullmatch(number, text, re.ASCII):
            return float(text)
        if not re.fullmatch(rf"(?:{number}[smh])+", text, re.ASCII):
            return None
        return sum(float(count) * _UNITS_S[unit] for count, unit in re.findall(rf"({number})([smh])", text))


DRILL = Record(
    "a drill",
    {
        "kind": OneOf(*KINDS),
        "name": Text(),
        "node": Count(0),
        "rank": Count(0),
        "at_step": Count(0),
        "after": Length(),
        "for": Length(),
        "between": Text(),
        "rate": Text(),
        "latency": Text(),
        "loss": Text(),
        "cpus": VersionText(),
        "limit": Text(),
        "expect": OneOf(SURVIVE, FAIL),
    },
    required=("kind",),
)

DRILLS = Record(
    "a file of drills",
    {
        "steps": Count(0),
        "for": Length(),
        "seed": Count(0),
        "metric": Text(),
        "tolerance": Seconds(),
        "drills": ListOf(DRILL),
    },
    required=("drills",),
)


# one run

_TIDY_LIMIT_S = 5.0
_PAUSE_S = 0.05
_COUNT_INTERVAL_S = 0.2


class Progress(Protocol):
    """Tells whoever waits for a rehearsal how far it is."""

    def tell(self, text: str) -> None:
        """Take a line on what has begun or ended."""

    def count(self, what: str, seconds: float, said: str) -> None:
        """Take what goes on, and for how long, several times a second."""


class RunWatch:
    """Waits for one run. ``what`` says which it is; ``for_s``: how long its ranks are to run; None: until they end."""

    def __init__(self, folder: RunFolder, progress: Progress, what: str, for_s: float | None = None) -> None:
        self._folder = folder
        self._progress = progress
        self._what = what
        self._for_s = for_s
        self._steps = StepWatch(Plan.read(folder.plan)) if for_s is not None else None
        self._mark: int | None = None
        self._began = time.monotonic()
        self.is_late = False
        """Whether it had to be canceled: it took too long."""

        self.is_shortened = False
        """Whether it was ended while all was well."""

    def wait(self, longest_s: float | None, drill_count: int = 0) -> None:
        """
        Wait for the end of the job and of all that it left. ``drill_count``: how many drills are to begin before it is
        ended. An interrupt cancels it.
        """
        try:
            self._wait(longest_s, drill_count)
        except KeyboardInterrupt:
            ending.cancel(self._folder.name, at_once=True)
            wait_for_end(self._folder)
            raise
        deadline = time.monotonic() + _TIDY_LIMIT_S
        while leftovers.list_leftovers(self._folder) and time.monotonic() < deadline:
            time.sleep(_PAUSE_S)  # Its supervisor may be about to end.

    def _wait(self, longest_s: float | None, drill_count: int) -> None:
        while not wait_for_end(self._folder, time.monotonic() + _COUNT_INTERVAL_S):
            passed_s = time.monotonic() - self._began
            self._progress.count(self._what, passed_s, f"job {self._folder.name}")
            if longest_s is not None and passed_s > longest_s:
                self.is_late = True
                self._end("its rehearsal: it took too long")
            elif self._has_run_enough(drill_count):
                self._end("its rehearsal: its time was over")
                self.is_shortened = recover(self._folder).status == status.CANCELED

    def _end(self, by: str) -> None:
        ending.cancel(self._folder.name, at_once=True, by=by)
        wait_for_end(self._folder)

    def _has_run_enough(self, drill_count: int) -> bool:
        """Return whether the ranks have run for that long, are well after their drills, and go on."""
        if self._for_s is None or self._steps is None:
            return False
        outcome = fold(self._folder.read_events())
        if outcome.started is None or time.time() - outcome.started < self._for_s:
            return False
        if outcome.status != status.RUNNING or not _are_over(outcome, drill_count):
            return False
        last = self._steps.find_last()
        if last is None:
            return True
        # Ranks that only look as if they ran make no steps.
        if self._mark is None:
            self._mark = last
        return last > self._mark


def _are_over(outcome: Outcome, drill_count: int) -> bool:
    """Return whether so many drills have begun, or were refused, and those that last have ended."""
    drills: list[Any] = list(outcome.drills.values())
    return len(drills) >= drill_count and all(
        one.ended is not None or not KINDS[one.kind].lasts for one in drills
    )


# tables in the run folders of their jobs, for the studio

_FILE = "rehearsal.json"


def keep_table(title: str, values: Mapping[str, Any]) -> None:
    """Write a table, as ``drumline rehearse -o json`` shows it, into the run folder of each of its jobs."""
    jobs = [run["job"] for run in (values["undisturbed"], *values["drills"])]
    parts.keep_report(_FILE, {"title": title, **values}, jobs)


def read_table(name: str) -> dict[str, Any]:
    """Return the table that a job ran for. Raises NotFoundError, DamagedError."""
    missing = NotFoundError(f"job {name} ran for no rehearsal", "drumline rehearse -f job.yml")
    return parts.read_report(name, _FILE, _describe_table, missing)


def list_tables() -> list[dict[str, Any]]:
    """List the newest tables of a home, each with a job that has it."""
    return parts.list_reports(_FILE, _summarize)


def _summarize(table: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    drills = table["drills"]
    survived = sum(drill["result"] == "survived" for drill in drills)
    listed = {"title": table["title"], "ok": table["ok"], "drills": len(drills), "survived": survived}
    return listed, [table["undisturbed"]["job"], *(drill["job"] for drill in drills)]


def _describe_table(table: Mapping[str, Any]) -> dict[str, Any]:
    drills = [{**drill, "ok": drill["is_ok"]} for drill in table["drills"]]
    return {**{key: table[key] for key in ("title", "ok", "undisturbed", "left_out")}, "drills": drills}


STEP_INPUTS = ("steps", "max_steps", "num_steps", "train_steps", "max_train_steps", "iterations", "max_iters")
"""Inputs by which scripts are told after how many steps to end."""

_LONGEST_FACTOR, _LONGEST_MORE_S = 10.0, 60.0
"""A run with a drill may take so much longer than the undisturbed one; then it is taken to hang, and canceled."""


class RehearsalReport(NamedTuple):
    """The result of a rehearsal. ``left_out``: the usual drills that this job cannot have, with the reason."""

    calm: RunFacts
    rows: tuple[DrillRow, ...]
    left_out: tuple[str, ...]

    @property
    def is_ok(self) -> bool:
        """Return whether the undisturbed run completed, and every other that was expected to."""
        return self.calm.is_well and all(row.is_ok for row in self.rows)


def plan_rehearsal(
    job: Any, drills: str, steps: int | None, for_s: float | None, seed: int | None
) -> Rehearsal:
    """
    Return what is to be rehearsed of a job; nothing is created. ``drills``: a file, or ``default``. ``for_s``: how long
    each run is.

    Raises SpecError, PlanError, UsageError.
    """
    if job.type != "command":
        raise UsageError(
            f"a {job.type} job cannot be rehearsed: it has jobs, and those have ranks", "rehearse a step"
        )
    plan: Plan = planning.plan(copy.deepcopy(job))
    is_usual = drills == DEFAULT
    rehearsal = choose_usual(plan, seed or 0) if is_usual else read_file(drills, plan)
    if steps is not None or for_s is not None:
        rehearsal = rehearsal._replace(steps=steps, for_s=for_s)
    rehearsal = rehearsal._replace(seed=rehearsal.seed if seed is None else seed)
    if rehearsal.steps is not None:
        find_step_input(job)
    return rehearsal


def find_step_input(job: Any) -> str:
    """Return the input that says after how many steps the job ends. Raises UsageError without one."""
    for name in STEP_INPUTS:
        if name in (job.inputs or {}):
            return name
    known = ", ".join(STEP_INPUTS[:4])
    raise UsageError(
        "--steps: the job has no input that limits its steps", f"give it one of: {known}; or --for 60s"
    )


def run_rehearsal(load: Callable[[], Any], rehearsal: Rehearsal, progress: Progress) -> RehearsalReport:
    """
    Run the job undisturbed and once for each drill. ``load`` returns the job anew.

    Blocks. An interrupt cancels the run that goes on. Raises as ``submit``.
    """
    count = len(rehearsal.drills) + 1
    calm = _run_calm(load, rehearsal, progress, f"1 of {count}: undisturbed")
    if not calm.is_well:
        return RehearsalReport(calm, (), rehearsal.left_out)
    rehearsal = choose_begins(rehearsal, calm.last_step, calm.seconds)
    rows = []
    for number, planned in enumerate(rehearsal.drills, start=2):
        what = f"{number} of {count}: {planned.title}"
        rows.append(_run_drill(load, rehearsal, planned, calm, progress, what))
    return RehearsalReport(calm, tuple(rows), rehearsal.left_out)


def _run_calm(load: Callable[[], Any], rehearsal: Rehearsal, progress: Progress, what: str) -> RunFacts:
    folder = _submit(load, rehearsal)
    progress.tell(f"{what}: job {folder.name}")
    watch = RunWatch(folder, progress, what, rehearsal.for_s)
    watch.wait(None)
    calm = gather_facts(folder, rehearsal.metric, is_shortened=watch.is_shortened)
    how = "ran well for" if calm.is_shortened else f"is {calm.status} after"
    progress.tell(f"{what}: job {folder.name} {how} {format_seconds(calm.seconds)}")
    return calm


def _run_drill(
    load: Callable[[], Any],
    rehearsal: Rehearsal,
    planned: PlannedDrill,
    calm: RunFacts,
    progress: Progress,
    what: str,
) -> DrillRow:
    folder = _submit(load, rehearsal)
    progress.tell(f"{what}: job {folder.name}")
    refused = ""
    try:
        requests.ask(folder.name, planned.request)
    except (PlanError, UsageError) as error:
        # Of a file that was checked: the job has ended already.
        refused = error.message
    longest_s = calm.seconds * _LONGEST_FACTOR + _LONGEST_MORE_S + (planned.request.for_s or 0.0)
    watch = RunWatch(folder, progress, what, rehearsal.for_s)
    watch.wait(longest_s, drill_count=0 if refused else 1)
    late = f"it had not ended after {format_seconds(longest_s)}, and was canceled" if watch.is_late else ""
    run = gather_facts(folder, rehearsal.metric, is_shortened=watch.is_shortened)
    more = tuple(filter(None, (late, refused)))
    run = run._replace(sentences=(*run.sentences, *more))
    row = judge(planned, fold(folder.read_events()), calm, run, rehearsal)
    progress.tell(f"{what}: job {folder.name}: {row.result}")
    return row


def _submit(load: Callable[[], Any], rehearsal: Rehearsal) -> RunFolder:
    job = load()
    job.name = None
    if rehearsal.steps is not None:
        job.inputs[find_step_input(job)] = rehearsal.steps
    return submit(job).folder


# facts of a run, and how it compares with the undisturbed one


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


# The drills of a rehearsal: those of a file, or the usual ones.


DEFAULT = "default"
_USUAL = ("preempt", "kill-rank", "kill-agent", "wedge", "power-off", "partition", "slow-link", "slow-cpu")
_USUAL_LENGTH_S = 3.0
_SETTINGS = ("between", "rate", "latency", "loss", "cpus", "limit")
_EARLIEST, _LATEST = 0.3, 0.7
"""The part of the undisturbed run in which a drill begins whose file does not say when."""


class PlannedDrill(NamedTuple):
    """One drill of a rehearsal. ``is_to_survive``: whether the job is expected to complete all the same."""

    title: str
    request: DrillRequest
    is_to_survive: bool = True


class Rehearsal(NamedTuple):
    """
    What is to be rehearsed. ``steps``: how many the job is shortened to; None: it is as long as it is. ``metric``:
    whose final value is compared; empty: the job's main one. ``tolerance``: how much it may differ, as a share.
    """

    drills: tuple[PlannedDrill, ...]
    steps: int | None = None
    seed: int = 0
    metric: str = ""
    tolerance: float = 0.0
    for_s: float | None = None
    """How long each run is, counted from when its ranks run; None: until the job ends."""

    left_out: tuple[str, ...] = ()
    """Of the usual drills those that this job cannot have, each with the reason."""


def choose_usual(plan: Plan, seed: int) -> Rehearsal:
    """Return the usual drills that a job can have: one of each kind, on a node and a rank that ``seed`` chooses."""
    chooser = random.Random(seed)  # noqa: S311 - the same choice for the same seed
    drills, left_out = [], []
    for kind in _USUAL:
        node = chooser.randrange(len(plan.nodes))
        rank = chooser.choice(plan.nodes[node].ranks).rank if KINDS[kind].aims_at == "rank" else None
        why_not = explain_refusal(kind, plan)
        if why_not:
            left_out.append(f"{kind}: {why_not}")
            continue
        length = _USUAL_LENGTH_S if KINDS[kind].lasts else None
        drills.append(PlannedDrill(kind, DrillRequest("", kind, "", node, rank, length)))
    return Rehearsal(tuple(drills), seed=seed, left_out=tuple(left_out))


def read_file(path: str, plan: Plan) -> Rehearsal:
    """Read a file of drills for a job with that plan. Raises SpecError with every mistake."""
    root = read_yaml(path, path)
    report = Report("")
    values = DRILLS.check(root, "", report)
    if report.problems:
        raise SpecError(report.problems)
    drills = []
    for index, given in enumerate(values["drills"]):
        request = _make_request(given)
        what = _explain_mistake(request, plan)
        if what:
            report.put(_locate(root, index, what))
        title = str(given.get("name") or request.kind)
        drills.append(PlannedDrill(title, request, given.get("expect") != FAIL))
    if not drills:
        report.put(_locate(root, None, "there is no drill in the file"))
    if report.problems:
        raise SpecError(report.problems)
    return Rehearsal(
        tuple(drills),
        values.get("steps"),
        values.get("seed") or 0,
        values.get("metric") or "",
        values.get("tolerance") or 0.0,
        values.get("for"),
    )


def _make_request(given: dict[str, Any]) -> DrillRequest:
    where = (given.get("node"), given.get("rank"))
    when = (given.get("for"), given.get("after"), given.get("at_step"))
    settings = {key: given[key] for key in _SETTINGS if key in given}
    return DrillRequest("", given["kind"], "", *where, *when, settings or None)


def _explain_mistake(request: DrillRequest, plan: Plan) -> str:
    kind = request.kind
    if request.at_step is not None and request.after_s is not None:
        return "a drill has 'at_step' or 'after', not both"
    if request.for_s is not None and not KINDS[kind].lasts:
        return f"a drill {kind!r} does not last: 'for' has no meaning"
    if request.for_s is None and KINDS[kind].lasts:
        return f"a drill {kind!r} lasts: say for how long by 'for'"
    node = 0 if request.node is None and request.rank is None and len(plan.nodes) == 1 else request.node
    why_not = explain_refusal(kind, plan)
    if why_not:
        return f"there can be no drill {kind!r} of this job: {why_not}"
    why_not = explain_target(kind, plan, node, request.rank, request.settings)
    if why_not:
        return f"drill {kind!r}: {why_not}"
    try:
        check_settings(kind, request.settings or {}, len(plan.nodes))
    except UsageError as error:
        return error.message
    return ""


def _locate(root: Tree, index: int | None, what: str) -> Problem:
    node = root.get("drills")
    if index is not None and isinstance(node, Sequence):
        return problem_at(node.items[index], what, path=f"drills.{index}")
    return problem_at(node or root, what, path="drills")


def choose_begins(rehearsal: Rehearsal, last_step: int | None, seconds: float) -> Rehearsal:
    """
    Return the rehearsal with a begin for every drill: those that have none begin in the middle of the job, at a step
    where it logs steps, else at a time. ``last_step`` and ``seconds`` are of the undisturbed run.
    """
    chooser = random.Random(f"{rehearsal.seed} begins")  # noqa: S311 - the same choice for the same seed
    drills = []
    for one in rehearsal.drills:
        part = chooser.uniform(_EARLIEST, _LATEST)
        request = one.request
        if request.at_step is None and request.after_s is None:
            if last_step:
                request = request._replace(at_step=max(1, round(part * last_step)))
            else:
                request = request._replace(after_s=round(part * seconds, 3))
        drills.append(one._replace(request=request))
    return rehearsal._replace(drills=tuple(drills))
