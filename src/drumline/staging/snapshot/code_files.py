"""
The code in a folder: every plain file beneath it, links inside it followed, except ignored ones.

Folders are listed one at a time, each opened by a descriptor and compared with what its parent had: one that is swapped
for a link meanwhile is no way out, and depth needs neither descriptors nor a stack.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import stat
import struct
import time
from typing import TYPE_CHECKING

from drumline.contract.errors import PlanError
from drumline.contract.folder import base_home, home_of, private_folder, write_whole
from drumline.contract.record import NamedTuple
from drumline.contract.words import format_seconds, format_size
from drumline.staging.file_copy import ChangedError, stamp_of

if TYPE_CHECKING:
    from collections.abc import Callable


# Ignore patterns as regular expressions that do not backtrack.
#
# ``*a*a*a*b`` as pathspec translates it takes a time that grows with a power of the name's length: one pattern and one
# long name hold up a submission for ever. In a glob the leftmost match of what is between two stars is as good as any
# other, so each star but the last of a segment may be decided once, and so may each ``**`` but the last. A run of stars
# is one.
# Source: https://research.swtch.com/glob

_CLASS = r"\[\^?\]?(?:\\.|[^\]\\])*\]"
_ONE = rf"(?:\\.|(?!\[\^/\][*+]){_CLASS}|[^\[\](){{}}*+?/\\|^$.])"
"""What matches exactly one character that is no slash."""

_RUN = re.compile(r"(?:\[\^/\]\*){2,}")
_STAR = re.compile(rf"\[\^/\]\*((?:{_ONE})+)(?=\[\^/\]\*)")
_STARS = re.compile(r"\(\?:/\.\+\)\?((?:(?!\(\?:/\.\+\)\?|\(\?P<).)+)(?=\(\?:/\.\+\)\?)")
_CLASSES = re.compile(rf"\\.|{_CLASS}")


def remove_backtracking(regex: str) -> str:
    """
    Return a regular expression that matches the same paths as one of pathspec's.

    >>> remove_backtracking("^(?:.+/)?[^/]*a[^/]*b(?:(?P<ps_d>/)|$)")
    '^(?:.+/)?(?>[^/]*?a)[^/]*b(?:(?P<ps_d>/)|$)'
    """
    once = _STAR.sub(r"(?>[^/]*?\1)", _RUN.sub("[^/]*", regex))
    once = _CLASSES.sub(_keep_to_segment, once)
    return _STARS.sub(r"(?>(?:/.+?)??\1(?=/|$))", once)


def _keep_to_segment(found: re.Match[str]) -> str:
    """Have a class such as [!a] match no slash, as git has it."""
    return "(?!/)" + found[0] if found[0].startswith("[^") and found[0] != "[^/]" else found[0]


NAMES = (".amlignore", ".gitignore")
"""The first that is there counts. Source: https://learn.microsoft.com/azure/machine-learning/how-to-save-write-experiment-files"""

_MOST_BYTES = 1 << 20
_LONGEST_LINE = 4096
"""As long as a path. pathspec takes minutes to read some that have a million characters."""

_MOST_S = 10.0
_MOST_S_A_PATH = 0.01
"""
Of the processor for the patterns of a file, in all and more for each path: thousands of plain ones take less than a
tenth of it.
"""


def read_ignore_rules(root: str) -> Callable[[str], bool]:
    """
    Return a function that says whether a relative path is to be left out; a folder's path ends with a slash.

    Below a folder that is left out nothing is asked for any more. Raises PlanError with file and line of a pattern that
    is none, and OSError; the function raises PlanError when its patterns take too long.
    """
    for name in NAMES:
        path = os.path.join(root, name)
        if os.path.isfile(path):
            return _limit_time(path, _parse_rules(path))
    return lambda _: False


def _limit_time(path: str, is_ignored: Callable[[str], bool]) -> Callable[[str], bool]:
    spent_s, count = 0.0, 0

    def ask(relative: str) -> bool:
        nonlocal spent_s, count
        before = time.thread_time()
        answer = is_ignored(relative)
        count += 1
        spent_s += time.thread_time() - before
        if spent_s > _MOST_S + count * _MOST_S_A_PATH:
            what = f"{path}: its patterns took {format_seconds(spent_s)} for {count} paths"
            raise PlanError(what, "use fewer patterns, with fewer stars")
        return answer

    return ask


