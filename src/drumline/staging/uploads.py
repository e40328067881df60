"""Outputs that are to be elsewhere: what has changed since this run last wrote it, file by file."""

from __future__ import annotations

import json
import os
import stat
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from drumline.contract.errors import NodeError
from drumline.contract.plan import Upload
from drumline.contract.record import NamedTuple
from drumline.contract.uris import shown
from drumline.staging import reporting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from drumline.contract.folder import RunFolder
    from drumline.contract.uris import Place
    from drumline.staging.stores.base import Store

    Open = Callable[[Upload], tuple[Place, Store]]
    State = dict[str, dict[str, list[int]]]
    """By upload and relative path, size and modification time in ns of what was written."""

_THREADS = 16
_NOTES = "uploads.json"
_NOTE_S = 2.0
"""After a kill so much may be written once more."""


class File(NamedTuple):
    """``relative``: empty for an output that is one file. ``stamp``: size and modification time in ns."""

    relative: str
    path: str
    stamp: tuple[int, int]


def run(folder: RunFolder, wanted: Iterable[Upload], opened: Open) -> None:
    """Every one of them. Blocks. Raises DrumlineError, OSError."""
    notes = _Notes(os.path.join(folder.path, _NOTES), folder)
    for upload in wanted:
        with reporting.named(upload.name):
            files = _files(upload)
            if files is None:
                reporting.warn(f"{upload.name}: there is nothing at {upload.source} to write")
                continue
            progress = reporting.Progress(upload.name)
            written = _One(upload, notes, progress).write(files, opened)
            reporting.say(
                "transferred",
                name=upload.name,
                uri=shown(upload.uri),
                size_bytes=sum(one.stamp[0] for one in written),
                file_count=len(written),
                cached_bytes=0,
                seconds=progress.seconds,
                verified=0,
                note=_note(len(files) - len(written)),
            )


def _note(left: int) -> str:
    return f"{left} unchanged" if left else ""


def note_fetched(folder: RunFolder, name: str, source: str, kind: str) -> None:
    """What an output held before is where it is to be already, as long as nobody changes it here. Raises OSError."""
    notes = _Notes(os.path.join(folder.path, _NOTES), folder)
    for file in _files(Upload(name, source, "", kind, always=True)) or ():
        notes.add(name, file)
    notes.write()


def _files(upload: Upload) -> list[File] | None:
    """None where nothing is. Raises NodeError where that is an error, or it is of another kind."""
    found = _stat(upload.source)
    if found is None:
        if upload.always:
            return None
        raise NodeError(f"{upload.name}: the job did not write it ({upload.source})")
    if upload.kind == "file":
        if not stat.S_ISREG(found.st_mode):
            raise NodeError(f"{upload.name} is to be a file, and {upload.source} is none")
        return [File("", upload.source, _stamp(found))]
    if not stat.S_ISDIR(found.st_mode):
        raise NodeError(f"{upload.name} is to be a folder, and {upload.source} is none")
    root = os.path.realpath(upload.source)
    return sorted(_walk(upload.name, root, root, "", (root,)))


def _walk(name: str, root: str, folder: str, prefix: str, above: tuple[str, ...]) -> Iterator[File]:
    """``above``: the real paths on the way down, so that a link cannot lead in a circle."""
    with os.scandir(folder) as entries:
        listed = sorted(entries, key=lambda entry: entry.name)
    for entry in listed:
        relative = prefix + entry.name
        real = os.path.realpath(entry.path) if entry.is_symlink() else entry.path
        found = _stat(real)
        if entry.is_symlink() and os.path.commonpath((root, real)) != root:
            reporting.warn(f"{name}: {relative!r} is a link to outside, and not written")
        elif found is None:
            reporting.warn(f"{name}: {relative!r} leads to nothing, and is not written")
        elif stat.S_ISDIR(found.st_mode):
            if real in above:
                reporting.warn(f"{name}: {relative!r} is a link to a folder that it is in, and not written")
            else:
                yield from _walk(name, root, real, relative + "/", (*above, real))
        elif stat.S_ISREG(found.st_mode):
            yield File(relative, real, _stamp(found))
        else:
            reporting.warn(f"{name}: {relative!r} is neither a file nor a folder, and not written")


class _One:
    """The files of one output, side by side."""

    def __init__(self, upload: Upload, notes: _Notes, progress: reporting.Progress) -> None:
        self._upload = upload
        self._notes = notes
        self._progress = progress
        self._left: deque[File] = deque()
        self._error: BaseException | None = None

    def write(self, files: list[File], opened: Open) -> list[File]:
        """Those that had to be. Raises as the store, and NodeError for names that no service takes."""
        wanted = [one for one in files if not self._notes.has(self._upload.name, one)]
        strange = [one for one in wanted if not _is_text(one.relative)]
        wanted = [one for one in wanted if _is_text(one.relative)]
        if wanted:
            self._progress.total_files = len(wanted)
            self._progress.total_bytes = sum(one.stamp[0] for one in wanted)
            self._left.extend(wanted)
            self._all(opened(self._upload)[1])
        if strange:
            names = ", ".join(ascii(one.relative) for one in strange[:3])
            raise NodeError(
                f"{self._upload.name}: files whose names are no UTF-8 text cannot be written: {names}"
            )
        return wanted

    def _all(self, store: Store) -> None:
        count = min(_THREADS, len(self._left))
        threads = [threading.Thread(target=self._some, args=(store,), daemon=True) for _ in range(count)]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            self._notes.write()
        if self._error is not None:
            raise self._error

    def _some(self, store: Store) -> None:
        while self._error is None:
            try:
                file = self._left.popleft()
            except IndexError:
                return
            try:
                store.put(file.relative, file.path, self._progress.add)
                self._notes.add(self._upload.name, file)
                self._progress.add_file()
            except BaseException as error:  # noqa: BLE001 - raised in the thread that waits for this one
                self._error = self._error or error


class _Notes:
    """What this run has written, in its folder."""

    def __init__(self, path: str, folder: RunFolder) -> None:
        self._path = path
        self._folder = folder
        data = folder.read_json(path) or {}
        self._state: State = {name: files for name, files in data.items() if isinstance(files, dict)}
        self._written = time.monotonic()
        self._changing = threading.Lock()

    def has(self, name: str, file: File) -> bool:
        return self._state.get(name, {}).get(file.relative) == list(file.stamp)

    def add(self, name: str, file: File) -> None:
        with self._changing:
            self._state.setdefault(name, {})[file.relative] = list(file.stamp)
            if time.monotonic() - self._written < _NOTE_S:
                return
        self.write()

    def write(self) -> None:
        with self._changing:
            self._written = time.monotonic()
            self._folder.write(self._path, json.dumps(self._state))


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:
        return None


def _stamp(found: os.stat_result) -> tuple[int, int]:
    return found.st_size, found.st_mtime_ns


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
