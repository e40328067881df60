"""The run history: the state of jobs while they run, their logs, and what may be changed of them."""

from __future__ import annotations

import os
import time
from typing import Any
from urllib.parse import quote

from drumline.contract import status
from drumline.contract.errors import UsageError
from drumline.control.facts import description
from drumline.control.jobs import job_folders, job_outputs, lookup
from drumline.control.jobs.job_outcome import read_outcome
from drumline.rest import blob_access
from drumline.rest.arm import Call, to_number
from drumline.rest.blob_files import ARTIFACTS
from drumline.rest.routes.job_routes import edit
from drumline.rest.routes.uploads import name_datastore_container

_LOG_OF_DRIVER = "system_logs/driver.log"
_LOGS_OF_DRIVERS = ("logs/azureml/executionlogs.txt", "azureml-logs/hyperdrive.txt")
"""The names under which the client looks for the log of a pipeline and of a sweep."""

_RUNS = "ExperimentRun/dcid."
_TOLD_LATER_S = 5.0
_LOG_S = 24 * 3600.0
_EDITABLE = {
    "displayName": "display_name",
    "description": "description",
    "tags": "tags",
    "properties": "properties",
}
_KINDS = {"command": "azureml.scriptrun", "pipeline": "azureml.PipelineRun", "sweep": "hyperdrive"}


def show_run(call: Call) -> dict[str, Any]:
    return _write_run(call, call.name())


def show_details(call: Call) -> dict[str, Any]:
    """
    Show a run with its logs. The end of a job is told some seconds later: the client reads no log of a job that has
    ended when it begins to follow it, as quick ones have.
    """
    name = call.name()
    details = {**_write_run(call, name), "logFiles": _list_logs(call, name)}
    ended = read_outcome(lookup.folder_of(name)).ended
    if details["status"] in status.TERMINAL and ended and time.time() - ended < _TOLD_LATER_S:
        details["status"] = status.FINALIZING
    return details


def list_children(call: Call) -> dict[str, Any]:
    limit = to_number(call.query["$top"]) if "$top" in call.query else None
    names = job_folders.names(archived=None, parent=call.name(), limit=limit)
    return {"value": [_write_run(call, name) for name in names]}


def _write_run(call: Call, name: str) -> dict[str, Any]:
    described = description.show_job(name, brief=True)
    outcome = read_outcome(lookup.folder_of(name))
    created = described["creation_context"]
    run: dict[str, Any] = {
        "runId": name,
        "displayName": described["display_name"],
        "description": described.get("description"),
        "experimentId": described["experiment_name"],
        "status": described["status"],
        "runType": _KINDS.get(described["type"], "azureml.scriptrun"),
        "createdUtc": created["created_at"],
        "createdTimeUtc": created["created_at"],
        "createdBy": {"userName": created["created_by"]},
        "startTimeUtc": described.get("started_at"),
        "endTimeUtc": described.get("ended_at"),
        "parentRunId": described.get("parent_job_name"),
        "rootRunId": described.get("parent_job_name") or name,
        "hidden": outcome.archived,
        "tags": described.get("tags") or {},
        "properties": described.get("properties") or {},
        "target": described.get("compute") or "local",
        "warnings": [{"source": "Drumline", "message": one} for one in described.get("warnings") or ()],
    }
    if described["status"] == status.FAILED:
        run["error"] = {"error": {"code": "UserError", "message": described["reason"]}}
    return run


def _list_logs(call: Call, name: str) -> dict[str, str]:
    """Return the address of each log, by its name as the client chooses them: ``user_logs/std_log_process_00.txt``."""
    folder = lookup.folder_of(name)
    try:
        files = sorted(file for file in os.listdir(folder.user_logs) if file.endswith(".txt"))
    except OSError:  # They were pruned.
        files = []
    paths = {f"user_logs/{file}": f"user_logs/{file}" for file in files}
    if not files and os.path.exists(folder.graph):
        paths = dict.fromkeys(_LOGS_OF_DRIVERS, _LOG_OF_DRIVER)
    container = name_datastore_container(call, ARTIFACTS)
    addresses = {}
    for shown, path in paths.items():
        blob = f"{_RUNS}{name}/{path}"
        token = blob_access.sign(call.key, container, "r", _LOG_S, blob)
        addresses[shown] = f"{call.address}/{container}/{quote(blob)}?{token}"
    return addresses


def show_services(call: Call) -> dict[str, Any]:
    shown = description.show_services(call.name())
    instances: dict[str, dict[str, Any]] = {
        name: {
            "type": service.type,
            "status": service.status or "Running",
            "endpoint": service.endpoint or None,
            "properties": {},
        }
        for name, service in shown.items()
    }
    return {"instances": instances}


def show_run_data(call: Call) -> dict[str, Any]:
    name = str(call.body.get("runId") or "")
    kept = job_outputs.list_named(lookup.folder_of(name))
    outputs = {output: {"assetId": f"{name}/{output}", "type": "uri_folder"} for output in kept}
    return {"runMetadata": {**_write_run(call, name), "outputs": outputs}}


def resolve_outputs(call: Call) -> dict[str, Any]:
    """Say where named outputs are, by the ids of ``show_run_data``."""
    wanted = call.body.get("values")
    if not isinstance(wanted, list):
        raise UsageError("values: ids of data are wanted")
    scope = call.scope
    place = f"subscriptions/{scope.subscription}/resourcegroups/{scope.group}/workspaces/{scope.workspace}"
    places = {}
    for asset in map(str, wanted):
        job, _, output = asset.partition("/")
        path = f"{_RUNS}{job}/named-outputs/{output}/"
        places[asset] = {
            "uri": f"azureml://{place}/datastores/{ARTIFACTS}/paths/{path}",
            "type": "uri_folder",
        }
    return {"values": places}


def update_run(call: Call) -> dict[str, Any]:
    """Change a run; ``hidden`` archives and restores it."""
    name = call.name()
    lookup.folder_of(name)
    if isinstance(call.body.get("hidden"), bool):
        job_folders.set_archived(name, archived=call.body["hidden"])
    given = {ours: call.body.get(theirs) for theirs, ours in _EDITABLE.items()}
    edit(name, {field: value for field, value in given.items() if value is not None})
    return _write_run(call, name)


ROUTES = [
    ("GET", "/runs/{name}", show_run),
    ("GET", "/runs/{name}/details", show_details),
    ("GET", "/runs/{name}/children", list_children),
    ("GET", "/runs/{name}/serviceinstances/{node}", show_services),
    ("POST", "/rundata", show_run_data),
    ("PATCH", "/experiments/{experiment}/runs/{name}", update_run),
]
DATA_ROUTES = [("POST", "/dataversion/batchGetResolvedUris", resolve_outputs)]
