"""Submission of an earlier job once more, from what was stored of it: its job file, its code, the steps that it did."""

from __future__ import annotations

import io
import json
import os
import shlex
from typing import TYPE_CHECKING, Any

from drumline.contract import status
from drumline.contract.errors import DrumlineError, NotFoundError, UsageError
from drumline.contract.folder import RunFolder, home
from drumline.contract.outcome import fold
from drumline.contract.record import NamedTuple
from drumline.control.jobs import lookup, stored_code
from drumline.control.jobs.recovery import recover
from drumline.control.submission.planning import AS_WRITTEN, RunOptions
from drumline.control.submission.run_folder import WORKING_FOLDER
from drumline.spec.load import check_overrides, load_job
from drumline.staging.snapshot.partial_folder import snapshot_path
from drumline.staging.snapshot.take import take_snapshot

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

THEN, NOW = "then", "now"
ORIGIN = "drumline.rerun_of"
"""The property of a job that names the one that it repeats."""


class Rerun(NamedTuple):
    """An earlier job, to be submitted as it is."""

    job: Any
    run: RunOptions
    notes: tuple[str, ...]
    """In which ways it is not as it was."""


def prepare_rerun(
    name: str,
    changes: Sequence[dict[str, Any]] = (),
    *,
    compute: str | None = None,
    code: str | None = None,
    new_name: str | None = None,
) -> Rerun:
    """
    Return the job as it was submitted, with the changes, ``[{"inputs.lr": 0.1}]``; nothing is created.

    ``code``: ``then``, as it was stored, or ``now``, as it is in its folder; None: then, or now if it was not stored.
    Raises NotFoundError, SpecError, UsageError.
    """
    if code not in (None, THEN, NOW):
        raise UsageError(f"code must be one of {THEN}, {NOW}; got {code!r}")
    folder = lookup.folder_of(name)
    spec = lookup.read_spec(folder)
    if not spec:
        raise DrumlineError(
            f"the job file {folder.job} cannot be read", "submit the file that it was made of"
        )
    kind = str(spec.get("type") or "command")
    prepare = {"pipeline": _prepare_pipeline, "sweep": _prepare_sweep}.get(kind, _prepare_program)
    _forget_run(spec, name)
    if code == NOW:
        spec["properties"] = {
            key: value for key, value in spec["properties"].items() if not key.startswith("azureml.git.")
        }
    if compute:
        from drumline.control.machine import computes

        settings = spec["settings"] if isinstance(spec.get("settings"), dict) else {}
        holder, key = (settings, "default_compute") if settings.get("default_compute") else (spec, "compute")
        holder[key] = computes.refer_to(compute)
    return prepare(folder, spec, list(changes), _Wish(code, bool(compute), new_name))


class _Wish(NamedTuple):
    """The user's wishes for the new job, besides the fields."""

    code: str | None
    other_compute: bool
    new_name: str | None


def _forget_run(spec: dict[str, Any], name: str) -> None:
    """Remove what belongs to the earlier run alone, and note which it was."""
    for key in ("name", "parent_job_name"):
        spec.pop(key, None)
    if spec.get("display_name") == name:
        del spec["display_name"]
    spec["properties"] = {**(spec.get("properties") or {}), ORIGIN: name}
    spec["properties"].pop(WORKING_FOLDER, None)
    for output in (spec.get("outputs") or {}).values():
        if isinstance(output, dict):
            output.pop("version", None)  # That one is the earlier job's; this one's is the next.


def _load(
    spec: dict[str, Any], folder: RunFolder, changes: list[dict[str, Any]], new_name: str | None
) -> Any:
    text = io.BytesIO(json.dumps(spec).encode())
    job = load_job(text, relative_origin=folder.path, params_override=changes)
    check_overrides(job, changes)
    job._root = None  # Its lines are those of no file.
    job.name = new_name or job.name
    return job


# a command, or a parallel job


