"""Jobs: submitted, changed, shown, listed, canceled and deleted."""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from drumline.contract.errors import DAMAGED, NotFoundError, PlanError, UsageError
from drumline.contract.folder import RunFolder, home
from drumline.control.driver.children import belongs_to_another, complete_submission
from drumline.control.facts import description
from drumline.control.jobs import ending, job_folders, lookup
from drumline.control.jobs.job_outcome import read_outcome
from drumline.control.jobs.recovery import recover
from drumline.control.settings import studios
from drumline.control.submission.submit import submit
from drumline.control.upkeep import pruning
from drumline.rest import job_bodies
from drumline.rest.arm import Call, Reply, choose_archived, page, to_number, warn
from drumline.rest.resource_ids import read_properties
from drumline.rest.routes.asset_routes import name_versions
from drumline.rest.routes.uploads import find_code
from drumline.spec.load import load_job_values

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_REQUEST = "drumline.request"
"""The property of a job that tells the body which made it, by a digest."""

_PAGE = 50
_OTHER_TRY_S = 20.0
_OTHER_TRY_POLL_S = 0.05


def put_job(call: Call) -> Reply:
    """Submit a job, or answer with the one that the same body has made: a client tries again where none answers."""
    name = call.name()
    mapping = job_bodies.read_job(name, call.body, find_code)
    digest = hashlib.sha256(json.dumps(read_properties(call.body), sort_keys=True).encode()).hexdigest()
    mapping["properties"] = {**(mapping.get("properties") or {}), _REQUEST: digest}
    job: Any = load_job_values(mapping, home())
    folder = RunFolder.for_job(name)
    until = time.monotonic() + _OTHER_TRY_S
    while True:
        # One that a server has submitted in part before it was killed is on its way then.
        is_whole = complete_submission(folder, None) or belongs_to_another(folder, None)
        with contextlib.suppress(NotFoundError):
            if is_whole:
                return Reply(_update(call, name, mapping))
            if _find_request(name) == digest:
                # Whoever looked at it meanwhile has written it off: it has never begun.
                pruning.delete_jobs([name])
        try:
            submit(job)
        except PlanError:
            # Another try of the same is faster, and not done yet.
            if name not in lookup.all_names() or time.monotonic() > until:
                raise
            time.sleep(_OTHER_TRY_POLL_S)
        else:
            return Reply(write(call, name), 201)


def _find_request(name: str) -> str:
    properties = lookup.read_spec(lookup.folder_of(name)).get("properties")
    return str(properties.get(_REQUEST, "")) if isinstance(properties, dict) else ""


def _update(call: Call, name: str, mapping: Mapping[str, Any]) -> dict[str, Any]:
    """
    Change what may change of a job that is there, unless the same body has made it.

    Raises UsageError where another job has that name.
    """
    if _find_request(name) != mapping["properties"][_REQUEST]:
        stored = job_bodies.read_job(name, write(call, name), find_code)
        fixed = {*stored, *mapping} - {*job_folders.EDITABLE, "services"}
        if any((mapping.get(field) or None) != (stored.get(field) or None) for field in fixed):
            raise UsageError(f"there is a job {name!r} already, and it is another", "choose another name")
        edit(name, {field: mapping[field] for field in job_folders.EDITABLE if field in mapping})
        archived = read_properties(call.body).get("isArchived")
        if isinstance(archived, bool):
            job_folders.set_archived(name, archived=archived)
    return write(call, name)


def edit(name: str, changes: Mapping[str, Any]) -> None:
    """Change fields of a job. Raises UsageError for a value of another kind than the field's."""
    for field, value in changes.items():
        is_mapping = field in ("tags", "properties")
        texts = [*value, *value.values()] if is_mapping and isinstance(value, dict) else [value]
        if (is_mapping and not isinstance(value, dict)) or not all(isinstance(text, str) for text in texts):
            what = "texts by name" if is_mapping else "a text"
            raise UsageError(f"{field} must be {what}", "nothing was changed")
        if any("\ud800" <= letter <= "\udfff" for text in texts for letter in text):
            raise UsageError(f"{field} has half a character", "nothing was changed")
    if changes:
        job_folders.edit(name, dict(changes))


def show_job(call: Call) -> dict[str, Any]:
    return write(call, call.name())


def write(call: Call, name: str) -> dict[str, Any]:
    """Return the body of a job. Raises NotFoundError."""
    folder = lookup.folder_of(name)
    outcome = recover(folder)
    described = description.describe(folder, outcome, brief=True, is_whole=True)
    described["archived"] = outcome.archived
    if described.get("best_trial"):
        best = {"best_child_run_id": described["best_trial"]["trial"]}
        described["properties"] = {**(described.get("properties") or {}), **best}
    pages = {"Tracking": call.address, "Studio": studios.find_page(name) or call.address}
    described["properties"] = {
        key: value for key, value in (described.get("properties") or {}).items() if key != _REQUEST
    }
    body: dict[str, Any] = name_versions(job_bodies.write_job(described, call.scope.path, pages))
    return body


def list_jobs(call: Call) -> dict[str, Any]:
    kind, tag = call.query.get("jobType", ""), call.query.get("tag", "")
    names = job_folders.names(archived=choose_archived(call), parent="")
    if not kind and not tag:
        # Each costs a look at its folder: those of this page alone.
        start = to_number(call.query.get("$skip", "0"))
        found = page(names, call, _PAGE)
        found["value"] = list(_write_each(call, names[start : start + len(found["value"])]))
        return found
    return page((body for body in _write_each(call, names) if _is_wanted(body, kind, tag)), call, _PAGE)


def _write_each(call: Call, names: list[str]) -> Iterator[dict[str, Any]]:
    for name in names:
        try:
            yield write(call, name)
        except NotFoundError:  # It was deleted meanwhile.
            continue
        except DAMAGED as error:
            warn(f"job {name} is left out of a list: {type(error).__name__}")


def _is_wanted(body: Mapping[str, Any], kind: str, tag: str) -> bool:
    properties = body["properties"]
    key, _, value = tag.partition("=")
    return (not kind or properties["jobType"].lower() == kind.lower()) and (
        not tag or (key in properties["tags"] and value in ("", str(properties["tags"][key])))
    )


def cancel_job(call: Call) -> Reply:
    name = call.name()
    ending.cancel(name)
    return _answer_ending(call, name)


def show_ending(call: Call) -> Reply:
    """Reply 202 until a job has ended."""
    return _answer_ending(call, call.name())


def _answer_ending(call: Call, name: str) -> Reply:
    if read_outcome(lookup.folder_of(name)).is_final:
        return Reply({}, 200)
    path = quote(call.make_id("jobs", name, "ending"))
    location = f"{call.address}{path}?api-version=2023-04-01"
    return Reply({}, 202, {"Location": location, "Retry-After": "1"})


def delete_job(call: Call) -> Reply:
    pruning.delete_jobs([call.name()])
    return Reply({}, 200)


ROUTES = [
    ("GET", "/jobs", list_jobs),
    ("GET", "/jobs/{name}", show_job),
    ("PUT", "/jobs/{name}", put_job),
    ("DELETE", "/jobs/{name}", delete_job),
    ("POST", "/jobs/{name}/cancel", cancel_job),
    ("GET", "/jobs/{name}/ending", show_ending),
]
