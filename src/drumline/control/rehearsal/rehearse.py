"""A rehearsal: the job runs once undisturbed, and once for each drill, one run after the other."""

from __future__ import annotations

import copy
import time
from typing import TYPE_CHECKING, Any

from drumline.contract import status
from drumline.contract.errors import PlanError, UsageError
from drumline.contract.outcome import fold
from drumline.contract.record import NamedTuple
from drumline.control.drills import request as requests
from drumline.control.jobs import cancel
from drumline.control.jobs.waiting import wait_for_end
from drumline.control.rehearsal import drills_file, facts
from drumline.control.submission import planning
from drumline.control.submission.submit import submit
from drumline.node import leftovers

if TYPE_CHECKING:
    from collections.abc import Callable

    from drumline.contract.folder import RunFolder
    from drumline.contract.plan import Plan
    from drumline.control.rehearsal.drills_file import PlannedDrill, Rehearsal
    from drumline.control.rehearsal.facts import DrillRow, RunFacts

STEP_INPUTS = ("steps", "max_steps", "num_steps", "train_steps", "max_train_steps", "iterations", "max_iters")
"""Inputs by which scripts are told after how many steps to end."""

_LONGEST_FACTOR, _LONGEST_MORE_S = 10.0, 60.0
"""A run with a drill may take so much longer than the undisturbed one; then it is taken to hang, and canceled."""

_TIDY_LIMIT_S = 5.0
_PAUSE_S = 0.05


class RehearsalReport(NamedTuple):
    """The result of a rehearsal. ``left_out``: the usual drills that this job cannot have, with the reason."""

    calm: RunFacts
    rows: tuple[DrillRow, ...]
    left_out: tuple[str, ...]

    @property
    def is_ok(self) -> bool:
        """Return whether the undisturbed run completed, and every other that was expected to."""
        return self.calm.status == status.COMPLETED and all(row.is_ok for row in self.rows)


def plan_rehearsal(job: Any, drills: str, steps: int | None, seed: int | None) -> Rehearsal:
    """
    Return what is to be rehearsed of a job; nothing is created. ``drills``: a file, or ``default``.

    Raises SpecError, PlanError, UsageError.
    """
    if job.type != "command":
        raise UsageError(
            f"a {job.type} job cannot be rehearsed: it has jobs, and those have ranks", "rehearse a step"
        )
    plan: Plan = planning.plan(copy.deepcopy(job))
    is_usual = drills == drills_file.DEFAULT
    rehearsal = drills_file.choose_usual(plan, seed or 0) if is_usual else drills_file.read_file(drills, plan)
    rehearsal = rehearsal._replace(
        steps=rehearsal.steps if steps is None else steps, seed=rehearsal.seed if seed is None else seed
    )
    if rehearsal.steps is not None:
        find_step_input(job)
    return rehearsal


def find_step_input(job: Any) -> str:
    """Return the input that says after how many steps the job ends. Raises UsageError without one."""
    for name in STEP_INPUTS:
        if name in (job.inputs or {}):
            return name
    known = ", ".join(STEP_INPUTS[:4])
    raise UsageError("--steps: the job has no input that limits its steps", f"give it one of: {known}")


def run_rehearsal(
    load: Callable[[], Any], rehearsal: Rehearsal, tell: Callable[[str], None]
) -> RehearsalReport:
    """
    Run the job undisturbed and once for each drill. ``load`` returns the job anew, ``tell`` takes a line on progress.

    Blocks. An interrupt cancels the run that goes on. Raises as ``submit``.
    """
    count = len(rehearsal.drills) + 1
    calm = _run_calm(load, rehearsal, lambda text: tell(f"1 of {count}: {text}"))
    if calm.status != status.COMPLETED:
        return RehearsalReport(calm, (), rehearsal.left_out)
    rehearsal = drills_file.choose_begins(rehearsal, calm.last_step, calm.seconds)
    rows = []
    for number, planned in enumerate(rehearsal.drills, start=2):
        rows.append(_run_drill(load, rehearsal, planned, calm, _prefix(tell, f"{number} of {count}: ")))
    return RehearsalReport(calm, tuple(rows), rehearsal.left_out)


def _prefix(tell: Callable[[str], None], prefix: str) -> Callable[[str], None]:
    return lambda text: tell(prefix + text)


def _run_calm(load: Callable[[], Any], rehearsal: Rehearsal, tell: Callable[[str], None]) -> RunFacts:
    folder = _submit(load, rehearsal)
    tell(f"undisturbed: job {folder.name}")
    _wait(folder, None)
    calm = facts.gather_facts(folder, rehearsal.metric)
    tell(f"undisturbed: job {folder.name} is {calm.status} after {calm.seconds:.1f} s")
    return calm


def _run_drill(
    load: Callable[[], Any],
    rehearsal: Rehearsal,
    planned: PlannedDrill,
    calm: RunFacts,
    tell: Callable[[str], None],
) -> DrillRow:
    folder = _submit(load, rehearsal)
    tell(f"{planned.title}: job {folder.name}")
    refused = ""
    try:
        requests.ask(folder.name, planned.request)
    except (PlanError, UsageError) as error:
        # Of a file that was checked: the job has ended already.
        refused = error.message
    longest_s = calm.seconds * _LONGEST_FACTOR + _LONGEST_MORE_S + (planned.request.for_s or 0.0)
    late = "" if _wait(folder, longest_s) else f"it had not ended after {longest_s:.0f} s, and was canceled"
    run = facts.gather_facts(folder, rehearsal.metric)
    more = tuple(filter(None, (late, refused)))
    run = run._replace(sentences=(*run.sentences, *more))
    row = facts.judge(planned, fold(folder.read_events()), calm, run, rehearsal)
    tell(f"{planned.title}: job {folder.name}: {row.result}")
    return row


def _submit(load: Callable[[], Any], rehearsal: Rehearsal) -> RunFolder:
    job = load()
    job.name = None
    if rehearsal.steps is not None:
        job.inputs[find_step_input(job)] = rehearsal.steps
    return submit(job).folder


def _wait(folder: RunFolder, longest_s: float | None) -> bool:
    """Wait for the end of a job and of all that it left; False where it had to be canceled."""
    in_time = True
    try:
        if not wait_for_end(folder, None if longest_s is None else time.monotonic() + longest_s):
            in_time = False
            cancel.cancel(folder.name, at_once=True, by="its rehearsal: it took too long")
            wait_for_end(folder)
    except KeyboardInterrupt:
        cancel.cancel(folder.name, at_once=True)
        wait_for_end(folder)
        raise
    deadline = time.monotonic() + _TIDY_LIMIT_S
    while leftovers.list_leftovers(folder) and time.monotonic() < deadline:
        time.sleep(_PAUSE_S)  # Its supervisor may be about to end.
    return in_time
