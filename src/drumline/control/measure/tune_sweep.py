"""
The sweep that a tuning is, made of a job and of what is to be tried. It begins, or goes on where the command that began
it was killed.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import re
import time
from typing import TYPE_CHECKING, Any

from drumline.contract import status
from drumline.contract.errors import DrumlineError, UsageError
from drumline.contract.folder import RunFolder
from drumline.contract.record import NamedTuple
from drumline.contract.secrets import list_names
from drumline.control.driver import tune_trials
from drumline.control.jobs import lookup
from drumline.control.jobs.ending import wait_for_end
from drumline.control.jobs.recovery import recover
from drumline.control.measure.tune_parameters import (
    NodeRoom,
    Parameter,
    find_edges,
    find_own,
    list_parameters,
    list_settings,
)
from drumline.control.submission import driven, planning, submitted_secrets
from drumline.control.submission.planning import fill_component
from drumline.control.submission.submit import submit
from drumline.engines.engine_table import is_elsewhere
from drumline.engines.local import resources
from drumline.plan.search.halving import plan_rungs
from drumline.plan.search.tuning import (
    LATENCY,
    PROCS,
    PROPERTY,
    RANK_STEPS,
    SAMPLES,
    STEP_S,
    STEPS,
    Tuning,
    find_number,
    to_number,
    to_text,
)
from drumline.spec.jobs.job import to_dict
from drumline.spec.jobs.sweep import SweepJob, copy_program
from drumline.spec.parts.search import Choice

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from drumline.contract.outcome import Outcome
    from drumline.contract.plan import Plan


_MOST_TRIALS = 1000


class TuneRequest(NamedTuple):
    """What to try. ``goal``: throughput or latency. ``at_once``: None is one on this machine, all on a cluster."""

    goal: str
    over: tuple[str, ...] = ()
    steps: int = 60
    strong: bool = False
    at_once: int | None = None
    trial_timeout_s: int = 600
    exhaustive: bool = False


def check_request(request: TuneRequest) -> None:
    """Raise UsageError for a request that cannot be measured."""
    tune_trials.check_count(request.steps, tune_trials.FEWEST, "a setting")
    if request.at_once is not None and request.at_once < 1:
        raise UsageError("--at-once must be 1 or more")
    if request.trial_timeout_s < 1:
        raise UsageError("--trial-timeout must be 1 or more")


def make_sweep(job: Any, request: TuneRequest) -> SweepJob:
    """
    Return the sweep that tries the settings of the job; nothing is created, and the job does not change.

    Raises SpecError, PlanError for a job that cannot run, UsageError for a request that does not fit it.
    """
    if job.type != "command":
        raise UsageError(
            f"a {job.type} job cannot be tuned: it has jobs, and those have steps", "tune a step"
        )
    job = fill_component(copy.deepcopy(job))
    job.name = None
    planned = planning.plan(copy.deepcopy(job))
    tune_trials.check_followed(planned)
    site = _look_at_site(planned)
    parameters = list_parameters(request.over, job, site)
    tuning = _make_tuning(job, request, parameters, site)
    count = len(tuning.settings)
    most = sum(rung.most for rung in tuning.rungs)
    at_once = request.at_once or (count if is_elsewhere(planned.engine) else 1)
    own = getattr(job.limits, "timeout", None)
    return SweepJob(
        display_name=f"tuning of {job.display_name or 'a job'}",
        experiment_name=job.experiment_name,
        tags=dict(job.tags),
        properties={**job.properties, PROPERTY: to_text(tuning)},
        search_space={one.name.replace(":", "_"): Choice(one.values) for one in parameters},
        trial=copy_program(job),
        objective={"goal": tuning.goal, "primary_metric": tuning.metric},
        sampling_algorithm="grid",
        limits={
            # Each may be measured once more, where the machine failed and not the job.
            "max_total_trials": min(_MOST_TRIALS, 2 * most + count),
            "max_concurrent_trials": at_once,
            "trial_timeout": min(request.trial_timeout_s, int(own)) if own else request.trial_timeout_s,
        },
        compute=job.compute,
        inputs=copy.deepcopy(dict(job.inputs)),
        outputs=copy.deepcopy(dict(job.outputs)),
        identity=copy.deepcopy(job.identity),
        base_path=job._base_path,
    )


def name_after(sweep: SweepJob, snapshots: dict[str, str]) -> str:
    """Return the name of the tuning: the same for the same job, code, settings and Python that was named."""
    python = [os.environ[planning.PYTHON]] if os.environ.get(planning.PYTHON) else []
    text = json.dumps([to_dict(sweep, absolute=True), snapshots, *python], sort_keys=True, default=str)
    return f"tune-{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:10]}"


def _look_at_site(planned: Plan) -> NodeRoom:
    if is_elsewhere(planned.engine):
        return NodeRoom(None)
    nodes = max(1, len(planned.nodes))
    return NodeRoom(max(1, len(resources.cores()) // nodes), len(resources.gpus()) // nodes)


def _make_tuning(job: Any, request: TuneRequest, parameters: list[Parameter], site: NodeRoom) -> Tuning:
    settings = tuple(list_settings(parameters, job, site))
    targets = {one.name: one.target for one in parameters}
    names = {one.target: one.name for one in parameters}
    target, batch = find_number("batch", job)
    batch_of = names.get(target, "")
    target, workers = find_number("workers", job)
    if request.goal == LATENCY:
        metric = STEP_S
    elif batch_of:
        _check_batches(batch_of, next(one.values for one in parameters if one.name == batch_of))
        metric = SAMPLES
    elif batch and batch > 0:
        metric = SAMPLES
    else:
        metric = RANK_STEPS if PROCS in targets and not request.strong else STEPS
    return Tuning(
        metric,
        targets,
        settings,
        plan_rungs(len(settings), request.steps, exhaustive=request.exhaustive),
        request.strong,
        batch,
        batch_of,
        workers,
        names.get(target, ""),
        find_own(parameters, settings, job),
        find_edges(parameters, site),
    )


def _check_batches(name: str, values: Sequence[Any]) -> None:
    """Raise UsageError for values of the batch by which no samples can be counted, such as ``auto`` of DeepSpeed."""
    wrong = next((one for one in values if not (to_number(one) or 0.0) > 0.0), None)
    if wrong is not None:
        raise UsageError(
            f"--over {name}: {wrong!r} is no number above 0, so the samples of a second cannot be compared",
            f"--for latency, or numbers alone: --over {name}=32|64",
        )


# A tuning that begins, or goes on where the command that began it was killed.


BEGINS, GOES_ON, WAS_MEASURED = "begins", "goes on", "was measured before"

_POLL_S = 0.5


class StartedTuning(NamedTuple):
    """``how``: one of the words above. ``warnings``: of a tuning that begins."""

    folder: RunFolder
    how: str
    warnings: tuple[str, ...] = ()


def start(sweep: SweepJob, *, again: bool = False) -> StartedTuning:
    """
    Start the tuning, unless it is there: then it goes on, or was measured. ``again``: whatever was measured.

    Raises SpecError, PlanError, EngineError.
    """
    graph, _ = driven.prepare(sweep)
    sweep._snapshots = graph["snapshots"]
    wanted = name_after(sweep, sweep._snapshots)
    known, name = _find_last(wanted)
    if known is not None:
        outcome = recover(known, _find_secrets(known))
        if not outcome.is_final:
            return StartedTuning(known, GOES_ON)
        if outcome.status == status.COMPLETED and not again:
            return StartedTuning(known, WAS_MEASURED)
    sweep.name = name
    try:
        submitted = submit(sweep)  # type: ignore[arg-type]
    except DrumlineError:
        # The same command in another window was faster.
        if not RunFolder.for_job(name).exists():
            raise
        return StartedTuning(RunFolder.for_job(name), GOES_ON)
    return StartedTuning(submitted.folder, BEGINS, submitted.warnings)


def _find_last(wanted: str) -> tuple[RunFolder | None, str]:
    """Return the newest tuning of that name, and the name of the next. Older ones may have been deleted."""
    numbers = [_read_number(name, wanted) for name in lookup.all_names()]
    last = max(numbers, default=0)
    if not last:
        return None, wanted
    return RunFolder.for_job(wanted if last == 1 else f"{wanted}-{last}"), f"{wanted}-{last + 1}"


def _read_number(name: str, wanted: str) -> int:
    """
    Return which tuning of the wanted name a job is, from 1 on; 0: none.

    >>> _read_number("tune-x", "tune-x"), _read_number("tune-x-3", "tune-x"), _read_number("tune-x_0", "tune-x")
    (1, 3, 0)
    """
    if name == wanted:
        return 1
    head, _, number = name.rpartition("-")
    return int(number) if head == wanted and re.fullmatch("[1-9][0-9]{0,8}", number) else 0


def _find_secrets(folder: RunFolder) -> str:
    """Return the secrets of the settings' jobs; without one of them none, which the next job then says."""
    names = list_names(folder.read_json(folder.graph))
    return submitted_secrets.find_all_or_none(names) if names else ""


def follow(folder: RunFolder, tell: Callable[[str], None]) -> Outcome:
    """Wait for the end of the tuning. Blocks. ``tell`` takes a line for each setting that is measured from now on."""
    secrets = _find_secrets(folder)
    outcome = recover(folder, secrets)
    told = {name for name, step in outcome.steps.items() if step.status}
    while True:
        is_over = wait_for_end(folder, time.monotonic() + _POLL_S)
        outcome = recover(folder, secrets)
        for name, step in outcome.steps.items():
            if step.status and name not in told:
                told.add(name)
                shown = ", ".join(f"{key} {value}" for key, value in step.detail["params"].items())
                once_more = "; it is measured once more" if step.detail.get("again") else ""
                tell(f"{shown}: {step.reason}{once_more}")
        if is_over:
            return outcome
