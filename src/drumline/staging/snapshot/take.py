"""
The code of a job as it was submitted, stored once per content and never changed afterwards.

What is taken: every regular file under the folder, links inside it followed, but for what ``.amlignore`` names, or
``.gitignore`` where there is no ``.amlignore``; only the one at the root is read, and it is itself taken.
Never taken: what a link reaches outside the folder, devices, sockets, pipes.
Source: https://learn.microsoft.com/azure/machine-learning/how-to-save-write-experiment-files (ignore files).

``<home>/snapshots/<digest>`` is a folder like the code. A file that has not changed since the code of this folder was
last taken is a hard link to the one in that snapshot, and is not read; any other is copied once, and its digest is that
of the copy. What is stored is how the folder was at one moment: all files and folders had the same stamps before the
first was read and after the last, or else those that had not are taken again.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
import time
from typing import TYPE_CHECKING

from drumline.contract.errors import NO_ROOM, PlanError
from drumline.contract.folder import private_folder
from drumline.contract.record import NamedTuple
from drumline.staging import file_copy
from drumline.staging.file_copy import (
    ChangedError,
    check_unchanged,
    have_equal_sizes,
    is_settled,
    mark_untrusted,
    open_unchanged,
    size_of,
)
from drumline.staging.snapshot.code_files import (
    NO_LIMITS,
    CodeLimits,
    IndexedFile,
    list_code,
    read_index,
    write_index,
)
from drumline.staging.snapshot.partial_folder import PartialFolder, snapshot_path

if TYPE_CHECKING:
    from collections.abc import Callable

    from drumline.staging.snapshot.code_files import CodeFile, CodeListing

LARGE_BYTES = 100 * 1024 * 1024
"""Above this a snapshot is worth a warning. Source: azure-ai-ml's own."""

SLOW_S = 2.0
"""After which it is said how far it is."""

_RETRY_PAUSES_S = (0.0, 0.05, 0.1, 0.2, 0.4)
"""Before each try; whoever writes may be done by then."""

_EMPTY_HINT = "an .amlignore file may leave out all of them"
_HINT = "try again when nothing writes there; an .amlignore file says what to leave out"
_LONGEST_SHOWN = 300


class Snapshot(NamedTuple):
    """A stored folder. ``digest`` names the snapshot; ``skipped`` says why each path was left out."""

    digest: str
    size_bytes: int
    file_count: int
    skipped: tuple[str, ...]


def take_snapshot(
    code: str,
    home: str,
    slow: Callable[[int], None] | None = None,
    known_as: str = "",
    limits: CodeLimits = NO_LIMITS,
) -> Snapshot:
    """
    Store the folder, or the single file, ``code``; nothing is copied when its content is stored already. Blocks.

    slow: called once, with the number of files so far, when it takes more than SLOW_S.
    known_as: for what is put together anew each time: by which that is compared with what it was last.
    Raises PlanError when there is nothing to take, when a file cannot be read, or keeps changing meanwhile.
    """
    taking = _Taking(code, home, slow, known_as, limits)
    try:
        return taking.take()
    except OSError as error:
        path = _shorten(error.filename2 or error.filename or code)
        hint = "an .amlignore file says what to leave out" if error.errno == errno.EACCES else ""
        raise PlanError(f"could not take the code: {error.strerror}: {path}", hint) from error
    finally:
        taking.close()


