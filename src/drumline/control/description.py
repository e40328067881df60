"""A job as ``az ml job show`` prints one, and what only Drumline knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drumline.contract import status
from drumline.contract.folder import RunFolder
from drumline.contract.outcome import fold
from drumline.control.jobs import outcome_of, read_spec
from drumline.engines.table import engine, is_elsewhere
from drumline.tracking import mlflow_files

if TYPE_CHECKING:
    from drumline.contract.outcome import Outcome, StepOutcome


def of(folder: RunFolder, outcome: Outcome, *, brief: bool = False) -> dict[str, Any]:
    """As ``jobs.describe``."""
    name = folder.name
    spec = {**read_spec(folder), **outcome.edits}
    link = "file://" + folder.path
    described: dict[str, Any] = {
        "name": name,
        "display_name": spec.pop("display_name", None) or name,
        "experiment_name": spec.pop("experiment_name", None) or "Default",
        "type": outcome.kind,
        "status": outcome.status,
        "reason": outcome.reason,
        "exit_code": outcome.exit_code,
        "failed_rank": outcome.failed_rank,
        "failed_node": outcome.failed_node,
        "verdict": outcome.verdict,
        "hang": outcome.hang or None,
        **_of_driver(folder, outcome),
        "attempt": len(outcome.attempts),
        "attempts": [
            {
                "attempt": one.attempt,
                "ended_at": utc(one.time),
                "exit_code": one.exit_code,
                "reason": one.reason,
                "kind": one.kind,
            }
            for one in outcome.attempts
        ],
        **{key: value for key, value in spec.items() if key not in ("name", "type", "services", "outputs")},
        "outputs": _outputs(name, outcome.kind, spec.get("outputs")),
        **_found(folder, outcome, brief=brief),
        "id": f"azureml:{name}",
        "creation_context": {
            "created_at": utc(outcome.created),
            "created_by": outcome.user,
            "created_by_type": "User",
        },
        "started_at": utc(outcome.started),
        "ended_at": utc(outcome.ended),
        "services": {
            **_beside(outcome),
            "Studio": {"endpoint": link, "type": "Studio"},
            "Tracking": _tracking(folder, outcome, brief=brief),
        },
        "run_folder": folder.path,
        **_prepared(outcome),
        "containment": outcome.containment or None,
        **_of_engine(folder, outcome, brief=brief),
        "ranks": [
            {
                "rank": rank.rank,
                "node": rank.node,
                "state": rank.state,
                "exit_code": rank.code,
                "signal": rank.signal,
                "started_at": utc(rank.started),
                "ended_at": utc(rank.ended),
            }
            for _, rank in sorted(outcome.ranks.items())
        ],
    }
    if outcome.kind != "command":
        for key in _OF_RANKS:
            described.pop(key, None)
    elif not outcome.is_final:
        described["processes"] = _processes(folder, outcome)
    if outcome.ranks and not brief:
        from drumline.control import usage

        described["resources_used"] = usage.used(folder, outcome)
        described |= _metrics(folder, outcome)
    return described


_OF_RANKS = ("attempt", "attempts", "ranks", "hang", "containment", "failed_rank", "failed_node", "verdict")


def _of_driver(folder: RunFolder, outcome: Outcome) -> dict[str, Any]:
    """The steps of a pipeline in their order, the trials of a sweep."""
    if outcome.kind == "command":
        return {}
    if outcome.kind == "sweep":
        from drumline.control.driver import sweep

        return sweep.describe(folder, outcome)
    graph = folder.read_json(folder.graph) or {}
    listed = []
    for planned in graph.get("steps") or ():
        name = str(planned.get("name"))
        step = outcome.steps.get(name)
        state, reason = _state_of_step(step) if step else (status.NOT_STARTED, "")
        listed.append(
            {
                "step": name,
                "status": state,
                "job": (step.job or None) if step else None,
                "reused": bool(step.detail.get("reused")) if step else False,
                "needs": list(planned.get("needs") or ()),
                "started_at": utc(step.started) if step else None,
                "ended_at": utc(step.ended) if step else None,
                "reason": reason,
            }
        )
    return {"steps": listed}


def _state_of_step(step: StepOutcome) -> tuple[str, str]:
    """Status and reason; of one under way what its own events say, or its engine: it may be in line."""
    if step.status or not step.job:
        return step.status or status.RUNNING, step.reason
    folder = RunFolder.of(step.job)
    outcome = fold(folder.read_events())
    if is_elsewhere(outcome.engine):
        outcome = outcome_of(folder)
    return outcome.status, outcome.reason


def _of_engine(folder: RunFolder, outcome: Outcome, *, brief: bool) -> dict[str, Any]:
    """Which machines its nodes are, by what they reach each other, and what the engine calls it."""
    if not is_elsewhere(outcome.engine):
        return {}
    network = outcome.network
    return {
        outcome.engine: engine(outcome.engine).describe_job(folder, brief=brief),
        "nodes": [
            {
                "node": node,
                "host": host,
                "address": network.addresses[node] if network else None,
                "interface": network.interfaces[node] if network else None,
            }
            for node, host in sorted(outcome.hosts.items())
        ],
        "network": network.reason if network else None,
    }


def _outputs(job: str, kind: str, written: Any) -> dict[str, Any]:
    """
    Each with a path that is an input of another job as it stands: that which it was given, else
    ``azureml://jobs/<job>/outputs/<output>``.
    """
    outputs: dict[str, Any] = {"default": {"type": "uri_folder"}} if kind == "command" else {}
    outputs |= written if isinstance(written, dict) else {}
    shown = {}
    for output, given in outputs.items():
        values = dict(given) if isinstance(given, dict) else {"path": given} if isinstance(given, str) else {}
        path = (
            str(values.get("path") or "").replace("${{name}}", job).replace("${{output_name}}", str(output))
        )
        shown[str(output)] = {
            **values,
            "type": values.get("type") or "uri_folder",
            "path": path if path and "${{" not in path else f"azureml://jobs/{job}/outputs/{output}",
        }
    return shown


def _found(folder: RunFolder, outcome: Outcome, *, brief: bool) -> dict[str, Any]:
    """What references led to, and which assets its outputs have become."""
    found: dict[str, Any] = {}
    if not brief:
        found["resolved"] = (folder.read_json(folder.plan) or {}).get("resolved") or None
    if outcome.registered:
        found["registered"] = {
            output: f"not registered: {one.error}" if one.error else f"azureml:{one.name}:{one.version}"
            for output, one in outcome.registered.items()
        }
    return found


def _prepared(outcome: Outcome) -> dict[str, Any]:
    """The data that was fetched or written elsewhere, and the environment that was made."""
    found: dict[str, Any] = {}
    if outcome.transfers:
        found["data"] = {
            name: {key: value for key, value in one._asdict().items() if key not in ("time", "name")}
            for name, one in sorted(outcome.transfers.items())
        }
    if outcome.environment is not None:
        made = outcome.environment._asdict()
        found["environment_built"] = {key: value for key, value in made.items() if key != "time"}
    return found


def _metrics(folder: RunFolder, outcome: Outcome) -> dict[str, Any]:
    """The newest value of each; how many others there are."""
    if outcome.started is None:
        return {"metrics": {}}
    from drumline.control import metrics

    latest, left_out = metrics.latest_of(folder)
    return {"metrics": latest, **({"metrics_left_out": left_out} if left_out else {})}


def _tracking(folder: RunFolder, outcome: Outcome, *, brief: bool) -> dict[str, Any]:
    """Where its metrics are."""
    from drumline.control import tracking

    endpoint = (
        mlflow_files.uri_of(folder.root)
        if brief or outcome.started is None
        else "".join(tracking.endpoint_of(folder))
    )
    told = outcome.services.get("Tracking")
    warning = {"warning": told.error} if told and told.error else {}
    return {"endpoint": endpoint, "type": "Tracking", **warning}


def _beside(outcome: Outcome) -> dict[str, Any]:
    """The programs beside its ranks."""
    found = {}
    for name, one in sorted(outcome.services.items()):
        if one.kind != "tensor_board":
            continue
        state = "Failed" if one.error else "Stopped" if outcome.is_final else "Running"
        found[name] = {"endpoint": one.url or None, "type": "TensorBoard", "status": state}
        if one.error:
            found[name]["error"] = one.error
    return found


def services_of(folder: RunFolder) -> dict[str, Any]:
    """As ``az ml job show-services`` prints them."""
    return _beside(outcome_of(folder))


def _processes(folder: RunFolder, outcome: Outcome) -> dict[str, Any]:
    who = folder.read_json(folder.supervisor) or {}
    return {
        "supervisor": who.get("pid"),
        "agents": [pid for _, pid in sorted(outcome.agents.items())],
        "ranks": [
            {"rank": rank.rank, "node": rank.node, "pid": rank.pid}
            for _, rank in sorted(outcome.ranks.items())
            if rank.ended is None
        ],
    }


def utc(seconds: float | None) -> str | None:
    """Seconds since 1970 as RFC 3339."""
    if seconds is None:
        return None
    from datetime import UTC, datetime

    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
