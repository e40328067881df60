"""
The files of a job for a viewer: its outputs, inputs, logs and code, folder by folder.

A job can put links and pipes wherever it writes. Each part of a path is opened beneath the one before, and none that is
a link: nothing outside of these folders is shown.
"""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING

from drumline.contract.errors import NotFoundError, UsageError
from drumline.contract.record import NamedTuple
from drumline.control.jobs import lookup, stored_code
from drumline.control.jobs.job_outcome import explain_pruned, read_outcome
from drumline.control.jobs.lookup import folder_of
from drumline.staging.snapshot.partial_folder import snapshot_path

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from drumline.contract.folder import RunFolder


CODE = "code"
AREAS = ("outputs", "logs", "inputs", CODE)
_FOLDERS = {
    "outputs": ("outputs", "named-outputs"),
    "logs": ("user_logs", "system_logs"),
    "inputs": ("inputs",),
}
"""Of the run folder, which an area has; several are folders of it."""

_MOST_ENTRIES = 5000
_MOST_TEXT_BYTES = 1 << 20
_DEEPEST = 64
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_PASS = getattr(os, "O_PATH", 0) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class FileEntry(NamedTuple):
    name: str
    kind: str
    size: int | None


class FilesAt(NamedTuple):
    """The content of a path: of a folder its entries, of a file its text; ``why`` there is nothing."""

    path: str
    kind: str = "none"
    entries: Sequence[FileEntry] = ()
    text: str | None = None
    size: int | None = None
    cut: bool = False
    why: str = ""


def look_at(name: str, area: str, path: str = "") -> FilesAt:
    """
    Return what is at a path of an area.

    Raises NotFoundError; UsageError for a path that leads out of the area.
    """
    folder = folder_of(name)
    parts = _split(path)
    found = FilesAt("/".join(parts))
    roots = _find_roots(folder, area)
    if not roots:
        return found._replace(why=_explain_nothing(folder, area))
    if len(roots) > 1 and not parts:
        return found._replace(kind="folder", entries=[FileEntry(one, "folder", None) for one in roots])
    with open_beneath(*_choose_root(folder, roots, parts)) as descriptor:
        facts = os.fstat(descriptor)
        if stat.S_ISDIR(facts.st_mode):
            entries, is_cut = _list(descriptor)
            return found._replace(kind="folder", entries=entries, cut=is_cut)
        text, is_cut = _read_text(descriptor)
        why = "" if text is not None else "it is no text"
        return found._replace(kind="file", text=text, size=facts.st_size, cut=is_cut, why=why)


@contextmanager
def open_file(name: str, area: str, path: str) -> Iterator[int]:
    """Give a descriptor of a plain file of an area, at its beginning. Raises as ``look_at``."""
    parts = _split(path)
    folder = folder_of(name)
    roots = _find_roots(folder, area)
    if not roots or not parts:
        raise NotFoundError(f"job {name} has no file {path!r}")
    with open_beneath(*_choose_root(folder, roots, parts)) as descriptor:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise NotFoundError(f"{path!r} of job {name} is no file")
        yield descriptor


def _split(path: str) -> list[str]:
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts or "\0" in path or len(parts) > _DEEPEST:
        raise UsageError(f"path: {path[:200]!r} leads nowhere", "it is relative, without ..")
    return parts


def _find_roots(folder: RunFolder, area: str) -> dict[str, str]:
    """Return the folders of an area that are there, by the name that each has in it; one alone is the area itself."""
    if area not in AREAS:
        raise UsageError(f"area must be one of {', '.join(AREAS)}; got {area!r}")
    if area == CODE:
        found = {CODE: find_code(folder)}
    else:
        found = {one: os.path.join(folder.path, one) for one in _FOLDERS[area]}
        if area == "outputs" and os.path.exists(folder.plan):
            # Of `drumline run`, which takes no copy of the code, they are where it was called.
            found["outputs"] = _find_outputs(folder)
    there = {one: path for one, path in found.items() if path and _is_folder(path)}
    used = {one: path for one, path in there.items() if _has_entries(path)}
    if used or _explain_link(folder, area):
        return used
    return dict(list(there.items())[:1])


def _is_folder(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)


def _find_outputs(folder: RunFolder) -> str:
    try:
        found = find_place(folder.name, "outputs")
    except NotFoundError:
        return folder.outputs
    # The working folder may have a link to them.
    return found if _is_folder(found) else folder.outputs


def find_code(folder: RunFolder) -> str:
    """Return the folder of the stored code of a job; empty if none is stored."""
    plan = folder.read_json(folder.plan) or {}
    digest = str(plan.get("snapshot") or stored_code.read_record(folder).get("snapshot") or "")
    return (
        snapshot_path(folder.root, digest)
        if digest and "/" not in digest and digest not in (".", "..")
        else ""
    )


def _explain_link(folder: RunFolder, area: str) -> str:
    """Return which folder of an area is a link, which is not followed; empty if none is."""
    found = [os.path.join(folder.path, one) for one in _FOLDERS.get(area, ())]
    if area == "outputs":
        found.append(find_outputs_beside(folder))
    for path in found:
        # That of a working folder in the run folder leads to the outputs there.
        if os.path.islink(path) and os.path.realpath(path) != folder.outputs:
            name = path.removeprefix(folder.path + "/")
            return f"{name} is a link to {os.readlink(path)!r}, which is not followed here"
    return ""


