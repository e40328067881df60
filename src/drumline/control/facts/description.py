"""A job as ``az ml job show`` prints one, and what only Drumline knows."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from drumline.contract import status
from drumline.contract.errors import NotFoundError
from drumline.contract.folder import RunFolder
from drumline.contract.hiding import hide_in_job, hide_secrets
from drumline.contract.mlflow import is_server
from drumline.contract.outcome import fold
from drumline.contract.plan import Plan
from drumline.control.jobs.lookup import folder_of, is_own, may_have_studio, read_spec
from drumline.control.jobs.outcome import read_outcome
from drumline.control.jobs.recovery import recover
from drumline.control.settings.tracking import VARIABLE
from drumline.control.times import utc
from drumline.engines.table import engine, is_elsewhere
from drumline.tracking import mlflow_files

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drumline.contract.outcome import Outcome, StepOutcome


def show_job(name: str, *, brief: bool = False, is_whole: bool = False) -> dict[str, Any]:
    """Recover the job where that is necessary, and describe it. Raises NotFoundError."""
    folder = folder_of(name)
    return describe(folder, recover(folder), brief=brief, is_whole=is_whole)


def show_jobs(names: list[str]) -> Iterator[dict[str, Any]]:
    """Do as ``show_job``, in brief and whole, for each of those jobs that is still there."""
    for name in names:
        try:
            yield show_job(name, brief=True, is_whole=True)
        except NotFoundError:
            continue


def describe(
    folder: RunFolder, outcome: Outcome, *, brief: bool = False, is_whole: bool = False
) -> dict[str, Any]:
    """
    Describe a job as ``az ml job show`` prints one, with what only Drumline knows.

    Times are RFC 3339 in UTC; ``exit_code`` is None until the job has ended. ``brief``: as of Engine.describe_job.
    ``is_whole``: with the values of secrets, for a job that is made of it.
    """
    name = folder.name
    spec = {**read_spec(folder), **outcome.edits}
    if not is_whole:
        spec = hide_in_job(spec)
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
        **describe_parts(folder, outcome),
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
        **_describe_warnings(outcome),
        **_describe_drills(outcome),
        **_describe_experiments(folder, outcome, brief=brief),
        **{key: value for key, value in spec.items() if key not in ("name", "type", "services", "outputs")},
        "outputs": _outputs(name, outcome.kind, spec.get("outputs")),
        **_describe_references(folder, outcome, brief=brief),
        "id": f"azureml:{name}",
        "creation_context": {
            "created_at": utc(outcome.created),
            "created_by": outcome.user,
            "created_by_type": "User",
        },
        "started_at": utc(outcome.started),
        "ended_at": utc(outcome.ended),
        "services": {
            **describe_services(outcome),
            "Studio": {"endpoint": f"file://{folder.path}" if brief else find_page(folder), "type": "Studio"},
            "Tracking": _tracking(folder, outcome, brief=brief),
            **_describe_notifications(outcome),
        },
        "run_folder": folder.path,
        **({"pruned": {part: utc(time) for part, time in outcome.pruned.items()}} if outcome.pruned else {}),
        **_describe_preparation(outcome),
        "containment": outcome.containment or None,
        **_describe_preflight(outcome),
        **_describe_engine(folder, outcome, brief=brief),
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
        for key in _RANK_KEYS:
            described.pop(key, None)
    elif not outcome.is_final:
        described["processes"] = _processes(folder, outcome)
    if outcome.ranks and not brief:
        from drumline.control.facts import usage

        described |= _describe_training(folder, outcome)
        described["resources_used"] = usage.summarize_usage(folder, outcome)
        described |= _metrics(folder, outcome)
    return described


def _describe_warnings(outcome: Outcome) -> dict[str, Any]:
    """Describe what is likely wrong with a job that goes on; nothing of one without such."""
    if not outcome.warnings:
        return {}
    return {
        "warnings": [{"kind": one.kind, "text": one.text, "at": utc(one.time)} for one in outcome.warnings]
    }


def _describe_training(folder: RunFolder, outcome: Outcome) -> dict[str, Any]:
    """Describe the steps of the ranks' training loops; nothing of a job without any."""
    from drumline.control.facts.steps import describe_steps

    steps = describe_steps(folder, outcome)
    return {"steps": steps} if steps else {}


