"""
The index of jobs, newest first, so that nobody opens a thousand folders.

SQLite in WAL mode, and ``BEGIN IMMEDIATE`` always: a transaction that reads first and writes then fails at once
when another wrote in between, whatever its timeout.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import sqlite3
import stat
from itertools import islice
from typing import TYPE_CHECKING

from drumline.contract.errors import DrumlineError, describe_os_error
from drumline.contract.folder import PARTIAL, private_folder, write_whole
from drumline.contract.ownership import is_network
from drumline.contract.record import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

_SCHEMA = """
CREATE TABLE IF NOT EXISTS jobs (
    name TEXT PRIMARY KEY,
    created REAL NOT NULL,
    experiment TEXT NOT NULL,
    parent TEXT NOT NULL,
    archived INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS jobs_by_created ON jobs (created DESC);
CREATE TABLE IF NOT EXISTS marks (name TEXT PRIMARY KEY, stamp TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS kept (
    name TEXT PRIMARY KEY,
    stamp TEXT NOT NULL,
    facts TEXT NOT NULL,
    described TEXT NOT NULL
);
"""
_VERSION = 3
_KEEP = """
INSERT INTO kept VALUES (?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET
    described = CASE WHEN excluded.described = '' AND stamp = excluded.stamp THEN described ELSE excluded.described END,
    stamp = excluded.stamp,
    facts = excluded.facts
"""
_ARCHIVE = "UPDATE jobs SET archived = ? WHERE name = ?"
_LOCKED_LIMIT_S = 30.0
_LOG_LIMIT_MS = 1000
_BATCH = 500
"""Rows that are added at once."""


_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_FILES = ("", "-wal", "-shm", "-journal")

_LOCAL = "/var/tmp"  # noqa: S108 - a folder for this user alone is made in it, and whose it is is looked at


def _local_folder() -> str:
    """Return this user's own folder of this machine, which no other user can create first."""
    own = os.environ.get("XDG_RUNTIME_DIR", "")
    return own if os.path.isabs(own) and os.path.isdir(own) and os.stat(own).st_uid == os.getuid() else _LOCAL


class UnusableIndexError(DrumlineError):
    """The index cannot be opened or written, as on a full disk: lists do without it."""


class Row(NamedTuple):
    """One job. ``created``: seconds since 1970. ``parent``: a job's name, or empty."""

    name: str
    created: float
    experiment: str
    parent: str
    archived: bool = False


class KeptFacts(NamedTuple):
    """
    Facts of a job that has ended, as JSON. ``stamp``: of its events at that time. ``described``: all of it;
    empty where nobody has asked yet.
    """

    stamp: str
    facts: str
    described: str = ""


def _is_private(folder: str) -> bool:
    """Return whether it is a folder of this user, which nobody else may enter."""
    try:
        known = os.lstat(folder)
    except OSError:
        return False
    return stat.S_ISDIR(known.st_mode) and known.st_uid == os.getuid() and not known.st_mode & 0o077


class Index:
    """An index in ``home``, or on this machine if that is on a network file system; jobs suffice to make it again."""

    def __init__(self, home: str) -> None:
        self._folder, self._ours = home, ""
        if is_network(home):
            # SQLite needs locks, and memory that is shared between processes: neither is to be had there.
            name = hashlib.sha256(os.fsencode(home)).hexdigest()[:16]
            self._ours = os.path.join(_local_folder(), f"drumline-index-{os.getuid()}")
            self._folder = os.path.join(self._ours, name)
        self._path = os.path.join(self._folder, "index.sqlite")
        self._marks = os.path.join(home, "archive-marks") if self._ours else ""
        """Which jobs were archived or restored, for the indexes of other machines. One small file a job."""

    def find_damage(self) -> str:
        """Return what is wrong with the file; empty when nothing is, or there is none. Changes nothing."""
        if not self._is_trusted() or not os.path.exists(self._path):
            return ""
        from urllib.parse import quote

        address = f"file:{quote(self._path)}?mode=ro"
        try:
            with contextlib.closing(sqlite3.connect(address, uri=True)) as database:
                found = database.execute("PRAGMA quick_check(1)").fetchone()
        except sqlite3.Error as error:
            return str(error)
        return "" if found == ("ok",) else str(found[0])

    def repair(self) -> None:
        """Delete a damaged index; ``heal`` adds the jobs again. Raises DrumlineError."""
        try:
            self._drop_damaged()
        except sqlite3.Error as error:
            raise DrumlineError(f"the index {self._path} cannot be used: {error}") from error

    def set_archived(self, name: str, archived: bool) -> None:
        if self._marks:
            private_folder(self._marks)
            write_whole(os.path.join(self._marks, name), str(int(archived)))
        with self._transaction() as database:
            database.execute(_ARCHIVE, (archived, name))

    def heal(self, names: Iterable[str], row_of: Callable[[str], Row | None]) -> None:
        """
        Make the index hold just these jobs; ``row_of`` is called for those that it lacks.

        Other processes can use the index meanwhile; a row that one of them adds stays: it may be archived by now.
        """
        there = set(names)
        with self._transaction(deletes=True) as database:
            known = {name for (name,) in database.execute("SELECT name FROM jobs")}
            _delete(database, known - there)
        missing = iter(there - known)
        while batch := list(islice(missing, _BATCH)):
            rows = [row for name in batch if (row := row_of(name)) is not None]
            if rows:
                with self._transaction() as database:
                    database.executemany("INSERT OR IGNORE INTO jobs VALUES (?, ?, ?, ?, ?)", rows)
        if self._marks:
            with self._transaction() as database:
                _heed_marks(database, self._marks, there)

    def forget(self, names: Collection[str]) -> None:
        """Remove jobs that were deleted, and what they were. Never raises: else ``heal`` does it."""
        if names and os.path.exists(self._path) and self.can_write():
            with contextlib.suppress(DrumlineError, OSError), self._transaction(deletes=True) as database:
                _delete(database, names)

    def read_kept(self, names: Sequence[str] = ()) -> dict[str, KeptFacts]:
        """Return what is kept of these jobs, or of all, without their descriptions."""
        query = "SELECT name, stamp, facts FROM kept"
        with self._transaction() as database:
            if names:
                found = [
                    row for name in names for row in database.execute(query + " WHERE name = ?", (name,))
                ]
            else:
                found = database.execute(query).fetchall()
        return {name: KeptFacts(stamp, facts) for name, stamp, facts in found}

    def read_descriptions(self, names: Iterable[str]) -> dict[str, str]:
        """Return the descriptions of those jobs of which one is kept."""
        query = "SELECT described FROM kept WHERE name = ?"
        with self._transaction() as database:
            return {name: text for name in names for (text,) in database.execute(query, (name,))}

    def keep_facts(self, kept: Mapping[str, KeptFacts]) -> None:
        """Keep these; a description that was kept with the same stamp stays where these have none."""
        with self._transaction() as database:
            database.executemany(_KEEP, [(name, *one) for name, one in kept.items()])

    def can_write(self) -> bool:
        """Return whether the index can be written to, or made where it is missing."""
        if os.path.exists(self._path) and not os.access(self._path, os.W_OK):
            return False
        folder = self._folder
        while not os.path.isdir(folder):
            folder = os.path.dirname(folder)
        return os.access(folder, os.W_OK)

    def names_without_writing(
        self,
        names: Iterable[str],
        row_of: Callable[[str], Row | None],
        *,
        archived: bool | None,
        parent: str | None,
        limit: int | None,
    ) -> list[str]:
        """Return the same as ``heal`` and ``names`` do; every job that the index lacks is read from its folder."""
        there = set(names)
        rows = {row.name: row for row in self._read_rows() if row.name in there}
        found = [*rows.values(), *(row for name in there - rows.keys() if (row := row_of(name)) is not None)]
        return _choose_names(found, archived, parent, limit)

    def experiments(self) -> list[str]:
        """Return the experiments of the indexed jobs in alphabetical order, without writing."""
        return sorted({row.experiment for row in self._read_rows()})

    def _read_rows(self) -> list[Row]:
        return _read_rows(self._path) if self._is_trusted() else []

    def names(self, *, archived: bool | None, parent: str | None, limit: int | None) -> list[str]:
        """Return the names, newest first. ``archived`` None: both kinds."""
        where, values = ["1"], []
        if archived is not None:
            where.append("archived = ?")
            values.append(str(int(archived)))
        if parent is not None:
            where.append("parent = ?")
            values.append(parent)
        query = f"SELECT name FROM jobs WHERE {' AND '.join(where)} ORDER BY created DESC, name LIMIT ?"  # noqa: S608
        with self._transaction() as database:
            return [name for (name,) in database.execute(query, [*values, -1 if limit is None else limit])]

    @contextlib.contextmanager
    def _transaction(self, *, deletes: bool = False) -> Iterator[sqlite3.Connection]:
        try:
            if self._ours:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(self._ours, 0o700)
                # Where everybody may write, another user may have created one of that name first.
                if not _is_private(self._ours):
                    what = f"{self._ours} is not a folder for you alone"
                    raise UnusableIndexError(what, "delete it, or ask its owner to")
            private_folder(self._folder)
            database = self._begin_or_repair()
        except sqlite3.Error as error:
            hint = "delete it; it is rebuilt from the jobs"
            if _kind_of(error) == sqlite3.SQLITE_BUSY:
                hint = "another command is writing to it; run this one again in a moment"
            raise UnusableIndexError(f"the index {self._path} cannot be opened: {error}", hint) from error
        except OSError as error:
            what = f"the index {self._path} cannot be opened: {describe_os_error(error)}"
            raise UnusableIndexError(what) from error
        try:
            yield database
            database.execute("COMMIT")
            if deletes and database.total_changes:
                # Deleted rows are as they were in the write-ahead log, until it is emptied.
                database.execute(f"PRAGMA busy_timeout = {_LOG_LIMIT_MS}")
                database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except sqlite3.Error as error:
            if _is_damaged(error):
                self._drop_damaged()
                hint = "run the command again; the index was deleted, and is rebuilt from the jobs"
                raise DrumlineError(f"the index {self._path} was damaged: {error}", hint) from error
            raise UnusableIndexError(f"the index {self._path} cannot be used: {error}") from error
        finally:
            database.close()

    def _begin_or_repair(self) -> sqlite3.Connection:
        """Begin a transaction. A damaged index is deleted and begun anew; healing adds the jobs again."""
        try:
            return self._begin()
        except sqlite3.Error as error:
            if _is_damaged(error):
                self._drop_damaged()
            elif _kind_of(error) != sqlite3.SQLITE_IOERR:
                # Else it may have been deleted, since it was damaged, between its opening and its use.
                raise
        return self._begin()

    def _begin(self, *, is_locked: bool = False) -> sqlite3.Connection:
        database = self._open(is_locked=is_locked)
        try:
            database.execute("BEGIN IMMEDIATE")
            # Damage beyond the first page is not seen before it is read.
            database.execute("SELECT count(*), max(created) FROM jobs").fetchone()
        except BaseException:
            database.close()
            raise
        return database

    def _drop_damaged(self) -> None:
        """Delete a damaged index. Of several processes one deletes, and the others find a whole index."""
        with self._lock():
            try:
                database = self._begin(is_locked=True)
                found = database.execute("PRAGMA quick_check(1)").fetchone()
                database.close()
                if found == ("ok",):
                    return
            except sqlite3.Error as error:
                if not _is_damaged(error):
                    raise
            _delete_files(self._path)

    def discard(self) -> None:
        """Delete an index that cannot be written, and so holds what is no longer true. Never raises."""
        if self._is_trusted():
            with contextlib.suppress(OSError), self._lock():
                _delete_files(self._path)

    def _is_trusted(self) -> bool:
        """Return whether no other user has put files there."""
        return not self._ours or _is_private(self._ours)

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        """Hold the lock of those that delete an index or begin one."""
        lock = os.open(f"{self._path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _open(self, *, is_locked: bool = False) -> sqlite3.Connection:
        if not os.path.exists(self._path):
            os.close(os.open(self._path, os.O_CREAT | os.O_CLOEXEC, 0o600))
        database = sqlite3.connect(self._path, timeout=_LOCKED_LIMIT_S, isolation_level=None)
        try:
            if not _is_current(database):
                # SQLite waits for nobody who changes the journal mode too: it fails at once.
                with contextlib.nullcontext() if is_locked else self._lock():
                    if not _is_current(database):
                        database.execute("PRAGMA journal_mode = WAL")
                        database.executescript(_SCHEMA)
                        database.execute(f"PRAGMA user_version = {_VERSION}")
            database.execute("PRAGMA synchronous = NORMAL")
            # What a job was does not outlive it in pages that are free.
            database.execute("PRAGMA secure_delete = ON")
        except BaseException:
            database.close()
            raise
        return database


def _delete(database: sqlite3.Connection, names: Collection[str]) -> None:
    for table in ("jobs", "kept", "marks"):
        database.executemany(f"DELETE FROM {table} WHERE name = ?", [(name,) for name in names])  # noqa: S608


def _heed_marks(database: sqlite3.Connection, marks: str, there: set[str]) -> None:
    """Apply marks of jobs that another machine archived or restored, if they are new or were replaced."""
    known = dict(database.execute("SELECT name, stamp FROM marks"))
    for name, stamp in _list_stamps(marks):
        path = os.path.join(marks, name)
        with contextlib.suppress(OSError):
            if name.endswith(PARTIAL):
                continue  # Another machine is about to put it in its place.
            if name not in there:
                os.unlink(path)
            elif known.get(name) != stamp:
                with open(path, "rb") as file:
                    archived = file.read(1) == b"1"
                # A job without a row may get one that was read before it was marked.
                if database.execute(_ARCHIVE, (archived, name)).rowcount:
                    database.execute("INSERT OR REPLACE INTO marks VALUES (?, ?)", (name, stamp))


def _delete_files(path: str) -> None:
    for ending in _FILES:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path + ending)


def _read_rows(file: str) -> list[Row]:
    """Return the rows of an index without writing; none if it is missing, old or damaged."""
    # Without a write-ahead log SQLite reads no file but this one, and needs none of its own beside it.
    is_whole = not os.path.exists(f"{file}-wal")
    path = file.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    uri = f"file:{path}?mode=ro{'&immutable=1' if is_whole else ''}"
    try:
        with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=1.0)) as database:
            if database.execute("PRAGMA user_version").fetchone()[0] != _VERSION:
                return []
            columns = "name, created, experiment, parent, archived"
            listed = database.execute(f"SELECT {columns} FROM jobs").fetchall()  # noqa: S608
    except sqlite3.Error:
        return []
    return [
        Row(name, created, experiment, parent, bool(a)) for name, created, experiment, parent, a in listed
    ]


def _choose_names(
    rows: Iterable[Row], archived: bool | None, parent: str | None, limit: int | None
) -> list[str]:
    """Choose as ``Index.names`` does."""
    chosen = [
        row
        for row in rows
        if (archived is None or row.archived == archived) and (parent is None or row.parent == parent)
    ]
    chosen.sort(key=lambda row: (-row.created, row.name))
    return [row.name for row in chosen[: limit if limit is not None and limit >= 0 else None]]


def _is_current(database: sqlite3.Connection) -> bool:
    return bool(database.execute("PRAGMA user_version").fetchone()[0] == _VERSION)


def _kind_of(error: sqlite3.Error) -> int:
    # The low byte is the kind of error. One of the module sqlite3 itself has no code.
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _is_damaged(error: sqlite3.Error) -> bool:
    return _kind_of(error) in _DAMAGE or "no such table" in str(error)


def _list_stamps(folder: str) -> Iterator[tuple[str, str]]:
    """Yield name and stamp of each file; the stamp changes whenever the file is replaced."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    facts = entry.stat(follow_symlinks=False)
                    yield entry.name, f"{facts.st_ino} {facts.st_mtime_ns}"
    except OSError:
        return
