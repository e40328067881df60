"""A job as ``az ml job show`` prints one, and what only Drumline knows."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import NotFoundError
from drumline.contract.hiding import hide_in_job, hide_secrets
from drumline.contract.mlflow_variables import is_server
from drumline.contract.record import ABSENT, Absent, NamedTuple, describe_record
from drumline.control.facts.doubts import list_warnings
from drumline.control.jobs.lookup import find_plan, folder_of, may_have_studio, read_spec
from drumline.control.jobs.recovery import recover
from drumline.control.settings.tracking import VARIABLE
from drumline.control.times import utc
from drumline.engines.engine_table import engine, is_elsewhere
from drumline.tracking import mlflow_files

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drumline.contract.folder import RunFolder
    from drumline.contract.outcome import Outcome


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
    plan = {} if brief else folder.read_json(folder.plan) or {}
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
        **_describe_parts(folder, outcome),
        "attempt": len(outcome.attempts),
        "attempts": [
            {
                "attempt": attempt.attempt,
                "ended_at": utc(attempt.time),
                "exit_code": attempt.exit_code,
                "reason": attempt.reason,
                "kind": attempt.kind,
            }
            for attempt in outcome.attempts
        ],
        "warnings": [
            {"kind": warning.kind, "text": warning.text, "at": utc(warning.time)}
            for warning in (outcome.warnings if brief else list_warnings(folder, outcome))
        ],
        **{key: value for key, value in spec.items() if key not in ("name", "type", "services", "outputs")},
        "outputs": _outputs(name, outcome.kind, spec.get("outputs")),
        **({} if brief else {"resolved": hide_in_job(plan.get("resolved") or {}) or None}),
        "registered": {
            output: f"not registered: {asset.error}"
            if asset.error
            else f"azureml:{asset.name}:{asset.version}"
            for output, asset in outcome.registered.items()
        },
        "id": f"azureml:{name}",
        "creation_context": {
            "created_at": utc(outcome.created),
            "created_by": outcome.user,
            "created_by_type": "User",
        },
        "started_at": utc(outcome.started),
        "ended_at": utc(outcome.ended),
        "services": _describe_all_services(folder, outcome, brief=brief),
        "run_folder": folder.path,
        "pruned": {part: utc(time) for part, time in outcome.pruned.items()},
        "data": {
            name: {key: value for key, value in transfer._asdict().items() if key not in ("time", "name")}
            for name, transfer in sorted(outcome.transfers.items())
        },
        "environment_built": outcome.environment
        and {key: value for key, value in outcome.environment._asdict().items() if key != "time"},
        "containment": outcome.containment or None,
        "preflight": outcome.preflight
        and {
            "seconds": outcome.preflight.seconds,
            "findings": outcome.preflight.detail.get("findings") or [],
            "links": outcome.preflight.detail.get("links") or [],
        },
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
    if outcome.kind == "command" and not outcome.is_final:
        described["processes"] = {
            "supervisor": (folder.read_json(folder.supervisor) or {}).get("pid"),
            "agents": [pid for _, pid in sorted(outcome.agents.items())],
            "ranks": [
                {"rank": rank.rank, "node": rank.node, "pid": rank.pid}
                for _, rank in sorted(outcome.ranks.items())
                if rank.state == "running"
            ],
        }
    if outcome.drills:
        from drumline.control.jobs import drill_requests

        described["drills"] = list(map(drill_requests.describe_one, outcome.drills.values()))
    if outcome.experiments:
        from drumline.control.facts import parts

        described["experiments"] = parts.list_experiments(folder, outcome, brief=brief)
    if outcome.ranks and not brief:
        from drumline.control.facts import metrics, steps, usage

        training = steps.describe_steps(folder, outcome)
        described |= {"steps": training} if training else {}
        totals = [rank._asdict() for rank in usage.list_totals(folder, outcome)]
        described["resources_used"] = {"ranks": totals} if totals else None
        described["metrics"], described["metrics_left_out"] = (
            metrics.read_latest(folder) if outcome.started is not None else ({}, 0)
        )
    unneeded = () if outcome.kind == "command" else _RANK_KEYS
    return {
        key: describe_record(value)
        for key, value in described.items()
        if key not in unneeded and (value or key not in _OPTIONAL_KEYS)
    }


_RANK_KEYS = ("attempt", "attempts", "ranks", "hang", "containment", "failed_rank", "failed_node", "verdict")
_OPTIONAL_KEYS = (
    *("warnings", "drills", "registered", "pruned", "data", "environment_built", "preflight"),
    "metrics_left_out",
)


def _describe_parts(folder: RunFolder, outcome: Outcome) -> dict[str, Any]:
    """Describe the steps of a pipeline in their order, or the trials of a sweep; nothing of a job with ranks."""
    if outcome.kind == "command":
        return {}
    from drumline.control.facts import parts

    is_sweep = outcome.kind == "sweep"
    listed = [
        part._asdict() | {"started_at": utc(part.started_at), "ended_at": utc(part.ended_at)}
        for part in (parts.list_trials if is_sweep else parts.list_steps)(folder, outcome)
    ]
    if not is_sweep:
        return {"steps": listed}
    best = next((trial for trial in listed if trial["rank"] == 1), None)
    best_trial = best and {key: best[key] for key in ("trial", "metric", "params")}
    return {"trials": listed, "best_trial": best_trial}


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


class ServiceState(NamedTuple):
    """A program beside the ranks, or a page of the job. ``error`` and ``warning``: where there is one."""

    endpoint: str | Absent | None
    type: str
    status: str | Absent = ABSENT
    error: str | Absent = ABSENT
    warning: str | Absent = ABSENT


def _describe_all_services(folder: RunFolder, outcome: Outcome, *, brief: bool) -> dict[str, ServiceState]:
    """Describe the programs beside the ranks, the pages of the job, and notices that could not be sent."""
    page = ""
    if not brief and may_have_studio():
        from drumline.control.settings import studios

        page = studios.find_page(folder.name)
    is_unread = brief or outcome.started is None
    endpoint = mlflow_files.uri_of(folder.root) if is_unread else "".join(endpoint_of(folder))
    services = describe_services(outcome)
    services["Studio"] = ServiceState(page or f"file://{folder.path}", "Studio")
    services["Tracking"] = ServiceState(endpoint, "Tracking")
    for name in ("Tracking", "Notifications"):
        service = outcome.services.get(name)
        if service and service.error:
            known = services.get(name, ServiceState(ABSENT, name))
            services[name] = known._replace(warning=service.error)
    return services


def describe_services(outcome: Outcome) -> dict[str, ServiceState]:
    """Describe the programs beside the ranks."""
    return {
        name: ServiceState(
            service.url or None,
            "TensorBoard",
            "Failed" if service.error else "Stopped" if outcome.is_final else "Running",
            service.error or ABSENT,
        )
        for name, service in sorted(outcome.services.items())
        if service.kind == "tensor_board"
    }


def show_services(name: str) -> dict[str, ServiceState]:
    """
    Recover the job where that is necessary, and describe the programs beside its ranks, by name.

    Raises NotFoundError.
    """
    return describe_services(recover(folder_of(name)))


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

    plan = find_plan(folder)
    if plan is None:
        return local, ""
    where = runs.find_run(folder, plan)
    if where.server:
        experiment = str((folder.read_json(runs.note_path(folder)) or {}).get("experiment_id") or "")
        page = f"/#/experiments/{experiment}/runs/{where.run_id}" if experiment else ""
        return hide_secrets(where.server).rstrip("/"), page
    if where.run_dir:
        return mlflow_files.uri_of_folder(os.path.dirname(os.path.dirname(where.run_dir))), ""
    own = plan.user_env.get(VARIABLE, "")
    return (hide_secrets(own) if own else local), ""
