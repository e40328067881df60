"""The packages that each rank must import itself, remembered from one warm pool to the next."""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any

from drumline.contract.folder import write_whole

_MAX_PROGRAMS = 64


class PerRankPackages:
    """
    The packages that are each rank's own to import, by key, so that it is found out once: next time the others are
    imported at once. It is a help alone, and looked at again whenever something is imported.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._known: dict[str, dict[str, Any]] = {}
        with contextlib.suppress(OSError, ValueError, TypeError):
            with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), encoding="utf-8") as file:
                known = json.load(file)
            self._known = {key: one for key, one in known.items() if _is_entry(one)}

    def get(self, key: str) -> dict[str, Any] | None:
        return self._known.get(key)

    def add(self, key: str, learned: dict[str, Any]) -> None:
        self._known.pop(key, None)
        self._known[key] = learned
        while len(self._known) > _MAX_PROGRAMS:
            del self._known[next(iter(self._known))]
        with contextlib.suppress(OSError):
            write_whole(self._path, json.dumps(self._known))


def _is_entry(one: Any) -> bool:
    lists = [one.get(name) for name in ("skip", "closure")] if isinstance(one, dict) else [None]
    return all(isinstance(found, list) and all(isinstance(name, str) for name in found) for found in lists)


def leave_out_packages(spec: dict[str, Any], learned: dict[str, Any]) -> dict[str, Any]:
    """Return that spec without the packages that it must leave out; the modules that they had imported come instead."""
    # What the program sets in between must be set before what follows, and not before the rest.
    is_plain = all(one[0] for one in spec["imports"])
    first = [[name, [], ""] for name in learned["closure"]] if is_plain else []
    rest = [one for one in spec["imports"] if one[0].partition(".")[0] not in learned["skip"]]
    return {**spec, "skip": learned["skip"], "imports": [*first, *rest]}
