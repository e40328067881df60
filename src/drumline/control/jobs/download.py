"""Copies of what a job left: artifacts, logs and named outputs, laid out as ``az ml job download`` does."""

from __future__ import annotations

import os
import shutil
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING

from drumline.contract import status
from drumline.contract.errors import DrumlineError, NotFoundError, UsageError
from drumline.contract.plan import Plan
from drumline.contract.uris import hide_secrets
from drumline.control.jobs import job_outputs
from drumline.control.jobs.lookup import as_arguments, folder_of
from drumline.control.jobs.outcome import explain_pruned, read_outcome
from drumline.control.times import utc
from drumline.spec.paths import is_remote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from drumline.contract.folder import RunFolder
    from drumline.contract.outcome import Outcome


def download(name: str, target: str = ".", *, output: str = "", everything: bool = False) -> str:
    """
    Copy to ``target``/artifacts and ``target``/named-outputs/NAME; the folder written to. Blocks.

    Without ``output`` and ``everything``: the artifacts (outputs, logs, what MLflow logged in files).
    Existing files are written over.
    Raises NotFoundError; UsageError while the job has not ended; DrumlineError, once everything else is there,
    for outputs that are not on this machine or were never written.
    """
    folder = folder_of(name)
    outcome = read_outcome(folder)
    if not outcome.is_final:
        final = ", ".join(sorted(status.TERMINAL))
        raise UsageError(
            f"job {name} is in state {outcome.status}, and can be downloaded in {final}",
            f"drumline job stream {as_arguments(name)} waits for its end",
        )
    is_whole_run = False
    with explain_write_errors():
        is_all = output == job_outputs.ARTIFACTS and not job_outputs.has_output(folder, output)
        if output and output != "default" and not is_all:
            copy(_find_named(folder, output, outcome.pruned), os.path.join(target, "named-outputs", output))
        else:
            is_whole_run = True
            _artifacts(folder, target)
        if everything:
            _everything(folder, outcome.pruned, target)
    if is_whole_run:
        _check_parts(folder, outcome, target)
    return os.path.abspath(target)


def _check_parts(folder: RunFolder, outcome: Outcome, target: str) -> None:
    """Raise DrumlineError for parts of the artifacts that every job has, and this one no longer."""
    missing = [name for name in job_outputs.KEPT_BY_ALL if not os.path.isdir(os.path.join(folder.path, name))]
    if missing:
        why = explain_pruned(outcome, missing) or "removed"
        verb = "was" if len(missing) == 1 else "were"
        what = f"not all of job {folder.name} was downloaded: {', '.join(missing)} {verb} {why}"
        raise DrumlineError(what, f"the rest is in {target}")


def _everything(folder: RunFolder, pruned: Mapping[str, float], target: str) -> None:
    missing = []
    for name in _list_named(folder):
        try:
            copy(_find_named(folder, name, pruned), os.path.join(target, "named-outputs", name))
        except (NotFoundError, UsageError) as error:
            missing.append(error.message)
    if missing:
        raise DrumlineError(f"not all was downloaded: {'; '.join(missing)}", f"the rest is in {target}")


@contextmanager
def explain_write_errors() -> Iterator[None]:
    """Turn an error of copying or writing from within into a DrumlineError with the path."""
    try:
        yield
    except shutil.Error as error:
        _, path, reason = error.args[0][0]
        raise DrumlineError(f"could not copy to {path}: {reason}") from error
    except OSError as error:
        raise DrumlineError(
            f"could not write {error.filename2 or error.filename}: {error.strerror}"
        ) from error


def _artifacts(folder: RunFolder, target: str) -> None:
    base = os.path.join(target, "artifacts")
    for name, source in job_outputs.list_artifacts(folder).items():
        copy(source, os.path.join(base, name))


def _list_named(folder: RunFolder) -> dict[str, str]:
    if os.path.exists(folder.graph):
        return _read_links(folder)
    prefix = "AZURE_ML_OUTPUT_"
    return {
        name.removeprefix(prefix): path
        for name, path in Plan.read(folder.plan).user_env.items()
        if name.startswith(prefix)
    }


def _read_links(folder: RunFolder) -> dict[str, str]:
    """Return where the output links of a pipeline or a sweep lead, by name."""
    try:
        names = sorted(os.listdir(folder.named_outputs))
    except FileNotFoundError:
        return {}
    return {name: os.path.realpath(os.path.join(folder.named_outputs, name)) for name in names}


def _find_named(folder: RunFolder, output: str, pruned: Mapping[str, float]) -> str:
    named = _list_named(folder)
    if "named-outputs" in pruned and not os.path.exists(named.get(output, "")):
        when = utc(pruned["named-outputs"])
        raise NotFoundError(f"output {output!r} of job {folder.name} is gone: it was pruned on {when}")
    if output not in named:
        known = ", ".join(sorted(named)) or "it has none"
        raise NotFoundError(f"job {folder.name} has no output {output!r}", f"named outputs: {known}")
    if is_remote(named[output]):
        raise UsageError(
            f"output {output!r} of job {folder.name} is at {hide_secrets(named[output])}, and not here"
        )
    if not os.path.exists(named[output]) and os.path.exists(folder.graph):
        what = (
            f"output {output!r} of job {folder.name} is gone: the job of the step that wrote it was deleted"
        )
        raise NotFoundError(what, f"it was {named[output]}")
    if not os.path.exists(named[output]):
        raise NotFoundError(
            f"job {folder.name} did not write its output {output!r}", f"it would be {named[output]}"
        )
    return named[output]


def _clear(source: str, target: str) -> Callable[[str, list[str]], list[str]]:
    """Return an ``ignore`` for copytree that leaves out pipes, and removes links that would be in the way."""

    def ignore(folder: str, names: list[str]) -> list[str]:
        inside = os.path.join(target, os.path.relpath(folder, source))
        for name in names:
            link = os.path.join(inside, name)
            if os.path.islink(link):
                os.unlink(link)
        kinds = {name: os.lstat(os.path.join(folder, name)).st_mode for name in names}
        return [
            name
            for name, mode in kinds.items()
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode))
        ]

    return ignore


def copy(source: str, target: str) -> None:
    """Copy a file or a folder over an existing one. Raises shutil.Error, OSError."""
    if os.path.isdir(source):
        # Links stay links: what a job links to outside its folder is not copied.
        shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True, ignore=_clear(source, target))
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copy2(source, target)
