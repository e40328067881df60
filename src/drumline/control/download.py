"""Copies of what a job left: artifacts, logs and named outputs, laid out as ``az ml job download`` does."""

from __future__ import annotations

import os
import shutil
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING

from drumline.contract import status
from drumline.contract.errors import DrumlineError, NotFoundError, UsageError
from drumline.contract.uris import shown
from drumline.control import job_outputs, jobs
from drumline.control.follow import plan_of
from drumline.spec.paths import is_remote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from drumline.contract.folder import RunFolder


def download(name: str, target: str = ".", *, output: str = "", everything: bool = False) -> str:
    """
    Copy to ``target``/artifacts and ``target``/named-outputs/NAME; the folder written to. Blocks.

    Without ``output`` and ``everything``: the artifacts (outputs, logs, what MLflow logged in files).
    Existing files are written over.
    Raises NotFoundError; UsageError while the job has not ended; DrumlineError, once everything else is there,
    for outputs that are not on this machine or were never written.
    """
    folder = jobs.folder_of(name)
    outcome = jobs.outcome_of(folder)
    if not outcome.is_final:
        final = ", ".join(sorted(status.TERMINAL))
        raise UsageError(
            f"job {name} is in state {outcome.status}, and can be downloaded in {final}",
            f"drumline job stream {jobs.as_arguments(name)} waits for its end",
        )
    with writing():
        is_all = output == job_outputs.ARTIFACTS and not job_outputs.has(folder, output)
        if output and output != "default" and not is_all:
            copy(_named(folder, output), os.path.join(target, "named-outputs", output))
        else:
            _artifacts(folder, target)
        if everything:
            _everything(folder, target)
    return os.path.abspath(target)


def _everything(folder: RunFolder, target: str) -> None:
    missing = []
    for name in _all_named(folder):
        try:
            copy(_named(folder, name), os.path.join(target, "named-outputs", name))
        except (NotFoundError, UsageError) as error:
            missing.append(error.message)
    if missing:
        raise DrumlineError(f"not all was downloaded: {'; '.join(missing)}", f"the rest is in {target}")


@contextmanager
def writing() -> Iterator[None]:
    """What cannot be copied within is said with its path. Raises DrumlineError."""
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
    for name, source in job_outputs.artifacts_of(folder).items():
        copy(source, os.path.join(base, name))


def _all_named(folder: RunFolder) -> dict[str, str]:
    if os.path.exists(folder.graph):
        return _linked(folder)
    prefix = "AZURE_ML_OUTPUT_"
    return {
        name.removeprefix(prefix): path
        for name, path in plan_of(folder).user_env.items()
        if name.startswith(prefix)
    }


def _linked(folder: RunFolder) -> dict[str, str]:
    """Of a pipeline or a sweep: where its driver's links lead."""
    try:
        names = sorted(os.listdir(folder.named_outputs))
    except FileNotFoundError:
        return {}
    return {name: os.path.realpath(os.path.join(folder.named_outputs, name)) for name in names}


def _named(folder: RunFolder, output: str) -> str:
    named = _all_named(folder)
    if output not in named:
        known = ", ".join(sorted(named)) or "it has none"
        raise NotFoundError(f"job {folder.name} has no output {output!r}", f"named outputs: {known}")
    if is_remote(named[output]):
        raise UsageError(f"output {output!r} of job {folder.name} is at {shown(named[output])}, and not here")
    if not os.path.exists(named[output]):
        raise NotFoundError(
            f"job {folder.name} did not write its output {output!r}", f"it would be {named[output]}"
        )
    return named[output]


def _clear(source: str, target: str) -> Callable[[str, list[str]], list[str]]:
    """For copytree, which does not overwrite links and fails on pipes: the former are removed, the latter left out."""

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
    """A file or a folder, over what is there. Raises shutil.Error, OSError."""
    if os.path.isdir(source):
        # Links stay links: what a job links to outside its folder is not copied.
        shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True, ignore=_clear(source, target))
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copy2(source, target)