def _prepare_program(
    folder: RunFolder, spec: dict[str, Any], changes: list[dict[str, Any]], wish: _Wish
) -> Rerun:
    plan = folder.read_json(folder.plan) or {}
    _pin_versions(spec, plan.get("resolved") or {})
    cwd = str(plan.get("cwd") or folder.code)
    # The user's folder in which the job ran, or on which its code leaned.
    ran_in = str(plan.get("beside") or "") or ("" if cwd == folder.code else cwd)
    digest = str(plan.get("snapshot") or stored_code.read_record(folder).get("snapshot") or "")
    notes: list[str] = []
    if wish.code == NOW or _are_set(changes, "code") or not (ran_in or digest):
        digest = ""  # It is not wanted, or there was none.
    elif not _is_stored(digest, folder.root):
        notes.append(_explain_missing(folder, wish.code))
        digest = ""
    run = AS_WRITTEN
    if ran_in:
        run = _choose_folder(folder, ran_in, is_stored=bool(digest), has_code=_are_set(changes, "code"))
        if not _are_set(changes, "command"):
            run = run._replace(argv=_find_words(spec, plan))
    job = _load(spec, folder, changes, wish.new_name)
    if digest:
        # In this home too, from which a job on any compute takes it.
        if not os.path.isdir(snapshot_path(home(), digest)):
            digest = take_snapshot(snapshot_path(folder.root, digest), home()).digest
        job._snapshots = {"code": digest}
        source = ran_in or str(spec.get("code") or "")
        if wish.code is None and os.path.isdir(source):
            notes.append(f"it runs the code as it was then; --code now takes that of {source}")
    return Rerun(job, run, tuple(notes))


def _choose_folder(folder: RunFolder, ran_in: str, *, is_stored: bool, has_code: bool) -> RunOptions:
    """Choose where a job runs that ran in the user's own folder. Raises UsageError if that is gone."""
    is_there = os.path.isdir(ran_in)
    if is_stored or has_code:
        return RunOptions(beside=ran_in if is_there and is_stored else "")
    if is_there:
        return RunOptions(in_place=ran_in)
    raise UsageError(f"{ran_in}, where job {folder.name} ran, is no longer there", "--set code=FOLDER")


def _find_words(spec: dict[str, Any], plan: dict[str, Any]) -> tuple[str, ...]:
    """
    Return the program and its arguments as they were typed; empty for a command that a shell ran.

    The plan has what starts the program before them.
    """
    try:
        words = shlex.split(str(spec.get("command") or ""))
    except ValueError:
        return ()
    typed = tuple(map(str, plan.get("argv") or ()))[-len(words) :]
    # The command has bytes that are no text as escapes.
    shown = [word.encode("utf-8", "backslashreplace").decode() for word in typed]
    return typed if words and shown == words else ()


def _pin_versions(spec: dict[str, Any], resolved: dict[str, Any]) -> None:
    """Replace labels, such as ``@latest``, by the versions that they stood for."""
    for name, given in (spec.get("inputs") or {}).items():
        asset = resolved.get(f"inputs.{name}.asset")
        if asset and isinstance(given, dict):
            given["path"] = asset
    if resolved.get("environment") and isinstance(spec.get("environment"), str):
        spec["environment"] = resolved["environment"]


def _are_set(changes: Iterable[dict[str, Any]], field: str) -> bool:
    return any(path == field or path.startswith(f"{field}.") for change in changes for path in change)


def _is_stored(digest: str, root: str) -> bool:
    return bool(digest) and any(os.path.isdir(snapshot_path(one, digest)) for one in (root, home()))


def _explain_missing(folder: RunFolder, code: str | None) -> str:
    """Return why the code is that of now. Raises NotFoundError if that of then was asked for."""
    why = stored_code.explain_absence(folder)
    if code == THEN:
        raise NotFoundError(f"the code of job {folder.name} is not stored: {why}", "--code now")
    return f"the code of job {folder.name} is not stored ({why}); it runs as it is now"


