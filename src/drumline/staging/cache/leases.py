"""
Leases: which jobs use which content of the cache.

A lease is a file of a run. It is open while its data is being fetched: content used since it began is not removed.
Afterwards it names the trees that the ranks read. It counts while its holder lives and the job has not ended.
"""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING

from drumline.contract import process_identity
from drumline.contract.folder import RunFolder, write_whole
from drumline.contract.outcome import fold
from drumline.contract.record import NamedTuple
from drumline.staging.cache.cache_folder import is_digest, key_of, list_names, read_json

if TYPE_CHECKING:
    from typing import Any

    from drumline.staging.cache.cache_folder import Cache


_UNREACHABLE_AGE_S = 14 * 24 * 3600.0
"""How long a lease counts whose run folder and holder cannot be seen from here, as of another machine."""


class ActiveLease(NamedTuple):
    """The lease of a running job. ``since``: when its fetch began, in seconds since 1970; None when that is over."""

    run: str
    since: float | None
    trees: tuple[str, ...]


class CacheLease:
    """The lease of one run, for the process that fetches for it."""

    def __init__(self, cache: Cache, run: str) -> None:
        self._cache = cache
        self._run = run
        self._path = os.path.join(cache.leases, key_of(run))
        self._since = time.time()
        before = read_json(self._path) or {}
        self._trees = {tree for tree in before.get("trees", ()) if is_digest(str(tree))}

    def begin(self) -> None:
        """Keep all content that is used from now on. Raises OSError."""
        with self._cache.in_use():
            self._write(process_identity.identify_process(os.getpid()), self._since)

    def add(self, tree: str) -> None:
        """Keep a tree that the ranks will read. Raises OSError."""
        self._trees.add(tree)
        self._write(process_identity.identify_process(os.getpid()), self._since)

    def close(self) -> None:
        """Hand the lease to the supervisor, or else to our parent, once all is in place. Raises OSError."""
        if not self._trees:
            os.unlink(self._path)
            return
        folder = RunFolder(self._run)
        # The parent of process 1 of a container is elsewhere, and has no number.
        who = folder.read_json(folder.supervisor) or process_identity.identify_process(
            os.getppid() or os.getpid()
        )
        self._write(who, None)

    def _write(self, who: dict[str, Any] | None, since: float | None) -> None:
        text = {"run": self._run, "who": who, "since": since, "trees": sorted(self._trees)}
        write_whole(self._path, json.dumps({**text, "written": time.time()}))


def list_active_leases(cache: Cache) -> list[ActiveLease]:
    """Return the leases that count. To be called while no process begins one, as in ``Cache.removing``."""
    found = (_parse_lease(read_json(os.path.join(cache.leases, name))) for name in list_names(cache.leases))
    return [one for one in found if one is not None]


def remove_ended_leases(cache: Cache) -> None:
    """Remove the leases that no longer count."""
    for name in list_names(cache.leases):
        path = os.path.join(cache.leases, name)
        if is_digest(name) and _parse_lease(read_json(path)) is None:
            os.unlink(path)


def _parse_lease(data: dict[str, Any] | None) -> ActiveLease | None:
    try:
        if data is None:
            return None
        run, who, since = str(data["run"]), dict(data["who"]), data["since"]
        trees = tuple(str(tree) for tree in data["trees"])
        if not os.path.isdir(run) and not process_identity.is_ours_to_judge(who):
            counts = time.time() - float(data["written"]) < _UNREACHABLE_AGE_S
        else:
            counts = (process_identity.is_alive(who) or _is_looked_after(run)) and not _has_ended(run)
        return ActiveLease(run, None if since is None else float(since), trees) if counts else None
    except (KeyError, TypeError, ValueError):
        return None


def _is_looked_after(run: str) -> bool:
    """Return whether another supervisor has taken over the run."""
    folder = RunFolder(run)
    return process_identity.is_alive(folder.read_json(folder.supervisor))


def _has_ended(run: str) -> bool:
    folder = RunFolder(run)
    return not os.path.isdir(run) or (folder.exists() and fold(folder.read_events()).is_final)
