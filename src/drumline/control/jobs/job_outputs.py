"""The places of what an earlier job wrote: its outputs, and the artifacts of its run."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

from drumline.contract import status, uris
from drumline.contract.errors import NotFoundError, UsageError
from drumline.contract.folder import RunFolder, home, private_folder
from drumline.contract.outcome import fold
from drumline.contract.plan import OUTPUT_VARIABLE
from drumline.contract.record import NamedTuple
from drumline.control.jobs.lookup import as_arguments, folder_of
from drumline.control.jobs.recovery import recover
from drumline.spec.paths import is_remote
from drumline.tracking import mlflow_files

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


_DEEPEST = 20
_ARTIFACTS = ("outputs", "logs", "user_logs", "system_logs")
KEPT_BY_ALL = ("outputs", "user_logs", "system_logs")
"""Those that every job has, so one that is not there was removed."""

ARTIFACTS = "artifacts"
"""The output that every job has: what it logged and kept, as ``runs:/<job>``. Source: Azure reserves the name."""


class OutputPlace(NamedTuple):
    path: str
    """Absolute, where nothing may be; or an address."""

    warning: str = ""
    """In which way it may not be whole."""

    datastore: str = ""
    home: str = ""
    """Of an address in a datastore: as of contract.plan.Fetch."""


def find_output(job: str, output: str, inside: str = "") -> OutputPlace:
    """
    Find an output of a job that has ended, or ``inside``, a path within it.

    Raises NotFoundError; UsageError for a job that has not ended, and for a path that leads out of the output.
    """
    folder, warning = _find_ended_job(job)
    if output == ARTIFACTS and not has_output(folder, output):
        return (
            find_run_file(job, inside)
            if inside.strip("/")
            else OutputPlace(_linked_artifacts(folder), warning)
        )
    root = _root(folder, output)
    return OutputPlace(_join_within(root, inside, f"output {output!r} of job {job}"), warning)


def find_run_file(job: str, path: str) -> OutputPlace:
    """Find ``runs:/<job>/<path>``: a file that MLflow logged, else one that the job kept. Raises as ``find_output``."""
    folder, warning = _find_ended_job(job)
    what = f"run of job {job}"
    logged = _join_within(_mlflow_artifacts(folder), path, what)
    kept = _join_within(folder.path, path, what)
    is_kept = path.split("/", 1)[0] in _ARTIFACTS
    return OutputPlace(kept if is_kept and not os.path.exists(logged) else logged, warning)


def list_artifacts(folder: RunFolder) -> dict[str, str]:
    """Return the files and folders that the job logged with MLflow in files, and those that it kept, by name."""
    logged = _mlflow_artifacts(folder)
    names = os.listdir(logged) if os.path.isdir(logged) else []
    found = {name: os.path.join(logged, name) for name in sorted(names)}
    for name in _ARTIFACTS:
        kept = os.path.join(folder.path, name)
        if os.path.isdir(kept):
            found.setdefault(name, kept)
    return found


def has_output(folder: RunFolder, output: str) -> bool:
    """Return whether the job itself has declared an output of that name."""
    return output in _places(folder) or os.path.lexists(os.path.join(folder.named_outputs, output))


def _linked_artifacts(folder: RunFolder) -> str:
    """Return a folder of links to all artifacts, made on first use. Raises UsageError."""
    place = os.path.join(folder.path, ARTIFACTS)
    try:
        private_folder(place)
        for name, path in list_artifacts(folder).items():
            with contextlib.suppress(FileExistsError):
                os.symlink(path, os.path.join(place, name))
    except OSError as error:
        what = f"the artifacts of job {folder.name} cannot be linked in {place}: {error.strerror}"
        raise UsageError(what, f"azureml://jobs/{folder.name}/outputs/artifacts/paths/outputs") from error
    return place


def _find_ended_job(job: str) -> tuple[RunFolder, str]:
    folder = folder_of(job)
    outcome = recover(folder)
    if not outcome.is_final:
        raise UsageError(
            f"job {job} is {outcome.status}; its output is whole when it has Completed",
            f"drumline job stream {as_arguments(job)} waits for its end",
        )
    if outcome.status == status.COMPLETED:
        return folder, ""
    return folder, f"job {job} is {outcome.status}, and what it wrote may not be whole"


def _root(folder: RunFolder, output: str) -> str:
    places = _places(folder)
    if output in places:
        return places[output]
    if output == "default":
        return folder.outputs
    if os.path.exists(folder.plan) or not _is_plain(output):
        raise _unknown(folder, output, places)
    # Of a pipeline or a sweep: a link that its driver has made.
    link = os.path.join(folder.named_outputs, output)
    if not os.path.lexists(link):
        raise _unknown(folder, output, list_named(folder))
    path = os.path.realpath(link)
    if not _is_of_a_job(path, folder):
        raise NotFoundError(
            f"output {output!r} of job {folder.name} leads to {path}, which no job of it wrote"
        )
    return path


def list_named(folder: RunFolder) -> dict[str, str]:
    """Return where the named outputs of a job are, by name; of a pipeline or a sweep, where its links lead."""
    if not os.path.exists(folder.graph):
        return _places(folder)
    links = os.listdir(folder.named_outputs) if os.path.isdir(folder.named_outputs) else []
    return {name: os.path.realpath(os.path.join(folder.named_outputs, name)) for name in sorted(links)}


def _places(folder: RunFolder) -> dict[str, str]:
    """Return where the outputs of a command job are, by name; they may be outside its run folder."""
    known = read_variables(folder)
    return {
        name.removeprefix(OUTPUT_VARIABLE): path
        for name, path in known.items()
        if name.startswith(OUTPUT_VARIABLE)
    }


def read_variables(folder: RunFolder) -> dict[str, str]:
    """Return the variables of the plan; none without a plan."""
    known: Any = (folder.read_json(folder.plan) or {}).get("user_env")
    return {str(name): str(value) for name, value in known.items()} if isinstance(known, dict) else {}


def _is_plain(output: str) -> bool:
    return "/" not in output and output not in ("", ".", "..")


def _unknown(folder: RunFolder, output: str, known: Iterable[str]) -> NotFoundError:
    hint = "it has " + ", ".join(sorted({*known, "default", ARTIFACTS}))
    return NotFoundError(f"job {folder.name} has no output {output!r}", hint)


def _is_of_a_job(path: str, folder: RunFolder) -> bool:
    """Return whether the path is in a run folder of this home, or is an output of a job that was a step of that one."""
    kept = os.path.realpath(os.path.join(home(), "jobs"))
    if os.path.commonpath((kept, path)) == kept:
        return True
    return any(
        path == os.path.realpath(place)
        for step in _steps(folder)
        for place in (step.outputs, *_places(step).values())
    )


def _steps(folder: RunFolder, depth: int = 0) -> Iterator[RunFolder]:
    """Yield the jobs of its steps or trials, and of theirs; a reused step's job belongs to another pipeline."""
    for step in fold(folder.read_events()).steps.values():
        if step.job and _is_plain(step.job) and depth < _DEEPEST:
            child = RunFolder.for_job(step.job)
            yield child
            yield from _steps(child, depth + 1)


