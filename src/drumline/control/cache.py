"""The cache of what was fetched, as a person looks after it."""

from __future__ import annotations

import os
import re
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from drumline.contract.errors import UsageError
from drumline.staging import cache_room, leases, sizes
from drumline.staging.cache import Cache

if TYPE_CHECKING:
    from typing import Any

    from drumline.staging.cache_room import Removal
    from drumline.staging.leases import Held

_UNITS = {"m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}
_UNLIMITED = 1 << 63


def show() -> dict[str, Any]:
    """Place, size and limit. Raises UsageError for a variable that is no size."""
    cache = Cache()
    most, where = cache_room.limit(cache)
    known = list(cache_room.contents(cache))
    size = sum(one.size for one in known)
    held = leases.held(cache)
    return {
        "path": cache.path,
        "size": sizes.shown(size),
        "size_bytes": size,
        "limit": sizes.shown(most),
        "limit_bytes": most,
        "limit_from": where,
        "files": len(known),
        "unfinished_bytes": cache_room.partial_size(cache),
        "used_by": sorted({os.path.basename(one.run) for one in held}),
    }


def entries() -> list[dict[str, Any]]:
    """What was fetched, by the address it came from; used last first."""
    cache = Cache()
    held = leases.held(cache)
    sources = sorted(cache.all_sources(), key=lambda source: -source.used)
    return [
        {
            "uri": source.uri,
            "size": sizes.shown(source.size),
            "size_bytes": source.size,
            "files": len(source.items),
            "last_used": _time(source.used),
            "used_by": _names(cache_room.users(source, held), held),
        }
        for source in sources
    ]


def prune(to: str | None, older_than: str | None, *, dry_run: bool) -> dict[str, Any]:
    """What was removed, or would be. ``to``: a size; None: the limit. Raises UsageError, OSError."""
    cache = Cache()
    most = cache_room.limit(cache)[0] if to is None else sizes.parse(to, "--to")
    before = time.time() - _seconds(older_than) if older_than is not None else 0.0
    if not os.path.isdir(cache.path):
        return _removed(cache_room.Removal((), 0, 0, 0))
    return _removed(cache_room.prune(cache, most, unused_since=before, dry_run=dry_run))


def clear() -> dict[str, Any]:
    """All that no running job uses. Raises OSError."""
    cache = Cache()
    if not os.path.isdir(cache.path):
        return _removed(cache_room.Removal((), 0, 0, 0))
    return _removed(cache_room.prune(cache, 0, cut_off_since=float(_UNLIMITED)))


def set_limit(size: str) -> None:
    """``default``: the default again. Raises UsageError, OSError."""
    cache_room.set_limit(Cache(), None if size == "default" else sizes.parse(size, "limit"))


def limit() -> dict[str, Any]:
    """Raises UsageError for a variable that is no size."""
    most, where = cache_room.limit(Cache())
    return {"limit": sizes.shown(most), "limit_bytes": most, "limit_from": where}


def _removed(removal: Removal) -> dict[str, Any]:
    return {
        "removed": list(removal.uris),
        "files": removal.files,
        "size": sizes.shown(removal.size),
        "size_bytes": removal.size,
        "left": sizes.shown(removal.left),
        "left_bytes": removal.left,
    }


def _names(runs: list[str], held: list[Held]) -> list[str]:
    return [os.path.basename(one.run) for one in held if one.run in runs]


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _seconds(text: str) -> float:
    """
    >>> _seconds("30d") == 30 * 24 * 3600
    True
    """
    found = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)([mhdw])", text.strip().lower())
    if found is None:
        raise UsageError(f"--older-than: {text!r} is no time", "a number with m, h, d or w, such as 30d")
    return float(found[1]) * _UNITS[found[2]]
