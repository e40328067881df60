"""The cache of what was fetched, as a person looks after it."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from drumline.contract import words
from drumline.contract.record import NamedTuple
from drumline.control.times import parse_age, utc
from drumline.staging.cache import cache_pruning
from drumline.staging.cache.cache_folder import Cache

if TYPE_CHECKING:
    from typing import Any

    from drumline.staging.cache.cache_pruning import ActiveLease


_UNLIMITED = 1 << 63


class CacheFacts(NamedTuple):
    """The cache. ``unfinished_bytes``: of downloads; ``used_by``: the jobs that use something of it."""

    path: str
    size: str
    size_bytes: int
    limit: str
    limit_bytes: int
    limit_from: str
    files: int
    unfinished_bytes: int
    used_by: list[str]


class CachedData(NamedTuple):
    """A download from an address."""

    uri: str
    size: str
    size_bytes: int
    files: int
    last_used: str | None
    used_by: list[str]


class RemovedData(NamedTuple):
    """A removal from the cache, done or planned, and the rest."""

    removed: list[str]
    files: int
    size: str
    size_bytes: int
    left: str
    left_bytes: int


class CacheLimit(NamedTuple):
    limit: str
    limit_bytes: int
    limit_from: str


def show() -> CacheFacts:
    """Return the facts of the cache. Raises UsageError for an invalid size in the variable."""
    cache = Cache()
    known = list(cache_pruning.list_contents(cache))
    size, held = sum(one.size for one in known), cache_pruning.list_active_leases(cache)
    return CacheFacts(
        *(cache.path, words.format_size(size), size, *limit(), len(known)),
        cache_pruning.partial_size(cache),
        sorted({os.path.basename(one.run) for one in held}),
    )


def entries() -> list[CachedData]:
    """List what was downloaded by address, the last used first."""
    cache = Cache()
    held = cache_pruning.list_active_leases(cache)
    return [
        CachedData(
            *(source.uri, words.format_size(source.size), source.size, len(source.items)),
            utc(source.used, "seconds"),
            _names(cache_pruning.find_users(source, held), held),
        )
        for source in sorted(cache.list_sources(), key=lambda source: -source.used)
    ]


def prune(to: str | None, older_than: str | None, *, dry_run: bool) -> RemovedData:
    """Remove what was not used for longest, down to the size ``to`` or the limit. Raises UsageError, OSError."""
    most = cache_pruning.read_limit(Cache())[0] if to is None else words.parse_size(to, "--to")
    before = time.time() - parse_age(older_than, "--older-than") if older_than is not None else 0.0
    return _remove(most, unused_since=before, dry_run=dry_run)


def prune_unused(age_s: float, *, dry_run: bool) -> RemovedData:
    """Remove what was not used for that many seconds, whatever the size. Raises OSError."""
    return _remove(_UNLIMITED, unused_since=time.time() - age_s, dry_run=dry_run)


def clear() -> RemovedData:
    """Remove all that no running job uses. Raises OSError."""
    return _remove(0, cut_off_since=float(_UNLIMITED))


def set_limit(size: str) -> None:
    """Set the limit; ``default`` restores the default. Raises UsageError, OSError."""
    cache_pruning.set_limit(Cache(), None if size == "default" else words.parse_size(size, "limit"))


def limit() -> CacheLimit:
    """Return the limit. Raises UsageError for an invalid size in the variable."""
    most, where = cache_pruning.read_limit(Cache())
    return CacheLimit(words.format_size(most), most, where)


def _remove(most: int, **options: Any) -> RemovedData:
    """Remove what ``cache_pruning.prune`` chooses, and describe it."""
    cache = Cache()
    is_there = os.path.isdir(cache.path)
    removal = cache_pruning.prune(cache, most, **options) if is_there else cache_pruning.Removal((), 0, 0, 0)
    size, left = words.format_size(removal.size), words.format_size(removal.left)
    return RemovedData(list(removal.uris), removal.files, size, removal.size, left, removal.left)


def _names(runs: list[str], held: list[ActiveLease]) -> list[str]:
    return [os.path.basename(one.run) for one in held if one.run in runs]
