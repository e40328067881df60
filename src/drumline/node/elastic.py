"""What torchrun says of the processes that it started: the table at the end of its log, accelerate's too."""

from __future__ import annotations

import re
from typing import Any

_TABLE = re.compile(r"^=+\n.{1,1000} FAILED\n-+\n(.*?)^=+$", re.MULTILINE | re.DOTALL)
"""Source: torch/distributed/elastic/multiprocessing/errors/__init__.py, ChildFailedError."""

_ENTRY = re.compile(
    r"^  rank +: (\d{1,9}) \(local_rank: \d{1,9}\)\n  exitcode +: (-?\d{1,9}) \(pid: (\d{1,9})\)",
    re.MULTILINE,
)
_ROOT = "Root Cause"
_MOST = 64


def reported(log: str) -> list[dict[str, Any]]:
    """
    Return the failures that the last table lists, that which it calls the root cause first: rank, pid, code, signal.
    Empty where there is none.
    """
    tables = _TABLE.findall(log)
    if not tables:
        return []
    others, _, root = tables[-1].partition(_ROOT)
    found = []
    for rank, code, pid in _ENTRY.findall(root) + _ENTRY.findall(others):
        number = int(code)
        how = {"code": number if number >= 0 else None, "signal": -number if number < 0 else None}
        found.append({"rank": int(rank), "pid": int(pid), **how})
    return found[:_MOST]