# a sweep


def _prepare_sweep(
    folder: RunFolder, spec: dict[str, Any], changes: list[dict[str, Any]], wish: _Wish
) -> Rerun:
    graph = folder.read_json(folder.graph) or {}
    snapshots = {str(place): str(digest) for place, digest in (graph.get("snapshots") or {}).items()}
    as_then = wish.code != NOW and not _are_set(changes, "trial.code")
    notes: list[str] = []
    if as_then and not all(_is_stored(digest, home()) for digest in snapshots.values()):
        notes.append(_explain_missing(folder, wish.code))
        as_then = False
    trial = (graph.get("sweep") or {}).get("trial")
    if as_then and trial:
        spec["trial"] = trial
    job = _load(spec, folder, changes, wish.new_name)
    if as_then:
        job._snapshots = snapshots
    return Rerun(job, AS_WRITTEN, tuple(notes))


# a pipeline


def _prepare_pipeline(
    folder: RunFolder, spec: dict[str, Any], changes: list[dict[str, Any]], wish: _Wish
) -> Rerun:
    graph = folder.read_json(folder.graph) or {}
    steps = [step for step in graph.get("steps") or () if isinstance(step, dict)]
    notes: list[str] = []
    as_then = wish.code != NOW and bool(steps)
    if as_then and not all(_is_stored(digest, home()) for digest in _list_snapshots(steps)):
        notes.append(_explain_missing(folder, wish.code))
        as_then = False
    if not as_then:
        return Rerun(_load(spec, folder, changes, wish.new_name), AS_WRITTEN, tuple(notes))
    # What components said then is in the steps.
    spec.pop("component", None)
    spec |= {
        "jobs": _write_out(steps),
        **{key: graph[key] for key in ("inputs", "outputs") if graph.get(key)},
    }
    job = _load(spec, folder, changes, wish.new_name)
    if _are_set(changes, "jobs"):
        _lend_snapshots(job.jobs, steps)
    else:
        outcome = recover(folder)
        failed = outcome.is_final and outcome.status != status.COMPLETED
        goes_on = failed and not changes and not wish.other_compute
        job._prepared = _mark_done(folder, steps) if goes_on else steps
    return Rerun(job, AS_WRITTEN, tuple(notes))


def _list_snapshots(steps: Iterable[dict[str, Any]]) -> list[str]:
    found: list[str] = []
    for step in steps:
        found += map(str, (step.get("snapshots") or {}).values())
        found += _list_snapshots(step.get("steps") or ())
    return found


def _write_out(steps: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return the steps as ``jobs`` of a pipeline without components."""
    jobs: dict[str, Any] = {}
    for step in steps:
        inner = step.get("steps")
        jobs[str(step["name"])] = {**step["job"], "jobs": _write_out(inner)} if inner else step["job"]
    return jobs


def _lend_snapshots(jobs: dict[str, Any], steps: Iterable[dict[str, Any]]) -> None:
    """Have the nodes use the code that their steps had."""
    for step in steps:
        node = jobs[str(step["name"])]
        node._snapshots = dict(step.get("snapshots") or {})
        node._is_deterministic = bool(step.get("is_deterministic", True))
        if step.get("steps"):
            _lend_snapshots(node.jobs, step["steps"])


def _mark_done(folder: RunFolder, steps: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the steps with the job that has completed each, as ``before``."""
    ended = fold(folder.read_events()).steps
    marked = []
    for step in steps:
        was = ended.get(str(step["name"]))
        one = dict(step)
        if was is not None and was.job and was.status == status.COMPLETED:
            one["before"] = was.job
        elif was is not None and was.job and step.get("steps"):
            one["steps"] = _mark_done(RunFolder.for_job(was.job), step["steps"])
        marked.append(one)
    return marked
