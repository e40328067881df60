"""Copies of what a job left: artifacts, logs and named outputs, laid out as ``az ml job download`` does."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING

from drumline.contract import status
from drumline.contract.errors import DrumlineError, NotFoundError, UsageError
from drumline.contract.hiding import hide_secrets
from drumline.contract.plan import Plan
from drumline.contract.words import format_size
from drumline.control.jobs import job_outputs
from drumline.control.jobs.job_outcome import explain_pruned, read_outcome
from drumline.control.jobs.lookup import as_arguments, folder_of
from drumline.control.times import utc
from drumline.spec.paths import is_remote
from drumline.staging import file_copy
from drumline.staging.snapshot.code_files import DOWNLOAD_MARKER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from drumline.contract.folder import RunFolder
    from drumline.contract.outcome import Outcome
    from drumline.control.progress_bar import ProgressBar


_WORTH_DRAWING_BYTES = 1 << 26
"""A copy of less is done before anybody wonders."""

_MARK = (
    "This folder was made by drumline job download.\n"
    "Jobs do not take it with their code; to have them take it, remove this file.\n"
)


def download(
    name: str,
    target: str = ".",
    *,
    output: str = "",
    everything: bool = False,
    bar: ProgressBar | None = None,
) -> str:
    """
    Copy to ``target``/artifacts and ``target``/named-outputs/NAME; the folder written to. Blocks.

    Without ``output`` and ``everything``: the artifacts (outputs, logs, what MLflow logged in files).
    Existing files are written over. Snapshots of code leave out folders that this makes. ``bar``: shows how much is
    there.
    Raises NotFoundError; UsageError while the job has not ended; DrumlineError, once everything else is there,
    for outputs that are not on this machine or were never written.
    """
    folder = folder_of(name)
    outcome = read_outcome(folder)
    if not outcome.is_final:
        is_canceled = outcome.status == status.CANCEL_REQUESTED
        state = "being canceled" if is_canceled else re.sub(r"\B([A-Z])", r" \1", outcome.status).lower()
        raise UsageError(
            f"job {name} is still {state}; its outputs can be downloaded once it has ended",
            f"drumline job stream {as_arguments(name)} waits for its end",
        )
    is_all = output == job_outputs.ARTIFACTS and not job_outputs.has_output(folder, output)
    is_whole_run = not output or output == "default" or is_all
    if is_whole_run:
        kept = job_outputs.list_artifacts(folder)
        copies = {os.path.join("artifacts", name): source for name, source in kept.items()}
    else:
        copies = {os.path.join("named-outputs", output): _find_named(folder, output, outcome.pruned)}
    missing: list[str] = []
    if everything:
        named, missing = _list_everything(folder, outcome.pruned)
        copies |= named
    with explain_write_errors():
        _mark_new_folders(copies, target)
        _copy_all(copies, target, f"job {name}", bar)
    if missing:
        raise DrumlineError(f"not all was downloaded: {'; '.join(missing)}", f"the rest is in {target}")
    if is_whole_run:
        _check_parts(folder, outcome, target)
    return os.path.abspath(target)


def _mark_new_folders(copies: Mapping[str, str], target: str) -> None:
    """
    Create the folders to download to, if they are not there, with a file by which snapshots of code leave them out: the
    default target is the current folder, often that of the code. Raises OSError.
    """
    for name in dict.fromkeys(place.partition(os.sep)[0] for place in copies):
        folder = os.path.join(target, name)
        if not os.path.lexists(folder):
            os.makedirs(folder)
            with open(os.path.join(folder, DOWNLOAD_MARKER), "x", encoding="utf-8") as file:
                file.write(_MARK)


def _copy_all(copies: Mapping[str, str], target: str, what: str, bar: ProgressBar | None) -> None:
    """Copy all. ``copies``: from where, by the path below ``target``. Raises DrumlineError, shutil.Error, OSError."""
    wanted = {os.path.join(target, place): source for place, source in copies.items()}
    _check_room(wanted)
    told: Callable[[int], None] = lambda _: None  # noqa: E731
    if bar is not None and bar.is_drawn:
        total = sum(map(_measure, copies.values()))
        if total >= _WORTH_DRAWING_BYTES:
            bar.show_bytes(what, 0, total)
            told = bar.add
    for place, source in wanted.items():
        _copy(source, place, told)


def _measure(path: str) -> int:
    """Return the bytes of all plain files there; links are not followed, as they are not copied through."""
    facts = (os.stat(one, follow_symlinks=one == path) for one in _list_files(path))
    return sum(one.st_size for one in facts if stat.S_ISREG(one.st_mode))


def _check_parts(folder: RunFolder, outcome: Outcome, target: str) -> None:
    """Raise DrumlineError for parts of the artifacts that every job has, and this one no longer."""
    missing = [name for name in job_outputs.KEPT_BY_ALL if not os.path.isdir(os.path.join(folder.path, name))]
    if missing:
        why = explain_pruned(outcome, missing) or "removed"
        verb = "was" if len(missing) == 1 else "were"
        what = f"not all of job {folder.name} was downloaded: {', '.join(missing)} {verb} {why}"
        raise DrumlineError(what, f"the rest is in {target}")


def _list_everything(folder: RunFolder, pruned: Mapping[str, float]) -> tuple[dict[str, str], list[str]]:
    """Return where the named outputs are, by the path that they are copied to, and why others cannot be copied."""
    if not os.path.exists(folder.graph):
        Plan.read(folder.plan)  # One that is damaged, or of a newer format, names outputs that nobody knows.
    found, missing = {}, []
    for name in job_outputs.list_named(folder):
        try:
            found[os.path.join("named-outputs", name)] = _find_named(folder, name, pruned)
        except (NotFoundError, UsageError) as error:
            missing.append(error.message)
    return found, missing


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


def _find_named(folder: RunFolder, output: str, pruned: Mapping[str, float]) -> str:
    named = job_outputs.list_named(folder)
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
    path = named[output]
    if not os.path.exists(path) and os.path.exists(folder.graph):
        what = (
            f"output {output!r} of job {folder.name} is gone: the job of the step that wrote it was deleted"
        )
        raise NotFoundError(what, f"it was {path}")
    if not os.path.exists(path):
        raise NotFoundError(f"job {folder.name} did not write its output {output!r}", f"it would be {path}")
    return path


def _clear(source: str, target: str) -> Callable[[str, list[str]], list[str]]:
    """
    Return an ``ignore`` for copytree that leaves out pipes, and removes links that would be in the way.

    An earlier download may have left its folders read-only; copytree gives them their modes again in the end.
    """

    def ignore(folder: str, names: list[str]) -> list[str]:
        inside = os.path.join(target, os.path.relpath(folder, source))
        if os.path.isdir(inside) and not os.access(inside, os.W_OK):
            os.chmod(inside, 0o700)
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
    """Copy a file or a folder over an existing one. Raises DrumlineError, shutil.Error, OSError."""
    _check_room({target: source})
    _copy(source, target)


def _copy(source: str, target: str, told: Callable[[int], None] = lambda _: None) -> None:
    """Copy as ``copy``. ``told``: hears of each piece of bytes."""

    def copy_file(one: str, place: str) -> str:
        if os.path.exists(place) and os.path.samefile(one, place):
            raise shutil.SameFileError(f"{one} and {place} are the same file")
        file_copy.replace_file(one, place, told)
        return place

    if os.path.isdir(source):
        # Links stay links: what a job links to outside its folder is not copied.
        shutil.copytree(
            source,
            target,
            symlinks=True,
            dirs_exist_ok=True,
            ignore=_clear(source, target),
            copy_function=copy_file,
        )
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        copy_file(source, target)


def copy_link(source: str, target: str) -> None:
    """Copy a link as a link: what a job links to outside its folder is not copied. Raises OSError."""
    os.makedirs(os.path.dirname(target), exist_ok=True)
    shutil.copyfile(source, target, follow_symlinks=False)


def _check_room(copies: Mapping[str, str]) -> None:
    """Raise DrumlineError where the disk has no room for copies. ``copies``: from where, by path."""
    if not copies:
        return
    needed = largest = 0
    for target, source in copies.items():
        for path in _list_files(source):
            size = file_copy.measure_data(os.stat(path, follow_symlinks=path == source))
            needed, largest = needed + size, max(largest, size)
            there = target if path == source else os.path.join(target, os.path.relpath(path, source))
            with contextlib.suppress(OSError):
                needed -= min(size, file_copy.measure_data(os.lstat(there)))
    place = os.path.commonpath(list(map(os.path.abspath, copies)))
    while not os.path.isdir(place):
        place = os.path.dirname(place)
    found = os.statvfs(place)
    free = found.f_bavail * found.f_frsize
    # Some file systems do not say. A file that is replaced is there until the new one is whole.
    if found.f_blocks and max(needed, largest) > free:
        what = f"{place} has room for {format_size(free)}, and the copies take {format_size(needed)}"
        raise DrumlineError(what, "make room there, or choose another folder")


def _list_files(path: str) -> Iterator[str]:
    """Yield the paths of all files there, links among them."""
    if not os.path.isdir(path):
        yield path
        return
    for folder, _, names in os.walk(path):
        for name in names:
            yield os.path.join(folder, name)
