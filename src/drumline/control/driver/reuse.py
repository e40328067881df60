"""
The reuse of a step that has run before: same code, command, environment, distribution, nodes and inputs.

``<home>/reuse/<key>``: which job has run, and what its outputs hold, or, in its run folder, when they were written.
Data is compared by content (``contents``).
"""

from __future__ import annotations

import hashlib
import json
import os
from typing import TYPE_CHECKING, Any

from drumline.contract import status
from drumline.contract.errors import DrumlineError
from drumline.contract.folder import RunFolder, home, open_text, private_folder, write_whole
from drumline.contract.record import NamedTuple
from drumline.control.driver import contents
from drumline.control.jobs.job_outputs import output_path
from drumline.control.jobs.lookup import folder_of
from drumline.control.jobs.outcome import read_outcome
from drumline.control.submission import planning
from drumline.spec import paths

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from drumline.contract.outcome import Outcome


_VERSION = 3
"""Of what is compared; another one finds nothing of those before it."""

_PART_DIGITS = 16
_PARTS = {
    "code": "code",
    "command": "command",
    "environment_variables": "environment variables",
    "distribution": "distribution",
    "instance_count": "number of nodes",
    "drumline": "drumline",
}
"""Other keys of what is compared, and how their parts are named."""


class Fingerprint(NamedTuple):
    """Everything that decides the outputs of a step."""

    key: str
    """A digest of it all; empty for a step that always runs."""

    parts: Mapping[str, str]
    """A digest of each part by its name, such as ``code`` or ``input data``; empty for data that may change unseen."""


def fingerprint_of(job: Any) -> Fingerprint:
    """Return the fingerprint of a step whose inputs are there. Blocks."""
    if job.type != "command" or not job._is_deterministic:
        return Fingerprint("", {})
    try:
        content = _content(job)
    except (OSError, DrumlineError):
        return Fingerprint("", {})
    return Fingerprint(_digest(content), dict(_digest_parts(content)))