class _Taking:
    """One call of ``take_snapshot``, with the files that it has copied so far."""

    def __init__(
        self, code: str, home: str, slow: Callable[[int], None] | None, known_as: str, limits: CodeLimits
    ) -> None:
        self._code = code
        self._home = home
        self._slow = slow
        self._limits = limits
        self._slow_at = time.monotonic() + SLOW_S
        self._known_as = known_as or os.path.realpath(code)
        self._known = read_index(home, self._known_as)
        self._held: dict[str, IndexedFile] = {}
        """Of the files that were read, by relative path, with the stamps that they had then."""
        self._placed: dict[str, bytes] = {}
        """What is in the snapshot to be, copied or linked, with the stamp that the original had."""
        self._unsettled: set[str] = set()
        self._partial: PartialFolder | None = None

    def close(self) -> None:
        if self._partial:
            self._partial.remove()

    def take(self) -> Snapshot:
        before: CodeListing | None = None
        changed = ""
        for pause_s in _RETRY_PAUSES_S:
            if pause_s:
                time.sleep(pause_s)
            try:
                listing = list_code(self._code, self._home, self._report_slowness, self._limits)
                if not listing.files:
                    raise PlanError(f"the code folder {self._code} has no files to take", _EMPTY_HINT)
                # Else only something that is not taken came or went.
                if before is None or before.files != listing.files:
                    before = None
                    self._read(listing)
                    changed = listing.first_change()
                    if changed:
                        before = listing
                        continue
                return self._finish(listing)
            except ChangedError as change:
                before, changed = None, change.path
        what = f"the code in {self._code} keeps changing while it is being copied: {_shorten(changed)}"
        raise PlanError(what, _HINT)

    def _read(self, listing: CodeListing) -> None:
        """Digest every file, and copy those whose content is not stored. Raises ChangedError, OSError."""
        self._forget_all_but(listing)
        for file in listing.files:
            if not self._known.has(file.relative, file.stamp) and file.relative not in self._held:
                self._report_slowness(len(listing.files))
                self._held[file.relative] = self._read_file(file, self._known.get(file.relative))

    def _forget_all_but(self, listing: CodeListing) -> None:
        if not self._held and not self._placed:
            return
        stamps = {file.relative: file.stamp for file in listing.files}
        held = {relative: held.stamp for relative, held in self._held.items()}
        for relative, stamp in {**held, **self._placed}.items():
            if stamps.get(relative) != stamp:
                self._held.pop(relative, None)
                self._drop(relative)

    def _drop(self, relative: str) -> None:
        self._unsettled.discard(relative)
        self._placed.pop(relative, None)
        if self._partial:
            self._partial.drop(relative)

    def _read_file(self, file: CodeFile, was: IndexedFile | None) -> IndexedFile:
        source = open_unchanged(file.path, file.stamp)
        try:
            content = self._find_stored_content(source, file, was) or self._copy(source, file)
            facts = check_unchanged(source, file.path, file.stamp)
        except BaseException as error:
            self._drop(file.relative)
            if isinstance(error, OSError) and error.filename is None:
                error.filename = self._home if error.errno in NO_ROOM else file.path
            raise
        finally:
            os.close(source)
        if not is_settled(facts):
            self._unsettled.add(file.relative)
        return IndexedFile(file.stamp, content)

    def _find_stored_content(self, source: int, file: CodeFile, was: IndexedFile | None) -> bytes | None:
        """Return the digest of a file that was touched, or rewritten with the same content."""
        if was is None or not have_equal_sizes(was.stamp, file.stamp):
            return None
        try:
            stored = os.lstat(self._stored_path(file.relative))
        except OSError:
            return None
        if bool(stored.st_mode & stat.S_IXUSR) != file.is_program:
            return None
        content = file_copy.compute_digest(source)
        return content if content == was.content else None

    def _copy(self, source: int, file: CodeFile) -> bytes:
        if self._partial is None:
            self._partial = PartialFolder(os.path.join(self._home, "snapshots"))
        copy = file_copy.create_file(
            self._partial.place_for(file.relative), 0o500 if file.is_program else 0o400
        )
        try:
            self._placed[file.relative] = file.stamp
            return file_copy.copy_and_digest(source, copy)
        finally:
            os.close(copy)

    def _finish(self, listing: CodeListing) -> Snapshot:
        is_new = bool(self._held) or len(listing.files) != len(self._known)
        digest = self._compute_digest(listing) if is_new else self._known.snapshot
        if not os.path.isdir(snapshot_path(self._home, digest)):
            digest = self._store(listing)
        else:
            self._mend(snapshot_path(self._home, digest), listing)
        with contextlib.suppress(OSError):
            os.utime(snapshot_path(self._home, digest))  # It is used.
        if is_new or self._held:
            self._remember(digest, listing)
        size = sum(size_of(file.stamp) for file in listing.files)
        return Snapshot(digest, size, len(listing.files), listing.skipped)

    def _mend(self, stored: str, listing: CodeListing) -> None:
        """Restore files that were removed from a stored snapshot, or cut short. Raises ChangedError, OSError."""
        for file in listing.files:
            place = os.path.join(stored, file.relative)
            try:
                if os.lstat(place).st_size == size_of(file.stamp):
                    continue
            except FileNotFoundError:
                pass
            known_content = self._get_content(file).content
            source = open_unchanged(file.path, file.stamp)
            try:
                self._drop(file.relative)
                if self._copy(source, file) != known_content:
                    raise ChangedError(file.path)
                check_unchanged(source, file.path, file.stamp)
            finally:
                os.close(source)
            assert self._partial is not None
            private_folder(os.path.dirname(place))
            os.replace(self._partial.place_for(file.relative), place)

    def _store(self, listing: CodeListing) -> str:
        """Store the tree and return its digest; content that is stored already is linked, as nothing writes to it."""
        for file in listing.files:
            if file.relative not in self._placed:
                self._report_slowness(len(listing.files))
                self._link(file)
        digest = self._compute_digest(listing)
        assert self._partial is not None
        self._partial.move_to(snapshot_path(self._home, digest))
        return digest

    def _link(self, file: CodeFile) -> None:
        if self._partial is None:
            self._partial = PartialFolder(os.path.join(self._home, "snapshots"))
        place = self._partial.place_for(file.relative)
        try:
            os.link(self._stored_path(file.relative), place, follow_symlinks=False)
            self._placed[file.relative] = file.stamp
        except OSError:
            # It was removed, has as many links as it can have, or is where links are not to be had.
            self._held[file.relative] = self._read_file(file, None)

    def _stored_path(self, relative: str) -> str:
        return os.path.join(snapshot_path(self._home, self._known.snapshot), relative)

    def _compute_digest(self, listing: CodeListing) -> str:
        whole = hashlib.sha256()
        for file in listing.files:
            line = f"{file.relative}\0{file.is_program}\0{self._get_content(file).content.hex()}\n"
            whole.update(line.encode("utf-8", "surrogateescape"))
        return whole.hexdigest()

    def _get_content(self, file: CodeFile) -> IndexedFile:
        held = self._held.get(file.relative) or self._known.get(file.relative)
        assert held is not None
        return held

    def _remember(self, digest: str, listing: CodeListing) -> None:
        files = []
        for file in listing.files:
            held = self._get_content(file)
            if file.relative in self._unsettled:
                held = held._replace(stamp=mark_untrusted(held.stamp))
            files.append((file.relative, held))
        write_index(self._home, self._known_as, digest, files)

    def _report_slowness(self, file_count: int) -> None:
        if self._slow and time.monotonic() > self._slow_at:
            slow, self._slow = self._slow, None
            slow(file_count)


def _shorten(path: str) -> str:
    half = _LONGEST_SHOWN // 2
    return path if len(path) <= _LONGEST_SHOWN else f"{path[:half]}...{path[-half:]}"
