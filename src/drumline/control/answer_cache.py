"""Answers that took time to make, with what was true then; as many as fit into few bytes, compressed."""

from __future__ import annotations

import os
import pickle
import threading
import time
import zlib
from collections import OrderedDict
from typing import Any

_QUICKLY = 1


class KeptAnswers:
    """A store of values that JSON can hold, or arrays of numbers. Callers get copies."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._size = 0
        self._kept: OrderedDict[object, tuple[str, float, bytes]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: object, stamp: str) -> Any:
        """Return a copy of what was kept; None if there is none of that stamp that may still be used."""
        with self._lock:
            kept = self._kept.get(key)
            if kept is None or kept[0] != stamp or time.monotonic() > kept[1]:
                return None
            self._kept.move_to_end(key)
        return pickle.loads(zlib.decompress(kept[2]))  # noqa: S301 - of this process

    def put(self, key: object, stamp: str, value: Any, lasts_s: float | None) -> None:
        """``lasts_s`` None: as long as its stamp is right."""
        data = zlib.compress(pickle.dumps(value, pickle.HIGHEST_PROTOCOL), _QUICKLY)
        until = float("inf") if lasts_s is None else time.monotonic() + lasts_s
        with self._lock:
            self._size += len(data) - len(self._kept.pop(key, ("", 0.0, b""))[2])
            self._kept[key] = (stamp, until, data)
            while self._size > self._most:
                _, (_, _, dropped) = self._kept.popitem(last=False)
                self._size -= len(dropped)


def stamp_files(paths: list[str]) -> str:
    """Return what changes when one of these files does."""
    return " ".join(map(_stat, paths))


def _stat(path: str) -> str:
    try:
        known = os.stat(path, follow_symlinks=False)
    except OSError:
        return "-"
    return f"{known.st_size}.{known.st_mtime_ns}"