def _digest(content: Any) -> str:
    text = json.dumps(content, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def _digest_parts(content: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key in ("inputs", "outputs"):
        for name, value in content[key].items():
            is_known = not any(isinstance(one, _Unknown) for one in value)
            yield f"{key.removesuffix('s')} {name}", _digest(value)[:_PART_DIGITS] if is_known else ""
    yield "environment", _digest([content["environment"], content["recipe"]])[:_PART_DIGITS]
    for key, word in _PARTS.items():
        yield word, _digest(content[key])[:_PART_DIGITS]


class _Unknown(str):
    """A value that equals no other."""

    __slots__ = ()


def _content(job: Any) -> dict[str, Any]:
    from drumline.control.assets import references
    from drumline.spec.jobs.job import to_dict

    plain = to_dict(job, absolute=True)
    python = planning.find_interpreter()
    known = references.resolve_references(job, python, is_local=False)
    return {
        "version": _VERSION,
        "code": job._snapshots.get("code", ""),
        "command": plain.get("command"),
        "environment": [
            plain.get("environment"),
            known.found.get("environment"),
            known.build.digest if known.build else known.interpreter or python,
            dict(known.variables),
        ],
        "recipe": _recipe(job),
        "environment_variables": plain.get("environment_variables"),
        "distribution": plain.get("distribution"),
        "instance_count": (plain.get("resources") or {}).get("instance_count") or 1,
        "drumline": plain.get("drumline"),
        "inputs": {
            name: _input(job, value, known.found.get(f"inputs.{name}.asset", ""))
            for name, value in known.job.inputs.items()
        },
        "outputs": {name: _output(value) for name, value in known.job.outputs.items()},
    }


def _recipe(job: Any) -> str:
    """Return a digest of the conda file of an inline environment."""
    path = getattr(job.environment, "conda_file", None)
    return contents.digest_of(paths.resolve(job.environment, path)) if isinstance(path, str) else ""


def _output(output: Any) -> list[Any]:
    written = [output.type, output.path, output.name, output.version]
    return [*written, _unknown()] if paths.is_remote(str(output.path or "")) else written


def _unknown() -> _Unknown:
    """Return a value for remote data, which may change unseen."""
    return _Unknown(os.urandom(16).hex())


def _input(job: Any, value: Any, asset: str) -> Any:
    """Return what of an input counts. ``asset``: its version, whose content is meant to stay; empty for none."""
    if not hasattr(value, "path"):
        return str(value)
    place = str(value.path)
    if paths.is_remote(place):
        is_same = asset or value.mode == "direct"
        return [str(value.type), value.mode, place, asset if is_same else _unknown()]
    full = paths.resolve(job, place)
    # By the end of a file's name a program may know how to read it; where a folder is says nothing.
    name = "" if os.path.isdir(full) else os.path.basename(full)
    return [str(value.type), value.mode, name, contents.digest_of(full)]


def find(key: str, outputs: Iterable[str]) -> str:
    """Return the earlier job whose outputs are unchanged; empty for none."""
    record = _read(key)
    name = str(record.get("job") or "")
    if not name:
        return ""
    try:
        outcome = read_outcome(folder_of(name))
        # Another job may have its name by now.
        if outcome.status != status.COMPLETED or outcome.created != record.get("created"):
            return ""
        kept = record.get("outputs") or {}
        folder = RunFolder.for_job(name)
        if _has_lost_outputs(outcome, folder):
            return ""
        is_whole = all(_as_it_is(folder, output) == kept.get(output) for output in outputs)
    except (DrumlineError, OSError):
        return ""
    return name if is_whole else ""


def is_there(job: str) -> bool:
    """Return whether a completed job is still there, with its outputs."""
    try:
        folder = folder_of(job)
        return not _has_lost_outputs(read_outcome(folder), folder)
    except (DrumlineError, OSError):
        return False


def _has_lost_outputs(outcome: Outcome, folder: RunFolder) -> bool:
    """Return whether outputs were removed, also those that no output of the step declares."""
    return bool(outcome.pruned.keys() & {"outputs", "named-outputs"}) or not os.path.isdir(folder.outputs)


def _as_it_is(folder: RunFolder, output: str) -> str:
    """Return a digest of an output: of its content, or in the run folder of its times."""
    path = output_path(folder.name, output)
    return contents.digest_of(path, by_stamp=_is_within(path, folder))


def remember(job: str, key: str, outputs: Iterable[str]) -> None:
    """Record the completed job of a step for reuse. Raises OSError, DrumlineError."""
    folder = folder_of(job)
    left = {output: _as_it_is(folder, output) for output in outputs}
    record = {"job": job, "created": read_outcome(folder).created, "outputs": left}
    private_folder(os.path.dirname(_path(key)))
    write_whole(_path(key), json.dumps(record))


def _is_within(path: str, folder: RunFolder) -> bool:
    """Return whether the path is in the job's run folder; elsewhere other jobs may overwrite it."""
    real = os.path.realpath(folder.path)
    return os.path.commonpath((real, os.path.realpath(path))) == real


def _read(key: str) -> dict[str, Any]:
    try:
        with open_text(_path(key)) as file:
            data = json.load(file)
    except (OSError, ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def _path(key: str) -> str:
    return os.path.join(home(), "reuse", key)


# the last runs of steps, by which one that runs again says why


_FORMAT = 1


def note(experiment: str, step: str, job: str, parts: Mapping[str, str]) -> None:
    """Record that the step has completed as this job. ``parts``: as in ``reuse.Fingerprint``. Raises OSError."""
    path = _last_path(experiment, step)
    private_folder(os.path.dirname(path))
    write_whole(path, json.dumps({"format": _FORMAT, "job": job, "parts": dict(parts)}))


def explain(experiment: str, step: str, parts: Mapping[str, str]) -> str:
    """
    Return why a step that runs now takes over nothing from the job that it ran as last; empty if it never ran.

    ``parts``: what it runs with now.
    """
    last = _read_last(_last_path(experiment, step))
    job, before = last.get("job"), last.get("parts")
    if last.get("format") != _FORMAT or not isinstance(job, str) or not isinstance(before, dict):
        return ""
    changed = [name for name in {**parts, **before} if parts.get(name) != before.get(name)]
    if changed:
        return f"changed since job {job}: {', '.join(changed)}"
    remote = [name for name, digest in parts.items() if not digest]
    if remote:
        return f"remote data may have changed since job {job}: {', '.join(remote)}"
    return f"job {job}, which did the same, no longer has the outputs that it wrote"


def _read_last(path: str) -> dict[str, Any]:
    try:
        with open_text(path) as file:
            data = json.load(file)
    except (OSError, ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def _last_path(experiment: str, step: str) -> str:
    name = hashlib.sha256(f"{experiment}\0{step}".encode("utf-8", "surrogateescape")).hexdigest()
    return os.path.join(home(), "reuse", f"last-{name[:32]}")
