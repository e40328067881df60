"""
Which jobs use what of the cache.

A lease is a file of a run. It is open while its data is being fetched: what was used since it began is not removed.
Afterwards it names the trees that the ranks read. It counts while whoever holds it lives and the job has not ended.
"""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING

from drumline.contract import identity
from drumline.contract.folder import RunFolder, write_whole
from drumline.contract.outcome import fold
from drumline.contract.record import NamedTuple
from drumline.staging.cache import is_digest, key_of, listed, read_json

if TYPE_CHECKING:
    from typing import Any

    from drumline.staging.cache import Cache


_UNSEEN_S = 14 * 24 * 3600.0
"""How long one counts whose run folder and holder cannot be seen from here, as of another machine."""


class Held(NamedTuple):
    """Of a job that runs. ``since``: seconds since 1970, of one that is being fetched for; else None."""

    run: str
    since: float | None
    trees: tuple[str, ...]


class Lease:
    """That of one run, for the process that fetches for it."""

    def __init__(self, cache: Cache, run: str) -> None:
        self._cache = cache
        self._run = run
        self._path = os.path.join(cache.leases, key_of(run))
        self._since = time.time()
        before = read_json(self._path) or {}
        self._trees = {tree for tree in before.get("trees", ()) if is_digest(str(tree))}

    def begin(self) -> None:
        """From here on what is used is not removed. Raises OSError."""
        with self._cache.in_use():
            self._write(identity.of(os.getpid()), self._since)

    def add(self, tree: str) -> None:
        """The ranks will read it. Raises OSError."""
        self._trees.add(tree)
        self._write(identity.of(os.getpid()), self._since)

    def close(self) -> None:
        """All is in place; from here on it is the supervisor's, or else our parent's. Raises OSError."""
        if not self._trees:
            os.unlink(self._path)
            return
        folder = RunFolder(self._run)
        who = folder.read_json(folder.supervisor) or identity.of(os.getppid())
        self._write(who, None)

    def _write(self, who: dict[str, Any] | None, since: float | None) -> None:
        text = {"run": self._run, "who": who, "since": since, "trees": sorted(self._trees)}
        write_whole(self._path, json.dumps({**text, "written": time.time()}))


def held(cache: Cache) -> list[Held]:
    """Those that count. To be called while nobody begins one, as in ``Cache.removing``."""
    found = (_held(read_json(os.path.join(cache.leases, name))) for name in listed(cache.leases))
    return [one for one in found if one is not None]


def forget_ended(cache: Cache) -> None:
    """Those that count no more."""
    for name in listed(cache.leases):
        path = os.path.join(cache.leases, name)
        if is_digest(name) and _held(read_json(path)) is None:
            os.unlink(path)


def _held(data: dict[str, Any] | None) -> Held | None:
    try:
        if data is None:
            return None
        run, who, since = str(data["run"]), dict(data["who"]), data["since"]
        trees = tuple(str(tree) for tree in data["trees"])
        if not os.path.isdir(run) and not identity.is_ours_to_judge(who):
            counts = time.time() - float(data["written"]) < _UNSEEN_S
        else:
            counts = (identity.is_alive(who) or _is_looked_after(run)) and not _has_ended(run)
        return Held(run, None if since is None else float(since), trees) if counts else None
    except (KeyError, TypeError, ValueError):
        return None


def _is_looked_after(run: str) -> bool:
    """By a supervisor that has taken over from the one that the lease was left to."""
    folder = RunFolder(run)
    return identity.is_alive(folder.read_json(folder.supervisor))


def _has_ended(run: str) -> bool:
    folder = RunFolder(run)
    return not os.path.isdir(run) or (folder.exists() and fold(folder.read_events()).is_final)
