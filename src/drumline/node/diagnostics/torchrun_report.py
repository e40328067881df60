"""Torchrun's report on the processes that it started: the table at the end of its log, accelerate's too."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from drumline.contract.record import compile_late

if TYPE_CHECKING:
    from drumline.contract.evidence import ReportedProcess

_TABLE = compile_late(r"^=+\n.{1,1000} FAILED\n-+\n(.*?)^=+$", re.MULTILINE | re.DOTALL)
"""Source: torch/distributed/elastic/multiprocessing/errors/__init__.py, ChildFailedError."""

_ENTRY = compile_late(
    r"^  rank +: (\d{1,9}) \(local_rank: \d{1,9}\)\n  exitcode +: (-?\d{1,9}) \(pid: (\d{1,9})\)",
    re.MULTILINE,
)
_ROOT = "Root Cause"
_MAX_PROCESSES = 64


def parse_report(log: str) -> list[ReportedProcess]:
    """
    Return the failures that the last table lists, that which it calls the root cause first: rank, pid, code, signal.
    Empty where there is none.
    """
    tables = _TABLE.findall(log)
    if not tables:
        return []
    others, _, root = tables[-1].partition(_ROOT)
    found: list[ReportedProcess] = []
    for rank, code, pid in _ENTRY.findall(root) + _ENTRY.findall(others):
        number = int(code)
        ended, killed = (number, None) if number >= 0 else (None, -number)
        found.append({"rank": int(rank), "pid": int(pid), "code": ended, "signal": killed})
    return found[:_MAX_PROCESSES]
