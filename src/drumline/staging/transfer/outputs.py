"""Uploads of outputs: files that have changed since this run last uploaded them."""

from __future__ import annotations

import json
import os
import stat
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from drumline.contract.errors import NodeError
from drumline.contract.hiding import hide_secrets
from drumline.contract.plan import Upload
from drumline.contract.record import NamedTuple
from drumline.staging import transfer_messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from drumline.contract.folder import RunFolder
    from drumline.contract.uris import Place
    from drumline.staging.stores.store import Store

    Open = Callable[[Upload], tuple[Place, Store]]
    State = dict[str, dict[str, list[int]]]
    """By upload and relative path, size and modification time in ns of what was written."""

_THREADS = 16
_NOTES_FILE = "uploads.json"
_NOTES_INTERVAL_S = 2.0
"""After a kill so much may be written once more."""


class OutputFile(NamedTuple):
    """One file of an output. ``relative``: empty if the output is one file; ``stamp``: size and mtime in ns."""

    relative: str
    path: str
    stamp: tuple[int, int]


def upload_outputs(folder: RunFolder, wanted: Iterable[Upload], opened: Open) -> None:
    """Upload every changed file of these outputs. Blocks. Raises DrumlineError, OSError."""
    notes = _UploadNotes(os.path.join(folder.path, _NOTES_FILE), folder)
    for upload in wanted:
        with transfer_messages.prefix_errors(upload.name):
            files = _list_files(upload)
            if files is None:
                transfer_messages.log_warning(
                    f"{upload.name}: {upload.source} does not exist; nothing to upload"
                )
                continue
            progress = transfer_messages.ProgressReport(upload.name)
            written = _OutputUpload(upload, notes, progress).write(files, opened)
            unchanged = len(files) - len(written)
            transfer_messages.send(
                "transferred",
                name=upload.name,
                uri=hide_secrets(upload.uri),
                size_bytes=sum(one.stamp[0] for one in written),
                file_count=len(written),
                cached_bytes=0,
                seconds=progress.seconds,
                verified=0,
                note=f"{unchanged} unchanged" if unchanged else "",
            )


def note_fetched_output(folder: RunFolder, name: str, source: str, kind: str) -> None:
    """Note that earlier content of an output need not be uploaded unless it changes. Raises OSError."""
    notes = _UploadNotes(os.path.join(folder.path, _NOTES_FILE), folder)
    for file in _list_files(Upload(name, source, "", kind, always=True)) or ():
        notes.add(name, file)
    notes.write()


def _list_files(upload: Upload) -> list[OutputFile] | None:
    """List the files to upload; None if there are none. Raises NodeError if there must be, or for another kind."""
    found = _stat(upload.source)
    if found is None:
        if upload.always:
            return None
        raise NodeError(f"{upload.name}: the job did not write it ({upload.source})")
    if upload.kind == "file":
        if not stat.S_ISREG(found.st_mode):
            raise NodeError(f"{upload.name} must be a file, but {upload.source} is {_describe_kind(found)}")
        return [OutputFile("", upload.source, _stamp(found))]
    if not stat.S_ISDIR(found.st_mode):
        raise NodeError(f"{upload.name} must be a folder, but {upload.source} is {_describe_kind(found)}")
    root = os.path.realpath(upload.source)
    return sorted(_walk(upload.name, root, root, "", (root,)))


def _walk(name: str, root: str, folder: str, prefix: str, above: tuple[str, ...]) -> Iterator[OutputFile]:
    """Yield the files of a folder. ``above``: the real paths on the way down, against links that lead in a circle."""
    with os.scandir(folder) as entries:
        listed = sorted(entries, key=lambda entry: entry.name)
    for entry in listed:
        relative = prefix + entry.name
        real = os.path.realpath(entry.path) if entry.is_symlink() else entry.path
        found = _stat(real)
        if entry.is_symlink() and os.path.commonpath((root, real)) != root:
            transfer_messages.log_warning(f"{name}: {relative!r} links to outside the folder; not uploaded")
        elif found is None:
            transfer_messages.log_warning(f"{name}: {relative!r} is a broken link; not uploaded")
        elif stat.S_ISDIR(found.st_mode):
            if real in above:
                transfer_messages.log_warning(
                    f"{name}: {relative!r} links to a folder that contains it; not uploaded"
                )
            else:
                yield from _walk(name, root, real, relative + "/", (*above, real))
        elif stat.S_ISREG(found.st_mode):
            yield OutputFile(relative, real, _stamp(found))
        else:
            transfer_messages.log_warning(
                f"{name}: {relative!r} is neither a file nor a folder; not uploaded"
            )


class _OutputUpload:
    """The files of one output, side by side."""

    def __init__(
        self, upload: Upload, notes: _UploadNotes, progress: transfer_messages.ProgressReport
    ) -> None:
        self._upload = upload
        self._notes = notes
        self._progress = progress
        self._left: deque[OutputFile] = deque()
        self._error: BaseException | None = None

    def write(self, files: list[OutputFile], opened: Open) -> list[OutputFile]:
        """Upload changed files, and return them. Raises as the store, and NodeError for names that no service takes."""
        wanted = [one for one in files if not self._notes.has(self._upload.name, one)]
        strange = [one for one in wanted if not _is_text(one.relative)]
        wanted = [one for one in wanted if _is_text(one.relative)]
        if wanted:
            self._progress.total_files = len(wanted)
            self._progress.total_bytes = sum(one.stamp[0] for one in wanted)
            self._left.extend(wanted)
            self._upload_all(opened(self._upload)[1])
        if strange:
            names = ", ".join(ascii(one.relative) for one in strange[:3])
            raise NodeError(
                f"{self._upload.name}: files whose names are not UTF-8 cannot be uploaded: {names}"
            )
        return wanted

    def _upload_all(self, store: Store) -> None:
        count = min(_THREADS, len(self._left))
        threads = [
            threading.Thread(target=self._upload_some, args=(store,), daemon=True) for _ in range(count)
        ]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            self._notes.write()
        if self._error is not None:
            raise self._error

    def _upload_some(self, store: Store) -> None:
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


class _UploadNotes:
    """The files that this run has uploaded, noted in its folder."""

    def __init__(self, path: str, folder: RunFolder) -> None:
        self._path = path
        self._folder = folder
        data = folder.read_json(path) or {}
        self._state: State = {name: files for name, files in data.items() if isinstance(files, dict)}
        self._written = time.monotonic()
        self._changing = threading.Lock()

    def has(self, name: str, file: OutputFile) -> bool:
        return self._state.get(name, {}).get(file.relative) == list(file.stamp)

    def add(self, name: str, file: OutputFile) -> None:
        with self._changing:
            self._state.setdefault(name, {})[file.relative] = list(file.stamp)
            if time.monotonic() - self._written < _NOTES_INTERVAL_S:
                return
        self.write()

    def write(self) -> None:
        with self._changing:
            self._written = time.monotonic()
            self._folder.write(self._path, json.dumps(self._state))


def _describe_kind(found: os.stat_result) -> str:
    if stat.S_ISDIR(found.st_mode):
        return "a folder"
    return "a file" if stat.S_ISREG(found.st_mode) else "neither a file nor a folder"


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
