"""Asking for a drill of a job that runs, or is about to."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING

from drumline.contract import drills
from drumline.contract.errors import PlanError, UsageError
from drumline.contract.folder import private_folder
from drumline.contract.outcome import fold
from drumline.contract.plan import Plan
from drumline.contract.user import user
from drumline.control.drills.words import describe_drill
from drumline.control.jobs.cancel import wake
from drumline.control.jobs.lookup import folder_of
from drumline.control.jobs.recovery import recover
from drumline.supervisor.drills import explain_refusal, explain_target

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from drumline.contract.drills import DrillRequest
    from drumline.contract.folder import RunFolder
    from drumline.contract.outcome import DrillOutcome

_PAUSE_S = 0.02


def ask(name: str, request: DrillRequest) -> str:
    """
    Leave a request with the supervisor of a job, and return its name. ``request.drill`` and ``by``: filled in here.

    Raises NotFoundError; UsageError for a job that has no ranks, or has ended; PlanError for a drill that the job
    cannot have.
    """
    folder = folder_of(name)
    outcome = recover(folder)
    if outcome.kind != "command":
        what = f"job {name} is a {outcome.kind}: it has jobs, and those have ranks"
        raise UsageError(what, f"drumline job show -n {name}")
    if outcome.is_final:
        raise UsageError(f"job {name} is {outcome.status}: it has no ranks that run")
    if request.kind != drills.END:
        request = _check(request, Plan.read(folder.plan))
    drill = os.urandom(4).hex()
    private_folder(folder.drills)
    fields = {key: value for key, value in request._asdict().items() if key != "drill"}
    folder.write(os.path.join(folder.drills, f"{drill}.json"), json.dumps({**fields, "by": user()}))
    wake(folder)
    return drill


def _check(request: DrillRequest, plan: Plan) -> DrillRequest:
    """Return the request with the node that it is about. Raises UsageError, PlanError."""
    kind, node, rank = request.kind, request.node, request.rank
    why_not = explain_refusal(kind, plan)
    if why_not:
        raise PlanError(f"there can be no drill {kind!r} of job {plan.job}: {why_not}")
    if node is None and rank is None and kind != "preempt" and len(plan.nodes) == 1:
        node = 0
    why_not = explain_target(kind, plan, node, rank, request.settings)
    if why_not:
        has = f"job {plan.job} has {len(plan.nodes)} nodes and {len(plan.ranks)} ranks, counted from 0"
        raise UsageError(f"drill {kind!r}: {why_not}", has)
    if request.for_s is not None and not drills.KINDS[kind].lasts:
        raise UsageError(f"drill {kind!r}: it does not last", "leave out --for")
    if request.at_step is not None:
        _check_step(plan)
    settings = check_settings(kind, request.settings or {}, len(plan.nodes))
    return request._replace(node=node, settings=settings or None)


def check_settings(kind: str, given: Mapping[str, Any], node_count: int) -> dict[str, Any]:
    """Return the settings of a drill, with the usual ones for want of any. Raises UsageError."""
    known = drills.KINDS[kind]
    for key in given:
        if key not in known.settings:
            has = ", ".join(f"--{one}" for one in known.settings) or "none"
            raise UsageError(f"drill {kind!r} has no setting {key!r}", f"its settings: {has}")
    settings = dict(given or known.usual)
    try:
        for key, value in settings.items():
            settings[key] = _check_setting(key, str(value), node_count)
    except ValueError as error:
        raise UsageError(f"drill {kind!r}: {error}", "--help has an example of each setting") from error
    if kind == "memory" and not settings:
        raise UsageError("drill 'memory': it needs a limit", "--limit 200MiB")
    return settings


def _check_setting(key: str, text: str, node_count: int) -> Any:
    """Return a setting as a supervisor takes it. Raises ValueError, UsageError."""
    from drumline.contract.words import parse_size
    from drumline.engines.local.isolation import settings as units

    if key == "limit":
        return parse_size(text, "--limit")
    if key == "between":
        if max(node for group in drills.read_groups(text) for node in group) >= node_count:
            raise ValueError(f"--between: the job has no such node; it has {node_count}")
    elif key == "cpus":
        if not 0 < float(text) < 1 << 20:
            raise ValueError("--cpus must be more than 0")
    else:
        read = {"rate": units.parse_rate, "latency": units.parse_time_ms, "loss": units.parse_percent}[key]
        try:
            read(text)
        except ValueError:
            raise ValueError(f"--{key}: {text!r} is no {key}") from None
    return text


def _check_step(plan: Plan) -> None:
    from drumline.tracking import mlflow_files

    if not mlflow_files.metrics_of(plan):
        what = f"--at-step: the metrics of job {plan.job} are at a server, where its supervisor does not look"
        raise UsageError(what, "--after 30s")


def wait_for_begin(folder: RunFolder, drill: str, limit_s: float) -> DrillOutcome | None:
    """
    Wait until a drill has begun, and return it; None if it has not after ``limit_s``, or when the job has ended.

    Raises PlanError with the supervisor's reason where that refuses it.
    """
    deadline = time.monotonic() + limit_s
    while True:
        outcome = fold(folder.read_events())
        found = outcome.drills.get(drill)
        if found is not None:
            if found.began is None:
                raise PlanError(describe_drill(found))
            return found
        if recover(folder).is_final or time.monotonic() >= deadline:
            return None
        time.sleep(_PAUSE_S)
