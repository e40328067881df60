"""
The cache's size, its limit and its pruning: least recently used content goes first, and none that a job uses.

A lease is a file of a run, which says which content it uses. It is open while its data is being fetched: content used
since it began is not removed. Afterwards it names the trees that the ranks read. It counts while its holder lives and
the job has not ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from typing import TYPE_CHECKING

from drumline.contract import process_identity, words
from drumline.contract.folder import RunFolder, write_whole
from drumline.contract.outcome import fold
from drumline.contract.record import NamedTuple
from drumline.staging.cache import locks, trees
from drumline.staging.cache.cache_folder import is_digest, key_of, list_names, read_json

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from drumline.staging.cache.cache_folder import Cache, CachedSource


LIMIT = "DRUMLINE_CACHE_LIMIT"
_SHARE = 4
"""The default limit is this part of its file system."""

_TIME_GRAIN_S = 2.0
"""Some file systems round the times of files to it."""

_INTERRUPTED_AGE_S = 7 * 24 * 3600.0
"""An interrupted fetch that is older is not expected to go on."""


class CachedContent(NamedTuple):
    digest: str
    """Of a chunk that was read through a mount: its key."""

    size: int
    used: float
    path: str


class Removal(NamedTuple):
    """
    A removal from the cache. ``uris``: of the sources that are not whole any more. ``size``: bytes; ``left``: those
    that are still there.
    """

    uris: tuple[str, ...]
    files: int
    size: int
    left: int


def read_limit(cache: Cache) -> tuple[int, str]:
    """Return the limit in bytes, and its origin: the variable's name, ``settings``, ``default``. Raises UsageError."""
    given = os.environ.get(LIMIT)
    if given:
        return words.parse_size(given, LIMIT), LIMIT
    kept = (read_json(cache.settings) or {}).get("limit")
    if isinstance(kept, int) and kept >= 0:
        return kept, "settings"
    path = cache.path
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    disk = os.statvfs(path)
    return disk.f_blocks * disk.f_frsize // _SHARE, "default"


def set_limit(cache: Cache, size: int | None) -> None:
    """Set the limit; None: back to the default. Raises OSError."""
    settings = read_json(cache.settings) or {}
    settings.pop("limit", None)
    cache.make()
    write_whole(cache.settings, json.dumps({**settings, **({} if size is None else {"limit": size})}))


def free_bytes(cache: Cache) -> int:
    """Return the bytes that its file system has left for us."""
    found = os.statvfs(cache.path)
    return found.f_bavail * found.f_frsize


def list_contents(cache: Cache) -> Iterator[CachedContent]:
    for folder in (cache.content, cache.chunks):
        for part in list_names(folder):
            for digest in list_names(os.path.join(folder, part)):
                path = os.path.join(folder, part, digest)
                with contextlib.suppress(FileNotFoundError):
                    found = os.lstat(path)
                    yield CachedContent(digest, found.st_size, found.st_atime, path)


def partial_size(cache: Cache) -> int:
    """Return the bytes on the disk of unfinished downloads."""
    return sum(measure_blocks(os.path.join(cache.partial, name)) for name in list_names(cache.partial))


