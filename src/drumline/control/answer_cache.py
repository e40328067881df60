"""Answers that took time to make, with what was true then; as many as fit into few bytes, compressed."""

from __future__ import annotations

import os
import pickle
import threading
import time
import zlib
from collections import OrderedDict
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_QUICKLY = 1
_Answer = TypeVar("_Answer")


class KeptAnswers:
    """
    A store of values that JSON can hold, or arrays of numbers. Callers get copies.

    One answer is made at a time: several pages ask the same at once, and what an answer is made of takes memory.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._size = 0
        self._kept: OrderedDict[object, tuple[str, float, bytes]] = OrderedDict()
        self._lock = threading.Lock()

    def get_or_make(
        self, key: object, stamp: str, make: Callable[[], tuple[_Answer, float | None]]
    ) -> _Answer:
        """
        Return what was made before with that stamp, if it may still be used, else what ``make`` makes now.

        ``make`` returns the answer, and for how many times the seconds that it took it may be used; None: as long as
        its stamp is right, 0.0: not again.
        """
        with self._lock:
            kept = self._kept.get(key)
            if kept is not None and kept[0] == stamp and time.monotonic() <= kept[1]:
                self._kept.move_to_end(key)
                answer: _Answer = pickle.loads(zlib.decompress(kept[2]))  # noqa: S301 - of this process
                return answer
            began = time.monotonic()
            answer, factor = make()
            if factor != 0.0:
                now = time.monotonic()
                self._keep(
                    key, stamp, answer, float("inf") if factor is None else now + factor * (now - began)
                )
            return answer

    def _keep(self, key: object, stamp: str, answer: object, until: float) -> None:
        data = zlib.compress(pickle.dumps(answer, pickle.HIGHEST_PROTOCOL), _QUICKLY)
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
