"""The sweep that a tuning is, made of a job and of what is to be tried."""

from __future__ import annotations

import copy
import hashlib
import json
import os
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import UsageError
from drumline.contract.record import NamedTuple
from drumline.control.driver import tune
from drumline.control.submission import planning
from drumline.control.submission.fields import fill_component
from drumline.control.tuning.parameters import (
    NodeRoom,
    Parameter,
    find_edges,
    find_own,
    list_parameters,
    list_settings,
)
from drumline.engines.local import machine
from drumline.engines.table import is_elsewhere
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
    from collections.abc import Sequence

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
    tune.check_count(request.steps, tune.FEWEST, "a setting")
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
    tune.check_followed(planned)
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
    return NodeRoom(max(1, len(machine.cores()) // nodes), len(machine.gpus()) // nodes)


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