def prune(
    cache: Cache,
    to: int,
    *,
    unused_since: float = 0.0,
    cut_off_since: float | None = None,
    dry_run: bool = False,
) -> Removal:
    """
    Remove until at most ``to`` bytes are left, and what was last used before ``unused_since`` (seconds since 1970);
    of fetches that were cut short, what is older than ``cut_off_since`` (None: a week). What a job uses stays. Blocks.
    Raises OSError.
    """
    with cache.removing():
        held = list_active_leases(cache)
        sources = list(cache.list_sources())
        # Of what was used together, few large ones rather than many small ones.
        known = sorted(_with_use(cache, sources), key=lambda one: (one.used, -one.size))
        leased = {tree for one in held for tree in one.trees}
        kept = {item.digest for source in sources if source.tree in leased for item in source.items}
        since = min((one.since for one in held if one.since is not None), default=None)
        left = sum(one.size for one in known)
        gone = []
        for one in known:
            safe = one.digest in kept or (since is not None and one.used >= since - _TIME_GRAIN_S)
            if not safe and (left > to or one.used < unused_since):
                gone.append(one)
                left -= one.size
        digests = {one.digest for one in gone}
        broken = [one for one in sources if any(item.digest in digests for item in one.items)]
        if not dry_run:
            _remove(cache, gone, broken, leased)
            _forget_partial(
                cache, time.time() - _INTERRUPTED_AGE_S if cut_off_since is None else cut_off_since
            )
    uris = tuple(sorted({source.uri for source in broken}))
    return Removal(uris, len(gone), sum(one.size for one in gone), left)


def make_room(cache: Cache, needed: int) -> str:
    """Make room for so many more bytes; return a warning if the limit does not hold. Raises OSError, UsageError."""
    most, _ = read_limit(cache)
    removal = prune(cache, max(0, most - needed))
    short = needed - free_bytes(cache)
    if short > 0:
        removal = prune(cache, max(0, removal.left - short))
    if removal.left + needed <= most:
        return ""
    return (
        f"the cache grows to {words.format_size(removal.left + needed)}, and its limit is {words.format_size(most)}: "
        "what running jobs use is kept"
    )


def find_users(source: CachedSource, held: list[ActiveLease]) -> list[str]:
    """Return the run folders of the jobs that use it."""
    return sorted(one.run for one in held if source.tree in one.trees)


def _with_use(cache: Cache, sources: list[CachedSource]) -> list[CachedContent]:
    used: dict[str, float] = {}
    for source in sources:
        for item in source.items:
            used[item.digest] = max(source.used, used.get(item.digest, 0.0))
    return [one._replace(used=max(one.used, used.get(one.digest, 0.0))) for one in list_contents(cache)]


def _remove(cache: Cache, gone: list[CachedContent], broken: list[CachedSource], leased: set[str]) -> None:
    """Remove trees before their content, sources before their trees: after a kill, less is left, but whole."""
    for source in broken:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(cache.sources, source.key))
    known = {source.tree for source in cache.list_sources()} | leased
    for tree in list_names(cache.trees):
        if tree not in known:
            trees.remove_tree(os.path.join(cache.trees, tree), cache.partial)
    for one in gone:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(one.path)
    if gone:
        _forget_entries(cache)
    remove_ended_leases(cache)


def _forget_entries(cache: Cache) -> None:
    """Remove entries of the index whose content is gone."""
    for part in list_names(cache.index):
        for name in list_names(os.path.join(cache.index, part)):
            path = os.path.join(cache.index, part, name)
            digest = str((read_json(path) or {}).get("digest", ""))
            if not is_digest(digest) or not os.path.lexists(cache.content_path(digest)):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)


def _forget_partial(cache: Cache, since: float) -> None:
    """Remove partial folders at once, since nobody makes one meanwhile; files in use stay."""
    for name in list_names(cache.partial):
        path = os.path.join(cache.partial, name)
        with contextlib.suppress(FileNotFoundError):
            if os.path.isdir(path) and not os.path.islink(path):
                trees.delete_tree(path)
            elif os.lstat(path).st_mtime < since:
                _remove_partial(cache, name)


def _remove_partial(cache: Cache, name: str) -> None:
    lock = locks.try_lock(os.path.join(cache.locks, name.partition(".")[0]))
    if lock is not None:
        try:
            os.unlink(os.path.join(cache.partial, name))
        finally:
            lock.release()


def measure_blocks(path: str) -> int:
    """Return the bytes of a file on the disk; 0 where there is none."""
    try:
        return os.lstat(path).st_blocks * 512
    except FileNotFoundError:
        return 0


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