def _join_within(root: str, inside: str, what: str) -> str:
    if is_remote(root):
        if ".." in inside.split("/"):
            raise UsageError(f"the path {inside!r} leads out of the {what}")
        return uris.join_uri(root, inside)
    path = os.path.normpath(os.path.join(root, inside.lstrip("/")))
    if os.path.commonpath((root, path)) != os.path.normpath(root):
        raise UsageError(f"the path {inside!r} leads out of the {what}")
    return path


def _mlflow_artifacts(folder: RunFolder) -> str:
    """Return the artifact folder of the job's run; one that does not exist where the job tracks elsewhere."""
    run = mlflow_files.run_folder(folder.name, read_variables(folder))
    return os.path.join(run or os.path.join(folder.path, "no-run"), "artifacts")


# links to the outputs of steps


def link_output(folder: RunFolder, name: str, target: str) -> None:
    """Link ``target`` as the output ``name`` of a pipeline or a sweep; the name was checked. Raises OSError."""
    private_folder(folder.named_outputs)
    partial = os.path.join(folder.path, f"output.{os.urandom(4).hex()}.partial")
    os.symlink(target, partial)
    os.replace(partial, os.path.join(folder.named_outputs, name))


def output_path(job: str, output: str) -> str:
    """Return where the job writes its output by its plan; for a pipeline or a sweep, where its link leads."""
    folder = RunFolder.for_job(job)
    places = _places(folder)
    if output in places:
        return places[output]
    if output == "default":
        return folder.outputs
    return os.path.realpath(os.path.join(folder.named_outputs, output))