def _parse_rules(path: str) -> Callable[[str], bool]:
    import re

    from pathspec import GitIgnoreSpec

    lines = _read(path).splitlines()
    for number, line in enumerate(lines, 1):
        if len(line) > _LONGEST_LINE:
            raise PlanError(
                f"{path}:{number}: this pattern has {len(line)} characters, and may have {_LONGEST_LINE}"
            )
    try:
        rules = GitIgnoreSpec.from_lines(lines)
        for pattern in rules.patterns:
            regex = getattr(pattern, "regex", None)
            if regex is not None:
                pattern.regex = re.compile(remove_backtracking(regex.pattern), regex.flags)
    except (ValueError, re.error) as error:
        raise PlanError(f"{path}:{_line_of(lines)}: not a pattern of an ignore file") from error
    if not any(line.startswith("!") for line in lines):
        return rules.match_file
    # As in Azure, a file may be taken again from a folder that is ignored, so all folders are looked into.
    return lambda relative: not relative.endswith("/") and rules.match_file(relative)


def _read(path: str) -> str:
    # It may be a link, and a pipe may have taken its place.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, encoding="utf-8", errors="replace") as file:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            raise OSError(errno.EINVAL, "not a plain file", path)
        if facts.st_size > _MOST_BYTES:
            raise OSError(errno.EFBIG, "too large for an ignore file", path)
        return file.read(_MOST_BYTES)


def _line_of(lines: list[str]) -> int:
    """Return the number of the first line that is not a pattern, counted from 1."""
    import re

    from pathspec import GitIgnoreSpec

    for number, line in enumerate(lines, 1):
        try:
            GitIgnoreSpec.from_lines([line])
        except (ValueError, re.error):
            return number
    return 1


# The content of each file of a folder when its code was last taken, so that unchanged files are not read again.
#
# A file a folder of code, ``<home>/snapshot-index/<digest of its path>``: the digest of the snapshot, and for every
# file its stamp, the SHA-256 of its content and its relative path. It can be removed at any time.

_MAGIC = b"drumline snapshot index 1\n"
_STAMP_BYTES = 40
_DIGEST_BYTES = 32
_RECORD_BYTES = _STAMP_BYTES + _DIGEST_BYTES
_HEAD = struct.Struct("<32sQ")
_MOST_FOLDERS = 200


class IndexedFile(NamedTuple):
    stamp: bytes
    content: bytes


class SnapshotIndex:
    """The files of one snapshot. ``snapshot``: its digest; empty if there is none."""

    def __init__(self, snapshot: str = "", records: bytes = b"", names: list[str] | None = None) -> None:
        self.snapshot = snapshot
        self._records = records
        self._at = {name: at for at, name in enumerate(names or ())}

    def __len__(self) -> int:
        return len(self._at)

    def has(self, relative: str, stamp: bytes) -> bool:
        """Return whether the file with this stamp is known, and its content unchanged."""
        at = self._at.get(relative)
        return at is not None and self._records.startswith(stamp, at * _RECORD_BYTES)

    def get(self, relative: str) -> IndexedFile | None:
        at = self._at.get(relative)
        if at is None:
            return None
        begin = at * _RECORD_BYTES
        middle, end = begin + _STAMP_BYTES, begin + _RECORD_BYTES
        return IndexedFile(self._records[begin:middle], self._records[middle:end])


def read_index(home: str, root: str) -> SnapshotIndex:
    """Read the index of a folder; an empty one if there is none, or a damaged one."""
    try:
        with open(_path(home, root), "rb") as file:
            data = file.read()
    except OSError:
        return SnapshotIndex()
    body, check = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    head_end = len(_MAGIC) + _HEAD.size
    if not body.startswith(_MAGIC) or len(body) < head_end or hashlib.sha256(body).digest() != check:
        return SnapshotIndex()
    snapshot, count = _HEAD.unpack(body[len(_MAGIC) : head_end])
    names_at = head_end + count * _RECORD_BYTES
    names = body[names_at:].decode("utf-8", "surrogateescape").split("\0")
    return SnapshotIndex(snapshot.hex(), body[head_end:names_at], names if count else [])


def write_index(home: str, root: str, snapshot: str, files: list[tuple[str, IndexedFile]]) -> None:
    """Write all of it or nothing; of two at once the last one wins. An index that cannot be written is no harm."""
    body = b"".join((
        _MAGIC,
        _HEAD.pack(bytes.fromhex(snapshot), len(files)),
        b"".join(held.stamp + held.content for _, held in files),
        "\0".join(relative for relative, _ in files).encode("utf-8", "surrogateescape"),
    ))  # fmt: skip
    path = _path(home, root)
    with contextlib.suppress(OSError):
        private_folder(os.path.dirname(path))
        write_whole(path, body + hashlib.sha256(body).digest())
        _prune(os.path.dirname(path))


def _path(home: str, root: str) -> str:
    name = hashlib.sha256(os.fsencode(root)).hexdigest()[:32]
    return os.path.join(home, "snapshot-index", name)