def _explain_nothing(folder: RunFolder, area: str) -> str:
    if area == CODE:
        if not os.path.exists(folder.plan):
            return f"job {folder.name} has no code of its own; its steps have"
        return f"the code is not stored: {stored_code.explain_absence(folder)}"
    if link := _explain_link(folder, area):
        return link
    parts = [one.replace("-", "_") for one in _FOLDERS[area]]
    pruned = explain_pruned(read_outcome(folder), {*parts, *_FOLDERS[area]})
    return pruned or f"the job has no {area}"


def _choose_root(folder: RunFolder, roots: dict[str, str], parts: list[str]) -> tuple[str, list[str]]:
    """Return a folder that no job can replace by a link, and the path beneath it."""
    if len(roots) == 1:
        root, rest = next(iter(roots.values())), parts
    elif parts[0] not in roots:
        raise NotFoundError(f"there is no {parts[0]!r}", f"there is {', '.join(roots)}")
    else:
        root, rest = roots[parts[0]], parts[1:]
    inside = root.removeprefix(folder.path + "/")
    if inside != root:
        return folder.path, [*inside.split("/"), *rest]
    if CODE in roots:
        return os.path.dirname(root), [os.path.basename(root), *rest]
    # The plan names it, which a job can change: no part of its path may be a link.
    return "/", [*filter(None, root.split("/")), *rest]


def _has_entries(path: str) -> bool:
    try:
        with os.scandir(path) as entries:
            return next(entries, None) is not None
    except OSError:
        return False


@contextmanager
def open_beneath(root: str, parts: list[str]) -> Iterator[int]:
    """Give a descriptor of what is there. Raises NotFoundError, also for links and for what is no file or folder."""
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for place, part in enumerate(parts):
            # On the way there, folders may be passed that nobody may list.
            is_last = place == len(parts) - 1
            try:
                inner = os.open(part, _OPEN if is_last else _PASS, dir_fd=descriptor)
            except OSError as error:
                why = (
                    "it is a link"
                    if os.path.islink(os.path.join(root, *parts[: place + 1]))
                    else os.strerror(error.errno or 0)
                )
                raise NotFoundError(f"{'/'.join(parts)} cannot be shown: {why.lower()}") from error
            os.close(descriptor)
            descriptor = inner
        if not stat.S_ISDIR(mode := os.fstat(descriptor).st_mode) and not stat.S_ISREG(mode):
            raise NotFoundError(f"{'/'.join(parts)} cannot be shown: it is no file")
        yield descriptor
    finally:
        os.close(descriptor)


def _list(descriptor: int) -> tuple[list[FileEntry], bool]:
    """Return the entries, folders first, and whether there are more."""
    found: list[FileEntry] = []
    with os.scandir(descriptor) as entries:
        for entry in entries:
            if len(found) >= _MOST_ENTRIES:
                break
            kind = _kind_of(entry)
            size = entry.stat(follow_symlinks=False).st_size if kind == "file" else None
            name = os.fsencode(entry.name).decode("utf-8", "replace")
            found.append(FileEntry(name, kind, size))
    found.sort(key=lambda one: (one.kind != "folder", one.name))
    return found, len(found) >= _MOST_ENTRIES


def _kind_of(entry: os.DirEntry[str]) -> str:
    if entry.is_symlink():
        return "link"
    return "folder" if entry.is_dir() else "file" if entry.is_file() else "other"


def _read_text(descriptor: int) -> tuple[str | None, bool]:
    """Return the beginning of a text, and whether there is more; None for what is no text."""
    data = os.pread(descriptor, _MOST_TEXT_BYTES + 1, 0)
    is_cut = len(data) > _MOST_TEXT_BYTES
    if b"\0" in data:
        return None, False
    try:
        # A character may be cut in two at the end.
        return data[:_MOST_TEXT_BYTES].decode("utf-8", "ignore" if is_cut else "strict"), is_cut
    except UnicodeDecodeError:
        return None, False


# folders for a person


PLACES = ("run", "outputs", "logs", "code")


def find_place(name: str, place: str) -> str:
    """Return the absolute path of one of ``PLACES``. Raises NotFoundError for one that is not there, DrumlineError."""
    folder = lookup.folder_of(name)
    if place == "run":
        return folder.path
    has_ranks = os.path.exists(folder.plan)
    cwd = lookup.read_plan(folder).cwd if has_ranks else folder.code
    paths = {
        "outputs": _choose_outputs(folder) if has_ranks else folder.named_outputs,
        "logs": folder.user_logs,
        "code": cwd,
    }
    path = paths[place]
    if not os.path.isdir(path) or (place == "logs" and not has_ranks):
        whose = "" if has_ranks else "; its steps may have some"
        raise NotFoundError(
            f"job {name} has no {place}{whose}", f"drumline job open {lookup.as_arguments(name)} run"
        )
    return path


def _choose_outputs(folder: RunFolder) -> str:
    kept, beside = folder.outputs, find_outputs_beside(folder)
    return beside if os.path.isdir(beside) and not (os.path.isdir(kept) and os.listdir(kept)) else kept


def find_outputs_beside(folder: RunFolder) -> str:
    """
    Return where a job writes ``./outputs``, by its plan: with `drumline run`, which takes no copy of the code, in the
    folder where that was called. Raises DrumlineError.
    """
    cwd = lookup.read_plan(folder).cwd if os.path.exists(folder.plan) else folder.code
    return os.path.join(cwd, "outputs")
