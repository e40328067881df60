"""A rehearsal: the job runs once undisturbed, and once for each drill, one run after the other."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import PlanError, UsageError
from drumline.contract.outcome import fold
from drumline.contract.record import NamedTuple
from drumline.control.drills import request as requests
from drumline.control.rehearsal import drills_file, facts
from drumline.control.rehearsal.runs import RunWatch
from drumline.control.submission import planning
from drumline.control.submission.submit import submit

if TYPE_CHECKING:
    from collections.abc import Callable

    from drumline.contract.folder import RunFolder
    from drumline.contract.plan import Plan
    from drumline.control.rehearsal.drills_file import PlannedDrill, Rehearsal
    from drumline.control.rehearsal.facts import DrillRow, RunFacts
    from drumline.control.rehearsal.runs import Progress

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
    is_usual = drills == drills_file.DEFAULT
    rehearsal = drills_file.choose_usual(plan, seed or 0) if is_usual else drills_file.read_file(drills, plan)
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
    rehearsal = drills_file.choose_begins(rehearsal, calm.last_step, calm.seconds)
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
    calm = facts.gather_facts(folder, rehearsal.metric, is_shortened=watch.is_shortened)
    how = "ran well for" if calm.is_shortened else f"is {calm.status} after"
    progress.tell(f"{what}: job {folder.name} {how} {calm.seconds:.1f} s")
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
    late = f"it had not ended after {longest_s:.0f} s, and was canceled" if watch.is_late else ""
    run = facts.gather_facts(folder, rehearsal.metric, is_shortened=watch.is_shortened)
    more = tuple(filter(None, (late, refused)))
    run = run._replace(sentences=(*run.sentences, *more))
    row = facts.judge(planned, fold(folder.read_events()), calm, run, rehearsal)
    progress.tell(f"{what}: job {folder.name}: {row.result}")
    return row


def _submit(load: Callable[[], Any], rehearsal: Rehearsal) -> RunFolder:
    job = load()
    job.name = None
    if rehearsal.steps is not None:
        job.inputs[find_step_input(job)] = rehearsal.steps
    return submit(job).folder
