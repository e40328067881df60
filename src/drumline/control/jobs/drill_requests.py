"""Asking for a drill of a job that runs or will, and sentences about drills beside what became of the job."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any

from drumline.contract import drill_kinds
from drumline.contract.drill_kinds import NOTE, name_drill
from drumline.contract.errors import PlanError, UsageError
from drumline.contract.folder import private_folder
from drumline.contract.outcome import fold
from drumline.contract.plan import Plan
from drumline.contract.process_identity import user
from drumline.contract.record import NamedTuple
from drumline.contract.words import format_duration, parse_size
from drumline.control.jobs.ending import wake
from drumline.control.jobs.lookup import folder_of
from drumline.control.jobs.recovery import recover
from drumline.control.times import utc
from drumline.supervisor.drills import explain_refusal, explain_target
from drumline.tracking import mlflow_files

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drumline.contract.drill_kinds import DrillRequest
    from drumline.contract.folder import RunFolder
    from drumline.contract.outcome import DrillOutcome, Outcome


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
    if request.kind != drill_kinds.END:
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
    if request.for_s is not None and not drill_kinds.KINDS[kind].lasts:
        raise UsageError(f"drill {kind!r}: it does not last", "leave out --for")
    if request.at_step is not None:
        _check_step(plan)
    settings = check_settings(kind, request.settings or {}, len(plan.nodes))
    return request._replace(node=node, settings=settings or None)


def check_settings(kind: str, given: Mapping[str, Any], node_count: int) -> dict[str, Any]:
    """Return the settings of a drill, with the usual ones for want of any. Raises UsageError."""
    known = drill_kinds.KINDS[kind]
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
    from drumline.engines.local.isolation import isolation_settings as units

    if key == "limit":
        return parse_size(text, "--limit")
    if key == "between":
        if max(node for group in drill_kinds.read_groups(text) for node in group) >= node_count:
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


# sentences


def describe_drill(drill: DrillOutcome) -> str:
    """Describe a drill in one sentence: the drill 'wedge' on node 1, for ann, from 3.2s to 13s."""
    name = name_drill(drill.kind, drill.node, drill.rank)
    if drill.began is None:
        return f"{name} did not begin: {drill.reason}"
    given = {key: _to_text(value) for key, value in drill.settings.items()}
    settings = ", ".join(text if key == NOTE else f"{key} {text}" for key, text in given.items())
    text = name + (f" ({settings})" if settings else "") + (f", for {drill.by}" if drill.by else "")
    if drill.ended is None:
        return text
    return f"{text}, which lasted {format_duration(drill.ended - drill.began)}: {drill.reason}"


def _to_text(value: object) -> str:
    """Return a setting as its option has it: groups of nodes as ``0,1/2,3``."""
    if not isinstance(value, list):
        return str(value)
    return "/".join(",".join(map(str, one)) if isinstance(one, list) else str(one) for one in value)


def list_sentences(outcome: Outcome, attempt: int | None = None) -> list[str]:
    """
    List the sentences about the drills of an attempt; None: of the latest, with those that did not begin.

    Each stands next to the verdict on that attempt: ``during the drill 'kill-agent' on node 1, for ann``.
    """
    number = len(outcome.attempts) if attempt is None else attempt
    found = []
    for drill in outcome.drills.values():
        if drill.began is None:
            found += [describe_drill(drill)] if attempt is None else []
        elif drill.attempt == number:
            found.append(f"during {describe_drill(drill)}")
    return found


class DrillFacts(NamedTuple):
    """A drill as programs read it."""

    drill: str
    kind: str
    node: int | None
    rank: int | None
    by: str | None
    attempt: int | None
    settings: Mapping[str, Any]
    began_at: str | None
    ended_at: str | None
    reason: str


def describe_one(drill: DrillOutcome) -> DrillFacts:
    return DrillFacts(
        *(drill.drill, drill.kind, drill.node, drill.rank, drill.by or None, drill.attempt, drill.settings),
        *(utc(drill.began), utc(drill.ended), drill.reason),
    )
