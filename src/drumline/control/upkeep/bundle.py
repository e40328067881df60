"""``drumline job bundle``: one zip file about a job for a bug report, without its code, its data and its secrets."""

from __future__ import annotations

import io
import json
import os
import platform
import zipfile
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any

from drumline.contract import events as e
from drumline.contract import secrets
from drumline.contract.errors import DAMAGED, DrumlineError
from drumline.contract.folder import write_whole
from drumline.contract.hiding import HIDDEN, hide_in, hide_in_job, hide_in_text, is_secret
from drumline.contract.record import describe_record
from drumline.control.access import job_files
from drumline.control.facts import description
from drumline.control.facts.job import show_spec
from drumline.control.jobs.lookup import folder_of, read_spec
from drumline.control.terminal import decode
from drumline.control.upkeep import machine_doctor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from drumline.contract.folder import RunFolder

_MOST_LOGS = 200
_LOG_BYTES = 64 << 10
"""Of the end of each log."""

_SHORTEST_SECRET = 4
"""A shorter value may be in any text by chance."""

_NO_SECRETS = ("true", "false", "none", "null")
"""Values that JSON would miss."""


def write_bundle(name: str, path: str, version: str) -> str:
    """
    Write the bundle of a job to a file for its owner alone, and return what is in it, a line a member.

    ``version``: Drumline's.

    Raises NotFoundError, OSError.
    """
    folder = folder_of(name)
    values = _list_values(folder)
    texts = {"versions.json": _dump([version, platform.python_version(), platform.platform()])}
    listed = "versions.json: Drumline, Python and the system\n"
    for member, (what, read) in _MEMBERS.items():
        try:
            texts[member] = read(folder)
        except (DrumlineError, OSError, *DAMAGED) as error:
            # A bug report is most needed where something is damaged.
            texts[member] = f"could not be read: {type(error).__name__}\n"
        listed += f"{member}: {what}\n"
    for log in islice(_list_logs(name), _MOST_LOGS):
        with suppress(DrumlineError, OSError):
            texts[f"logs/{log}"] = _read_end(name, log, values)
            listed += f"logs/{log}: its end\n"
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as bundle:
        for member, text in {"CONTENTS.txt": listed, **texts}.items():
            bundle.writestr(f"{name}/{member}", _hide_values(text, values).encode("utf-8", "replace"))
    write_whole(path, content.getvalue())
    return listed


def _list_values(folder: RunFolder) -> list[str]:
    """Return the values of the job's and this shell's secrets, by name or declared as such; the longest first."""
    declared = [read_spec(folder), folder.read_json(folder.graph)]
    found = {os.environ.get(name, "") for name in secrets.list_names(declared)}

    def note(variables: dict[str, Any]) -> None:
        found.update(str(value) for name, value in variables.items() if is_secret(name))

    known = [folder.read_json(folder.plan), *declared, dict(os.environ)]
    json.loads(json.dumps(known, default=str), object_hook=note)
    found = {value for value in found if len(value) >= _SHORTEST_SECRET and value.lower() not in _NO_SECRETS}
    return sorted(found, key=len, reverse=True)


def _hide_values(text: str, values: list[str]) -> str:
    for value in values:
        text = text.replace(value, HIDDEN).replace(json.dumps(value)[1:-1], HIDDEN)
    return text


def _list_logs(name: str, path: str = "") -> Iterator[str]:
    for entry in job_files.look_at(name, "logs", path).entries:
        inside = f"{path}/{entry.name}" if path else entry.name
        if entry.kind == "folder":
            yield from _list_logs(name, inside)
        elif entry.size:
            yield inside


def _read_end(name: str, log: str, values: list[str]) -> str:
    """Read the end of a log. What was read before it is dropped at last: the first secret there may be half of one."""
    with job_files.open_file(name, "logs", log) as descriptor:
        begin = max(0, os.fstat(descriptor).st_size - _LOG_BYTES - secrets.MOST_BYTES)
        text = decode(os.pread(descriptor, _LOG_BYTES + secrets.MOST_BYTES, begin))
    hidden = _hide_values(hide_in_text(text), values)
    return hidden[secrets.MOST_BYTES :] if begin else hidden


def _dump(value: Any) -> str:
    return json.dumps(hide_in_job(describe_record(value)), indent=1, default=str) + "\n"


def _read_events(folder: RunFolder) -> str:
    events = (json.loads(e.to_line(event)) for event in folder.read_events())
    return "".join(json.dumps(hide_in_job(event)) + "\n" for event in events)


_MEMBERS: dict[str, tuple[str, Callable[[RunFolder], str]]] = {
    "outcome.json": ("what drumline job show prints", lambda job: _dump(description.show_job(job.name))),
    "events.jsonl": ("its history", _read_events),
    "job.yml": ("its job file", lambda job: str(show_spec(job.name)["yaml"])),
    "plan.json": ("what was run, rank by rank", lambda job: _dump(hide_in(job.read_json(job.plan)))),
    "doctor.json": (
        "what drumline doctor finds on this machine now",
        lambda _: _dump(machine_doctor.describe(one.to_json({}) for one in machine_doctor.examine_machine())),
    ),
}