def _prune(folder: str) -> None:
    """Remove the indexes of folders that were not taken for long, and partial files of killed processes."""
    names = os.listdir(folder)
    if len(names) <= _MOST_FOLDERS:
        return
    with os.scandir(folder) as entries:
        by_age = sorted(entries, key=lambda entry: entry.stat().st_mtime)
    for entry in by_age[: len(names) - _MOST_FOLDERS // 2]:
        os.unlink(entry.path)


MOST_ENTRIES = 1_000_000
"""Files and folders, those behind links to folders too: a few dozen of such links can mean more than all disks hold."""

MOST_DEEP = 200
"""Folders within each other: more than code has, less than what removes or copies a tree later can do."""

DOWNLOADS = ("artifacts", "named-outputs")
DOWNLOAD_MARKER = ".drumline-download"
"""In one of those folders: a download has made it, often beside the code, and it is none."""

_HINT = "an .amlignore file says what to leave out"
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_IS_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ESTALE)


class CodeLimits(NamedTuple):
    """The most that is taken of a folder."""

    entries: int = 0
    """0: MOST_ENTRIES."""

    size_bytes: int = 0
    """Of all files; 0: any."""

    file_bytes: int = 0
    """A larger file is left out; 0: none is."""

    folders: frozenset[str] = frozenset()
    """Names of folders that are left out."""

    prefixes: tuple[str, ...] = ()
    """Beginnings of names of files that are left out."""

    changed_before: float = 0.0
    """Seconds since 1970; files that were changed later are left out. 0: none is."""


NO_LIMITS = CodeLimits()


class CodeFile(NamedTuple):
    """A plain file to take."""

    relative: str
    path: str
    """Where it is; behind a link, what that leads to."""

    is_program: bool
    stamp: bytes


class CodeListing(NamedTuple):
    files: list[CodeFile]
    """By relative path, so that equal folders have equal digests."""

    skipped: tuple[str, ...]
    """Each path left out, and why, in words."""

    folders: list[tuple[str, bytes]]
    """All that were looked into, with their stamps then."""

    def first_change(self) -> str:
        """
        Return the path of a file or folder that is not as it was; empty when nothing has changed.

        A folder's is told too when only something that is ignored came or went. Raises OSError for what cannot be
        looked at any more.
        """
        for file in self.files:
            if not _is_same(file.path, file.stamp):
                return file.path
        return next((path for path, stamp in self.folders if not _is_same(path, stamp)), "")


class _ListedFolder(NamedTuple):
    path: str
    prefix: str
    identity: tuple[int, int]
    above: _ListedFolder | None
    depth: int

    def is_in(self, identity: tuple[int, int]) -> bool:
        folder: _ListedFolder | None = self
        while folder is not None and folder.identity != identity:
            folder = folder.above
        return folder is not None


def list_code(
    code: str, home: str, count: Callable[[int], None], limits: CodeLimits = NO_LIMITS
) -> CodeListing:
    """
    List a folder, or a single file. ``home`` and other job folders are never part of it. Blocks.

    ``count`` is told now and then how many files were found.
    Raises PlanError, OSError, and ChangedError when a folder is swapped meanwhile.
    """
    root = os.path.realpath(code)
    facts = os.stat(root)
    if stat.S_ISREG(facts.st_mode):
        return CodeListing([_make_code_file(os.path.basename(code), root, facts)], (), [])
    if not stat.S_ISDIR(facts.st_mode):
        raise PlanError(f"the code {code} is neither a folder nor a file")
    return _CodeWalk(root, _list_job_folders(home), count, limits).walk(
        _ListedFolder(root, "", (facts.st_dev, facts.st_ino), None, 0)
    )


