"""
Which jobs there are, newest first, without opening a thousand folders.

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
from typing import TYPE_CHECKING

from drumline.contract.errors import DrumlineError
from drumline.contract.filesystems import is_network
from drumline.contract.folder import PARTIAL, private_folder, write_whole
from drumline.contract.record import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

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
"""
_VERSION = 2
_BUSY_S = 30.0

_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_FILES = ("", "-wal", "-shm", "-journal")

_LOCAL = "/var/tmp"  # noqa: S108 - a folder for this user alone is made in it, and whose it is is looked at


def _local() -> str:
    """This user's own folder of this machine, where there is one; nobody else can be first there."""
    own = os.environ.get("XDG_RUNTIME_DIR", "")
    return own if os.path.isabs(own) and os.path.isdir(own) and os.stat(own).st_uid == os.getuid() else _LOCAL


class Row(NamedTuple):
    """``created``: seconds since 1970. ``parent``: a job's name, or empty."""

    name: str
    created: float
    experiment: str
    parent: str
    archived: bool = False


def _take(folder: str) -> None:
    """
    The folder, for this user alone. Where everybody writes, somebody else may have made one of that name first: then
    it raises DrumlineError.
    """
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, 0o700)
    known = os.lstat(folder)
    if not stat.S_ISDIR(known.st_mode) or known.st_uid != os.getuid() or known.st_mode & 0o077:
        raise DrumlineError(f"{folder} is not this user's alone", "whoever made it has to remove it")


class Index:
    """In ``home``, or where that is on a network file system on this machine; it can be made again from the jobs."""

    def __init__(self, home: str) -> None:
        self._folder, self._ours = home, ""
        if is_network(home):
            # SQLite needs locks, and memory that is shared between processes: neither is to be had there.
            name = hashlib.sha256(os.fsencode(home)).hexdigest()[:16]
            self._ours = os.path.join(_local(), f"drumline-index-{os.getuid()}")
            self._folder = os.path.join(self._ours, name)
        self._path = os.path.join(self._folder, "index.sqlite")
        self._marks = os.path.join(home, "archive-marks") if self._ours else ""
        """Which jobs were archived or restored, for the indexes of other machines. One small file a job."""

    def set_archived(self, name: str, archived: bool) -> None:
        if self._marks:
            private_folder(self._marks)
            write_whole(os.path.join(self._marks, name), str(int(archived)))
        with self._transaction() as database:
            database.execute("UPDATE jobs SET archived = ? WHERE name = ?", (archived, name))

    def heal(self, names: Iterable[str], row_of: Callable[[str], Row | None]) -> None:
        """Make the index hold just these jobs; ``row_of`` is asked for those that it lacks."""
        there = set(names)
        with self._transaction() as database:
            known = {name for (name,) in database.execute("SELECT name FROM jobs")}
            gone = known - there
            database.executemany("DELETE FROM jobs WHERE name = ?", [(name,) for name in gone])
            rows = [row for name in there - known if (row := row_of(name)) is not None]
            database.executemany("INSERT INTO jobs VALUES (?, ?, ?, ?, ?)", rows)
            if self._marks:
                self._heed_marks(database, there)

    def _heed_marks(self, database: sqlite3.Connection, there: set[str]) -> None:
        """Jobs that another machine archived or restored. A mark is read when it is new or was replaced."""
        known = dict(database.execute("SELECT name, stamp FROM marks"))
        for name, stamp in _stamps(self._marks):
            path = os.path.join(self._marks, name)
            with contextlib.suppress(OSError):
                if name.endswith(PARTIAL):
                    continue  # Another machine is about to put it in its place.
                if name not in there:
                    os.unlink(path)
                elif known.get(name) != stamp:
                    with open(path, "rb") as file:
                        archived = file.read(1) == b"1"
                    database.execute("UPDATE jobs SET archived = ? WHERE name = ?", (archived, name))
                    database.execute("INSERT OR REPLACE INTO marks VALUES (?, ?)", (name, stamp))

    def names(self, *, archived: bool | None, parent: str | None, limit: int | None) -> list[str]:
        """Newest first. ``archived`` None: both kinds."""
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
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        if self._ours:
            _take(self._ours)
        private_folder(self._folder)
        try:
            database = self._begun()
        except sqlite3.Error as error:
            raise DrumlineError(
                f"the index {self._path} cannot be opened: {error}", "it can be deleted; it is made again"
            ) from error
        try:
            yield database
            database.execute("COMMIT")
        except sqlite3.Error as error:
            if _is_damaged(error):
                self._drop_damaged()
                hint = "run the command again; the index was deleted, and is made again from the jobs"
                raise DrumlineError(f"the index {self._path} was damaged: {error}", hint) from error
            raise DrumlineError(f"the index {self._path} cannot be used: {error}") from error
        finally:
            database.close()

    def _begun(self) -> sqlite3.Connection:
        """In a transaction. An index that is damaged is deleted and begun anew: jobs are added when it is healed."""
        try:
            return self._begin()
        except sqlite3.Error as error:
            if not _is_damaged(error):
                raise
        self._drop_damaged()
        return self._begin()

    def _begin(self) -> sqlite3.Connection:
        database = self._open()
        try:
            database.execute("BEGIN IMMEDIATE")
            # Damage beyond the first page is not seen before it is read.
            database.execute("SELECT count(*), max(created) FROM jobs").fetchone()
        except BaseException:
            database.close()
            raise
        return database

    def _drop_damaged(self) -> None:
        """Several processes may come here at once: one deletes, and the others find a whole index."""
        lock = os.open(f"{self._path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                database = self._begin()
                found = database.execute("PRAGMA quick_check(1)").fetchone()
                database.close()
                if found == ("ok",):
                    return
            except sqlite3.Error as error:
                if not _is_damaged(error):
                    raise
            for ending in _FILES:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self._path + ending)
        finally:
            os.close(lock)

    def _open(self) -> sqlite3.Connection:
        if not os.path.exists(self._path):
            os.close(os.open(self._path, os.O_CREAT | os.O_CLOEXEC, 0o600))
        database = sqlite3.connect(self._path, timeout=_BUSY_S, isolation_level=None)
        try:
            if database.execute("PRAGMA user_version").fetchone()[0] != _VERSION:
                database.execute("PRAGMA journal_mode = WAL")
                database.executescript(_SCHEMA)
                database.execute(f"PRAGMA user_version = {_VERSION}")
            database.execute("PRAGMA synchronous = NORMAL")
        except BaseException:
            database.close()
            raise
        return database


def _is_damaged(error: sqlite3.Error) -> bool:
    # The low byte is the kind of error. One of this module itself has no code.
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGE or "no such table" in str(error)


def _stamps(folder: str) -> Iterator[tuple[str, str]]:
    """By name, what changes whenever the file is replaced."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    facts = entry.stat(follow_symlinks=False)
                    yield entry.name, f"{facts.st_ino} {facts.st_mtime_ns}"
    except OSError:
        return
