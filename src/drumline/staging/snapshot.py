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

from drumline.contract.errors import PlanError
from drumline.contract.folder import private_folder
from drumline.contract.record import NamedTuple
from drumline.staging import copying
from drumline.staging.code import known
from drumline.staging.code.known import Held
from drumline.staging.code.listing import list_code
from drumline.staging.code.partial import Partial
from drumline.staging.stamps import (
    ChangedError,
    check,
    distrusted,
    have_equal_sizes,
    is_settled,
    opened,
    size_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from drumline.staging.code.listing import Listed, Listing

LARGE_BYTES = 100 * 1024 * 1024
"""Above this a snapshot is worth a warning. Source: azure-ai-ml's own."""

SLOW_S = 2.0
"""After which it is said how far it is."""

_PAUSES_S = (0.0, 0.05, 0.1, 0.2, 0.4)
"""Before each try; whoever writes may be done by then."""

_EMPTY_HINT = "an .amlignore file may leave out all of them"
_HINT = "try again when nothing writes there; an .amlignore file says what to leave out"
_LONGEST_SHOWN = 300
_FULL = (errno.ENOSPC, errno.EDQUOT)


class Taken(NamedTuple):
    """``digest`` names the snapshot; ``skipped`` says of each path left out why, in words."""

    digest: str
    size_bytes: int
    file_count: int
    skipped: tuple[str, ...]


def path_of(home: str, digest: str) -> str:
    return os.path.join(home, "snapshots", digest)


def take(code: str, home: str, slow: Callable[[int], None] | None = None, known_as: str = "") -> Taken:
    """
    Store the folder, or the single file, ``code``; nothing is copied when its content is stored already. Blocks.

    slow: called once, with the number of files so far, when it takes more than SLOW_S.
    known_as: for what is put together anew each time: by which that is compared with what it was last.
    Raises PlanError when there is nothing to take, when a file cannot be read, or keeps changing meanwhile.
    """
    taking = _Taking(code, home, slow, known_as)
    try:
        return taking.take()
    except OSError as error:
        path = _shown(error.filename2 or error.filename or code)
        hint = "an .amlignore file says what to leave out" if error.errno == errno.EACCES else ""
        raise PlanError(f"could not take the code: {error.strerror}: {path}", hint) from error
    finally:
        taking.close()


def lay_out(home: str, digest: str, target: str) -> None:
    """
    A copy of a snapshot that the job may write to. ``target`` does not exist yet. Blocks. Raises OSError.

    Never links to what is stored: a job may write into its code, root even into files that are read-only, and what one
    job writes no other may see. Where the file system can, blocks are shared until one of them is written.
    """
    os.mkdir(target, 0o700)
    waiting = [(path_of(home, digest), target)]
    while waiting:
        source, inside = waiting.pop()
        with os.scandir(source) as entries:
            for entry in entries:
                path = f"{inside}/{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    os.mkdir(path, 0o700)
                    waiting.append((entry.path, path))
                else:
                    _lay_out_file(entry.path, path)


def _lay_out_file(source: str, target: str) -> None:
    original = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        facts = os.fstat(original)
        copy = copying.create(target, 0o700 if facts.st_mode & stat.S_IXUSR else 0o600)
        try:
            copying.copy(original, copy)
        finally:
            os.close(copy)
    finally:
        os.close(original)


class _Taking:
    """One call of ``take``, with the files that it has copied so far."""

    def __init__(self, code: str, home: str, slow: Callable[[int], None] | None, known_as: str) -> None:
        self._code = code
        self._home = home
        self._slow = slow
        self._slow_at = time.monotonic() + SLOW_S
        self._known_as = known_as or os.path.realpath(code)
        self._known = known.load(home, self._known_as)
        self._held: dict[str, Held] = {}
        """Of the files that were read, by relative path, with the stamps that they had then."""
        self._placed: dict[str, bytes] = {}
        """What is in the snapshot to be, copied or linked, with the stamp that the original had."""
        self._unsettled: set[str] = set()
        self._partial: Partial | None = None

    def close(self) -> None:
        if self._partial:
            self._partial.remove()

    def take(self) -> Taken:
        before: Listing | None = None
        changed = ""
        for pause_s in _PAUSES_S:
            if pause_s:
                time.sleep(pause_s)
            try:
                listing = list_code(self._code, self._home, self._count)
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
        what = f"the code in {self._code} keeps changing while it is being copied: {_shown(changed)}"
        raise PlanError(what, _HINT)

    def _read(self, listing: Listing) -> None:
        """The digest of every file, and a copy of each whose content is not stored. Raises ChangedError, OSError."""
        self._forget_all_but(listing)
        for file in listing.files:
            if not self._known.has(file.relative, file.stamp) and file.relative not in self._held:
                self._count(len(listing.files))
                self._held[file.relative] = self._read_file(file, self._known.get(file.relative))

    def _forget_all_but(self, listing: Listing) -> None:
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

    def _read_file(self, file: Listed, was: Held | None) -> Held:
        source = opened(file.path, file.stamp)
        try:
            content = self._stored_content(source, file, was) or self._copy(source, file)
            facts = check(source, file.path, file.stamp)
        except BaseException as error:
            self._drop(file.relative)
            if isinstance(error, OSError) and error.filename is None:
                error.filename = self._home if error.errno in _FULL else file.path
            raise
        finally:
            os.close(source)
        if not is_settled(facts):
            self._unsettled.add(file.relative)
        return Held(file.stamp, content)

    def _stored_content(self, source: int, file: Listed, was: Held | None) -> bytes | None:
        """The digest of a file that was touched, or written anew, but holds what it held."""
        if was is None or not have_equal_sizes(was.stamp, file.stamp):
            return None
        try:
            stored = os.lstat(self._stored(file.relative))
        except OSError:
            return None
        if bool(stored.st_mode & stat.S_IXUSR) != file.is_program:
            return None
        content = copying.digest(source)
        return content if content == was.content else None

    def _copy(self, source: int, file: Listed) -> bytes:
        if self._partial is None:
            self._partial = Partial(os.path.join(self._home, "snapshots"))
        copy = copying.create(self._partial.place_for(file.relative), 0o500 if file.is_program else 0o400)
        try:
            self._placed[file.relative] = file.stamp
            return copying.copy_and_digest(source, copy)
        finally:
            os.close(copy)

    def _finish(self, listing: Listing) -> Taken:
        is_new = bool(self._held) or len(listing.files) != len(self._known)
        digest = self._digest(listing) if is_new else self._known.snapshot
        if not os.path.isdir(path_of(self._home, digest)):
            digest = self._store(listing)
        else:
            self._mend(path_of(self._home, digest), listing)
        with contextlib.suppress(OSError):
            os.utime(path_of(self._home, digest))  # It is used.
        if is_new or self._held:
            self._remember(digest, listing)
        size = sum(size_of(file.stamp) for file in listing.files)
        return Taken(digest, size, len(listing.files), listing.skipped)

    def _mend(self, stored: str, listing: Listing) -> None:
        """What somebody has removed, or cut short, of a snapshot that is there. Raises ChangedError, OSError."""
        for file in listing.files:
            place = os.path.join(stored, file.relative)
            try:
                if os.lstat(place).st_size == size_of(file.stamp):
                    continue
            except FileNotFoundError:
                pass
            known_content = self._of(file).content
            source = opened(file.path, file.stamp)
            try:
                self._drop(file.relative)
                if self._copy(source, file) != known_content:
                    raise ChangedError(file.path)
                check(source, file.path, file.stamp)
            finally:
                os.close(source)
            assert self._partial is not None
            private_folder(os.path.dirname(place))
            os.replace(self._partial.place_for(file.relative), place)

    def _store(self, listing: Listing) -> str:
        """What is stored already is linked to: nothing writes to it any more. The digest of the whole."""
        for file in listing.files:
            if file.relative not in self._placed:
                self._count(len(listing.files))
                self._link(file)
        digest = self._digest(listing)
        assert self._partial is not None
        self._partial.move_to(path_of(self._home, digest))
        return digest

    def _link(self, file: Listed) -> None:
        if self._partial is None:
            self._partial = Partial(os.path.join(self._home, "snapshots"))
        place = self._partial.place_for(file.relative)
        try:
            os.link(self._stored(file.relative), place, follow_symlinks=False)
            self._placed[file.relative] = file.stamp
        except OSError:
            # It was removed, has as many links as it can have, or is where links are not to be had.
            self._held[file.relative] = self._read_file(file, None)

    def _stored(self, relative: str) -> str:
        return os.path.join(path_of(self._home, self._known.snapshot), relative)

    def _digest(self, listing: Listing) -> str:
        whole = hashlib.sha256()
        for file in listing.files:
            line = f"{file.relative}\0{file.is_program}\0{self._of(file).content.hex()}\n"
            whole.update(line.encode("utf-8", "surrogateescape"))
        return whole.hexdigest()

    def _of(self, file: Listed) -> Held:
        held = self._held.get(file.relative) or self._known.get(file.relative)
        assert held is not None
        return held

    def _remember(self, digest: str, listing: Listing) -> None:
        files = []
        for file in listing.files:
            held = self._of(file)
            if file.relative in self._unsettled:
                held = held._replace(stamp=distrusted(held.stamp))
            files.append((file.relative, held))
        known.save(self._home, self._known_as, digest, files)

    def _count(self, file_count: int) -> None:
        if self._slow and time.monotonic() > self._slow_at:
            slow, self._slow = self._slow, None
            slow(file_count)


def _shown(path: str) -> str:
    half = _LONGEST_SHOWN // 2
    return path if len(path) <= _LONGEST_SHOWN else f"{path[:half]}...{path[-half:]}"
