"""The cache of what was fetched, as a person looks after it."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from drumline.contract import words
from drumline.control.times import parse_age, utc
from drumline.staging.cache import cache_pruning, leases
from drumline.staging.cache.cache_folder import Cache

if TYPE_CHECKING:
    from typing import Any

    from drumline.staging.cache.leases import ActiveLease


_UNLIMITED = 1 << 63


def show() -> dict[str, Any]:
    """Describe the cache: path, size and limit. Raises UsageError for an invalid size in the variable."""
    cache = Cache()
    most, where = cache_pruning.read_limit(cache)
    known = list(cache_pruning.list_contents(cache))
    size = sum(one.size for one in known)
    held = leases.list_active_leases(cache)
    return {
        "path": cache.path,
        "size": words.format_size(size),
        "size_bytes": size,
        "limit": words.format_size(most),
        "limit_bytes": most,
        "limit_from": where,
        "files": len(known),
        "unfinished_bytes": cache_pruning.partial_size(cache),
        "used_by": sorted({os.path.basename(one.run) for one in held}),
    }


def entries() -> list[dict[str, Any]]:
    """List what was downloaded by address, the last used first."""
    cache = Cache()
    held = leases.list_active_leases(cache)
    sources = sorted(cache.list_sources(), key=lambda source: -source.used)
    return [
        {
            "uri": source.uri,
            "size": words.format_size(source.size),
            "size_bytes": source.size,
            "files": len(source.items),
            "last_used": utc(source.used, "seconds"),
            "used_by": _names(cache_pruning.find_users(source, held), held),
        }
        for source in sources
    ]


def prune(to: str | None, older_than: str | None, *, dry_run: bool) -> dict[str, Any]:
    """Remove what was not used for longest, down to the size ``to`` or the limit. Raises UsageError, OSError."""
    most = cache_pruning.read_limit(Cache())[0] if to is None else words.parse_size(to, "--to")
    before = time.time() - parse_age(older_than, "--older-than") if older_than is not None else 0.0
    return _remove(most, unused_since=before, dry_run=dry_run)


def prune_unused(age_s: float, *, dry_run: bool) -> dict[str, Any]:
    """Remove what was not used for that many seconds, whatever the size. Raises OSError."""
    return _remove(_UNLIMITED, unused_since=time.time() - age_s, dry_run=dry_run)


def clear() -> dict[str, Any]:
    """Remove all that no running job uses. Raises OSError."""
    return _remove(0, cut_off_since=float(_UNLIMITED))


def set_limit(size: str) -> None:
    """Set the limit; ``default`` restores the default. Raises UsageError, OSError."""
    cache_pruning.set_limit(Cache(), None if size == "default" else words.parse_size(size, "limit"))


def limit() -> dict[str, Any]:
    """Describe the limit. Raises UsageError for an invalid size in the variable."""
    most, where = cache_pruning.read_limit(Cache())
    return {"limit": words.format_size(most), "limit_bytes": most, "limit_from": where}


def _remove(most: int, **options: Any) -> dict[str, Any]:
    """Remove what ``cache_pruning.prune`` chooses, and describe it."""
    cache = Cache()
    is_there = os.path.isdir(cache.path)
    removal = cache_pruning.prune(cache, most, **options) if is_there else cache_pruning.Removal((), 0, 0, 0)
    return {
        "removed": list(removal.uris),
        "files": removal.files,
        "size": words.format_size(removal.size),
        "size_bytes": removal.size,
        "left": words.format_size(removal.left),
        "left_bytes": removal.left,
    }


def _names(runs: list[str], held: list[ActiveLease]) -> list[str]:
    return [os.path.basename(one.run) for one in held if one.run in runs]
