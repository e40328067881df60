"""The lists of jobs that this server keeps in memory: a few homes', each made when it is first asked for."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import NamedTuple

from drumline.contract.folder import home
from drumline.control.observing.job_list.rows import RowFigures
from drumline.control.observing.job_list.table import JobTable

_MOST_HOMES = 4


class HomeList(NamedTuple):
    table: JobTable
    figures: RowFigures


class Tables:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lists: OrderedDict[str, HomeList] = OrderedDict()

    def here(self) -> HomeList:
        """Return the list of the current workspace."""
        with self._lock:
            found = self._lists.get(home())
            if found is None:
                found = self._lists[home()] = HomeList(JobTable(), RowFigures())
            self._lists.move_to_end(home())
            while len(self._lists) > _MOST_HOMES:
                self._lists.popitem(last=False)
            return found