class _CodeWalk:
    def __init__(
        self, root: str, kept: tuple[str, ...], count: Callable[[int], None], limits: CodeLimits
    ) -> None:
        self._root = root
        self._beneath = root.rstrip("/") + "/"
        self._kept = kept
        self._count = count
        self._limits = limits
        self._size_bytes = 0
        self._is_ignored = read_ignore_rules(root)
        self._files: list[CodeFile] = []
        self._skipped: list[str] = []
        self._folders: list[tuple[str, bytes]] = []
        self._waiting: list[_ListedFolder] = []

    def walk(self, root: _ListedFolder) -> CodeListing:
        self._waiting.append(root)
        while self._waiting:
            self._look_into(self._waiting.pop())
            self._count(len(self._files))
            most = self._limits.entries or MOST_ENTRIES
            if len(self._files) + len(self._folders) > most:
                raise PlanError(f"the code in {self._root} has more than {most:,} files", _HINT)
        self._files.sort()
        return CodeListing(self._files, tuple(sorted(self._skipped)), self._folders)

    def _look_into(self, folder: _ListedFolder) -> None:
        if folder.depth > MOST_DEEP:
            raise PlanError(f"the code is more than {MOST_DEEP} folders deep: {folder.prefix}", _HINT)
        try:
            descriptor = os.open(folder.path, _OPEN)
        except OSError as error:
            if error.errno in _IS_GONE:
                raise ChangedError(folder.path) from error
            raise
        try:
            facts = os.fstat(descriptor)
            if (facts.st_dev, facts.st_ino) != folder.identity:
                raise ChangedError(folder.path)
            self._folders.append((folder.path, stamp_of(facts)))
            with os.scandir(descriptor) as entries:
                for entry in entries:
                    self._look_at(folder, entry)
        finally:
            os.close(descriptor)

    def _look_at(self, folder: _ListedFolder, entry: os.DirEntry[str]) -> None:
        relative = folder.prefix + entry.name
        path = f"{folder.path.rstrip('/')}/{entry.name}"
        if entry.is_symlink():
            self._look_behind(folder, relative, path)
            return
        # A folder is asked for with its slash: one that is ignored is not looked into.
        if self._is_ignored(relative + "/" if entry.is_dir(follow_symlinks=False) else relative):
            return
        try:
            facts = entry.stat(follow_symlinks=False)
        except OSError as error:
            if error.errno in _IS_GONE:
                return
            raise
        self._add(folder, relative, path, facts)

    def _look_behind(self, folder: _ListedFolder, relative: str, link: str) -> None:
        path = os.path.realpath(link)
        try:
            facts = _facts_of(path)
        except OSError:
            facts = None
        is_folder = facts is not None and stat.S_ISDIR(facts.st_mode)
        if self._is_ignored(relative + "/" if is_folder else relative):
            return
        if path != self._root and not path.startswith(self._beneath):
            self._skipped.append(f"{relative}: a link to outside the folder")
        elif facts is None or stat.S_ISLNK(facts.st_mode):
            self._skipped.append(f"{relative}: a link to nothing")
        elif is_folder and folder.is_in((facts.st_dev, facts.st_ino)):
            self._skipped.append(f"{relative}: a link to a folder that it is in")
        else:
            self._add(folder, relative, path, facts)

    def _add(self, folder: _ListedFolder, relative: str, path: str, facts: os.stat_result) -> None:
        if stat.S_ISREG(facts.st_mode):
            self._add_file(relative, path, facts)
        elif not stat.S_ISDIR(facts.st_mode):
            self._skipped.append(f"{relative}: neither a file nor a folder")
        elif path in self._kept:
            self._skipped.append(f"{relative}: the folder in which jobs are kept")
        elif os.path.basename(relative) in DOWNLOADS and os.path.exists(f"{path}/{DOWNLOAD_MARKER}"):
            self._skipped.append(
                f"{relative}: downloaded from a job; to take it, remove {relative}/{DOWNLOAD_MARKER}"
            )
        elif os.path.basename(relative) in self._limits.folders:
            self._skipped.append(f"{relative}: not code")
        else:
            identity = (facts.st_dev, facts.st_ino)
            self._waiting.append(_ListedFolder(path, relative + "/", identity, folder, folder.depth + 1))

    def _add_file(self, relative: str, path: str, facts: os.stat_result) -> None:
        limits = self._limits
        if limits.prefixes and os.path.basename(relative).startswith(limits.prefixes):
            self._skipped.append(f"{relative}: not code")
            return
        if limits.file_bytes and facts.st_size > limits.file_bytes:
            self._skipped.append(f"{relative}: larger than {format_size(limits.file_bytes)}")
            return
        if limits.changed_before and facts.st_mtime > limits.changed_before:
            self._skipped.append(f"{relative}: changed since")
            return
        self._size_bytes += facts.st_size
        if limits.size_bytes and self._size_bytes > limits.size_bytes:
            raise PlanError(f"the code in {self._root} has more than {format_size(limits.size_bytes)}", _HINT)
        self._files.append(_make_code_file(relative, path, facts))


def _make_code_file(relative: str, path: str, facts: os.stat_result) -> CodeFile:
    return CodeFile(relative, path, bool(facts.st_mode & stat.S_IXUSR), stamp_of(facts))


def _list_job_folders(home: str) -> tuple[str, ...]:
    """Return the folders in which jobs are kept; for a workspace of a home, that whole home."""
    real = os.path.realpath(home)
    above = os.path.dirname(os.path.dirname(real))
    name = os.path.basename(real)
    return (base_home(), real, *((above,) if home_of(name, above) == real else ()))


def _facts_of(path: str) -> os.stat_result:
    """Return the facts of a path that has no links, or raise ChangedError: it may have become one. Raises OSError."""
    descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        # Names that the kernel cannot print plainly, as of a deleted file, are another path as well.
        if os.readlink(f"/proc/self/fd/{descriptor}") != path:
            raise ChangedError(path)
        return os.fstat(descriptor)
    finally:
        os.close(descriptor)


def _is_same(path: str, stamp: bytes) -> bool:
    try:
        return stamp_of(os.lstat(path)) == stamp
    except OSError as error:
        if error.errno in _IS_GONE:
            return False
        raise
