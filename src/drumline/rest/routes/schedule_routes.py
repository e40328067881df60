"""Schedules: kept, listed and deleted; ``trigger`` submits the job. Nothing runs by the clock, and answers say so."""

from __future__ import annotations

from typing import Any

from drumline.contract.errors import SpecError, UsageError
from drumline.contract.folder import home
from drumline.control.assets import schedules
from drumline.control.jobs import lookup
from drumline.control.readable import readable
from drumline.control.submission import driven, run_folder
from drumline.control.submission.rerun import prepare_rerun
from drumline.control.submission.submit import submit
from drumline.rest import job_bodies
from drumline.rest.arm import Call, Reply, page, warn
from drumline.rest.resource_ids import check_mapping, check_text, read_properties
from drumline.rest.routes.uploads import find_code
from drumline.spec.load import load_job_values
from drumline.staging.snapshot.partial_folder import snapshot_path
from drumline.staging.snapshot.take import take_snapshot

_NOTE = "drumline.warning"
_TEXT = "Drumline runs nothing by the clock: trigger submits the job once, and cron can call that"
_ACTION = "CreateJob"
_VIEWS = {"EnabledOnly": (True,), "DisabledOnly": (False,)}


def put_schedule(call: Call) -> Reply:
    """Keep a schedule whose job could be submitted now, with the code that it names."""
    name, properties = call.name(), read_properties(call.body)
    kept = check_mapping(properties.pop("properties", {}), "properties.properties")
    kept.pop(_NOTE, None)
    before = schedules.get(name) if name in schedules.names() else {}
    record = {"properties": {"isEnabled": True, **properties, "properties": kept}}
    record["code"] = dict(before.get("code") or {})
    with run_folder.hold_removal_lock(home()):
        job, source = _read_job(record)
        if source:
            lookup.folder_of(source)
        else:
            driven.warnings_of(job)
        schedules.put(name, record)
    warn(f"schedule {name} is stored; {_TEXT}")
    return Reply(show_schedule(call), 200 if before else 201)


def _read_job(record: dict[str, Any]) -> tuple[Any, str]:
    """Return the job of a schedule, or the name of one to run again; keeps in the record the code that it names."""
    action = check_mapping(record["properties"].get("action"), "properties.action")
    if action.get("actionType") != _ACTION:
        raise SpecError(f"the action of a schedule must be {_ACTION}; got {action.get('actionType')!r}")
    definition = check_mapping(action.get("jobDefinition"), "properties.action.jobDefinition")
    if "sourceJobId" in definition and not definition.keys() & {"jobs", "command", "trial"}:
        return None, check_text(definition["sourceJobId"], "sourceJobId").rstrip("/").rpartition("/")[2]
    before, code = record["code"], {}

    def find(name: str, version: str) -> str:
        key = f"{name}/{version}"
        code[key] = before.get(key) or take_snapshot(find_code(name, version), home()).digest
        return snapshot_path(home(), code[key])

    record["code"] = code
    values = job_bodies.read_job("", {"properties": definition}, find)
    del values["name"]
    return load_job_values(values, home()), ""


def _write(call: Call, name: str) -> dict[str, Any]:
    record = schedules.get(name)
    properties = {**record["properties"], "provisioningState": "Succeeded"}
    properties["properties"] = {**properties["properties"], _NOTE: _TEXT}
    made = {"createdAt": record["created_at"], "createdBy": record["created_by"], "createdByType": "User"}
    return job_bodies.write_resource({"creation_context": made}, call.make_id("schedules", name), properties)


def show_schedule(call: Call) -> dict[str, Any]:
    return _write(call, call.name())


def list_schedules(call: Call) -> dict[str, Any]:
    wanted = _VIEWS.get(call.query.get("listViewType", "EnabledOnly"), (True, False))
    bodies = readable(schedules.names(), lambda name: _write(call, name), warn)
    return page((body for body in bodies if body["properties"]["isEnabled"] in wanted), call)


def delete_schedule(call: Call) -> Reply:
    schedules.delete(call.name())
    return Reply({})


def trigger_schedule(call: Call) -> dict[str, Any]:
    """Submit the job of a schedule, once, under a new name."""
    name = call.name()
    record = schedules.get(name)
    if not record["properties"]["isEnabled"]:
        raise UsageError(f"schedule {name!r} is disabled", "enable it first")
    job, source = _read_job(record)
    again = prepare_rerun(source) if source else None
    submitted = submit(again.job, again.run) if again else submit(job)
    return {"scheduleActionType": _ACTION, "submissionId": submitted.name}


ROUTES = [
    ("GET", "/schedules", list_schedules),
    ("GET", "/schedules/{name}", show_schedule),
    ("PUT", "/schedules/{name}", put_schedule),
    ("DELETE", "/schedules/{name}", delete_schedule),
    ("POST", "/schedules/{name}/trigger", trigger_schedule),
]
