"""The links of nodes over time, a small file for each compute: which are kept, and which nothing needs."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from drumline.control.upkeep.stored_content import Content
from drumline.store import link_history

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def list_links(roots: Iterable[str]) -> Iterator[tuple[str, Content]]:
    """Yield the links that are kept in these homes, each after the name of its compute."""
    for root in roots:
        for compute, path in link_history.list_files(root):
            try:
                yield compute, Content(path, root, os.lstat(path).st_mtime)
            except OSError:
                continue


def choose_links(roots: Iterable[str], older_than_s: float) -> tuple[Content, ...]:
    """Return those that no job has added to for so long, and whose compute is not attached."""
    from drumline.control.machine import computes

    before = time.time() - older_than_s
    attached = frozenset(computes.names())
    return tuple(one for compute, one in list_links(roots) if compute not in attached and one.used < before)