def _describe_drills(outcome: Outcome) -> dict[str, Any]:
    """Describe the failures that were made on purpose; nothing of a job without any."""
    if not outcome.drills:
        return {}
    from drumline.control.jobs import drill_requests

    return {"drills": drill_requests.describe_all(outcome)}


def _describe_experiments(folder: RunFolder, outcome: Outcome, *, brief: bool) -> dict[str, Any]:
    """Describe the experiments of DeepSpeed's autotuner; nothing of a job without any."""
    if not outcome.experiments:
        return {}
    from drumline.control.facts import parts

    return parts.describe_all(folder, outcome, brief=brief)


def find_page(folder: RunFolder) -> str:
    """Return the address of the job's page in a studio that runs, else that of its run folder."""
    found = ""
    if may_have_studio():
        from drumline.control.settings import studios

        found = studios.find_page(folder.name)
    return found or f"file://{folder.path}"


_RANK_KEYS = ("attempt", "attempts", "ranks", "hang", "containment", "failed_rank", "failed_node", "verdict")


def describe_parts(folder: RunFolder, outcome: Outcome) -> dict[str, Any]:
    """Describe the steps of a pipeline in their order, or the trials of a sweep; nothing of a job with ranks."""
    if outcome.kind == "command":
        return {}
    if outcome.kind == "sweep":
        from drumline.control.facts import parts

        return parts.describe(folder, outcome)
    graph = folder.read_json(folder.graph) or {}
    listed = []
    for planned in graph.get("steps") or ():
        name = str(planned.get("name"))
        step = outcome.steps.get(name)
        own = _outcome_of_step(step) if step else None
        # A driver says that it starts a step before there is a job of it, and may be killed in between.
        state = (own.status if own else step.status or status.NOT_STARTED) if step else status.NOT_STARTED
        listed.append(
            {
                "step": name,
                "status": state,
                "job": (step.job or None) if step else None,
                "reused": bool(step.detail.get("reused")) if step else False,
                "not_reused": str(step.detail.get("not_reused") or "") if step else "",
                "needs": list(planned.get("needs") or ()),
                "started_at": utc(step.started) if step else None,
                "ended_at": utc(step.ended) if step else None,
                "reason": (own.why if own else step.reason) if step else "",
                "seconds": step.run_seconds(own, time.time()) if step else None,
            }
        )
    return {"steps": listed}


def _outcome_of_step(step: StepOutcome) -> Outcome | None:
    """Return the outcome of a step under way, by its own events or its engine; None for one that has ended."""
    if step.status or not step.job:
        return None
    folder = RunFolder.for_job(step.job)
    if not is_own(folder):
        return None
    outcome = fold(folder.read_events())
    if is_elsewhere(outcome.engine):
        outcome = read_outcome(folder)
    return outcome


def _describe_preflight(outcome: Outcome) -> dict[str, Any]:
    """Describe the checks of the nodes before the ranks started; nothing of a job that had none."""
    event = outcome.preflight
    if event is None:
        return {}
    return {
        "preflight": {
            "seconds": event.seconds,
            "findings": event.detail.get("findings") or [],
            "links": event.detail.get("links") or [],
        }
    }


