"""Fields that a server has left out of an object: one that does not know a field drops it, and says nothing."""

from __future__ import annotations

from typing import Any

_LEFT_OUT = {"readOnly": False}
"""
Fields that servers leave out where they have this value. They keep false and 0 in all others that a job sends, where
these differ from nothing.
"""

_EMPTY: tuple[Any, ...] = ("", None, {}, [])
"""Values that say nothing: servers leave out most fields that have them."""

_NOTHING = object()

_NOT_NEEDED = ("ttlSecondsAfterFinished",)
"""Fields that jobs do without: servers before 1.21 remove nothing by themselves."""


def find_dropped(sent: Any, kept: Any, path: str = "") -> str:
    """
    Return the path of the first field that is missing in what the server has; empty: none. Values may differ: servers
    write quantities their way, and what a cluster's own rules change is theirs to change.

    >>> find_dropped({"spec": {"a": 1, "b": [{"c": 2}]}}, {"spec": {"a": 1, "b": [{}], "d": 4}})
    'spec.b.0.c'
    >>> find_dropped({"value": "", "list": []}, {})
    ''
    """
    if isinstance(sent, dict):
        wanted = {key: value for key, value in sent.items() if key not in _NOT_NEEDED}
        kept = kept if isinstance(kept, dict) else {}
        parts = [(key, value, kept.get(key, _NOTHING)) for key, value in wanted.items()]
    elif isinstance(sent, list):
        kept = kept if isinstance(kept, list) else []
        parts = [(key, value, kept[key] if key < len(kept) else _NOTHING) for key, value in enumerate(sent)]
    else:
        return ""
    for key, value, there in parts:
        place = f"{path}.{key}" if path else str(key)
        if there is _NOTHING and value not in (*_EMPTY, _LEFT_OUT.get(key, _NOTHING)):
            return place
        if missing := find_dropped(value, there, place):
            return missing
    return ""