def _describe_engine(folder: RunFolder, outcome: Outcome, *, brief: bool) -> dict[str, Any]:
    """Describe the nodes of a job, their network, and the engine's view of it."""
    network = outcome.network
    if not is_elsewhere(outcome.engine) and network is None:
        return {}
    described = engine(outcome.engine).describe_job(folder, brief=brief)
    return {
        **({outcome.engine: described} if is_elsewhere(outcome.engine) else {}),
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
    Describe the outputs; the path of each can be another job's input as it stands.

    It is the path that was given, else ``azureml://jobs/<job>/outputs/<output>``.
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


def _describe_references(folder: RunFolder, outcome: Outcome, *, brief: bool) -> dict[str, Any]:
    """Describe what references were resolved to, and which assets the outputs have become."""
    found: dict[str, Any] = {}
    if not brief:
        resolved = (folder.read_json(folder.plan) or {}).get("resolved") or {}
        found["resolved"] = hide_in_job(resolved) or None
    if outcome.registered:
        found["registered"] = {
            output: f"not registered: {one.error}" if one.error else f"azureml:{one.name}:{one.version}"
            for output, one in outcome.registered.items()
        }
    return found


def _describe_preparation(outcome: Outcome) -> dict[str, Any]:
    """Describe the data that was downloaded or uploaded, and the environment that was built."""
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
    """Return the newest value of each metric, and how many more there are."""
    if outcome.started is None:
        return {"metrics": {}}
    from drumline.control.facts import metrics

    latest, left_out = metrics.read_latest(folder)
    return {"metrics": latest, **({"metrics_left_out": left_out} if left_out else {})}


def _tracking(folder: RunFolder, outcome: Outcome, *, brief: bool) -> dict[str, Any]:
    """Describe where the metrics of the job are."""

    endpoint = (
        mlflow_files.uri_of(folder.root) if brief or outcome.started is None else "".join(endpoint_of(folder))
    )
    told = outcome.services.get("Tracking")
    warning = {"warning": told.error} if told and told.error else {}
    return {"endpoint": endpoint, "type": "Tracking", **warning}


def _describe_notifications(outcome: Outcome) -> dict[str, Any]:
    """Describe who could not be told of the job; nothing where all were."""
    told = outcome.services.get("Notifications")
    return {"Notifications": {"type": "Notifications", "warning": told.error}} if told and told.error else {}


def describe_services(outcome: Outcome) -> dict[str, Any]:
    """Describe the programs beside the ranks."""
    found = {}
    for name, one in sorted(outcome.services.items()):
        if one.kind != "tensor_board":
            continue
        state = "Failed" if one.error else "Stopped" if outcome.is_final else "Running"
        found[name] = {"endpoint": one.url or None, "type": "TensorBoard", "status": state}
        if one.error:
            found[name]["error"] = one.error
    return found


def show_services(name: str) -> dict[str, Any]:
    """
    Recover the job where that is necessary, and describe the programs beside its ranks, by name.

    Raises NotFoundError.
    """
    return describe_services(recover(folder_of(name)))


def _processes(folder: RunFolder, outcome: Outcome) -> dict[str, Any]:
    who = folder.read_json(folder.supervisor) or {}
    return {
        "supervisor": who.get("pid"),
        "agents": [pid for _, pid in sorted(outcome.agents.items())],
        "ranks": [
            {"rank": rank.rank, "node": rank.node, "pid": rank.pid}
            for _, rank in sorted(outcome.ranks.items())
            if rank.state == "running"
        ],
    }


# where MLflow has what a job has logged


def pages_of(folder: RunFolder) -> str:
    """Return how to see in MLflow what a job has logged: a command, or an address."""
    import shlex

    where, experiment = endpoint_of(folder)
    if is_server(where):
        return f"mlflow: {where}{experiment}"
    return f"mlflow: MLFLOW_ALLOW_FILE_STORE=true mlflow ui --backend-store-uri {shlex.quote(where)}"


def endpoint_of(folder: RunFolder) -> tuple[str, str]:
    """Return the address of the store without its password, and the page of the run at a server."""
    local = mlflow_files.uri_of(folder.root)
    if os.path.exists(folder.graph):
        return local, ""
    from drumline.tracking import runs

    try:
        plan = Plan.read(folder.plan)
    except (OSError, ValueError, TypeError, KeyError):
        return local, ""
    where = runs.find_run(folder, plan)
    if where.server:
        experiment = str((folder.read_json(runs.note_path(folder)) or {}).get("experiment_id") or "")
        page = f"/#/experiments/{experiment}/runs/{where.run_id}" if experiment else ""
        return _without_password(where.server).rstrip("/"), page
    if where.run_dir:
        return mlflow_files.uri_of_folder(os.path.dirname(os.path.dirname(where.run_dir))), ""
    own = plan.user_env.get(VARIABLE, "")
    return (_without_password(own) if own else local), ""


def _without_password(uri: str) -> str:
    return hide_secrets(uri)
