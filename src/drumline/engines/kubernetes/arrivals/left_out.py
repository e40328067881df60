"""The outputs that pods did not send, told once: in a warning of the job."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING

from drumline.contract import events as e
from drumline.contract.folder import read_plain
from drumline.engines.kubernetes.frames import LEFT_OUT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drumline.contract.folder import RunFolder

_KIND = "outputs"
_MOST_NAMED = 3
_LONGEST_NAME = 200
_MOST_BYTES = 4 << 20


def tell(folder: RunFolder) -> None:
    """Append a warning to the job's events where outputs are missing, and none is there yet. Raises OSError."""
    named: list[str] = []
    count = 0
    for path, reason, more in _read_lists(folder):
        count += more
        if reason and len(named) < _MOST_NAMED:
            named.append(f"{_shorten(path)} ({_shorten(reason)})")
    if not count or any(isinstance(one, e.JobWarned) and one.kind == _KIND for one in folder.read_events()):
        return
    others = count - len(named)
    what = "1 output was" if count == 1 else f"{count} outputs were"
    which = ", ".join(named) + (f" and {others} more" if others else "")
    text = (
        f"{what} not brought from the pods: {which}; "
        f"system_logs/{LEFT_OUT}*.jsonl has the list. A volume of the compute has room for such files: "
        "write below its path, or give the output a path there"
    )
    folder.append(e.JobWarned(time.time(), _KIND, text))


def _read_lists(folder: RunFolder) -> Iterator[tuple[str, str, int]]:
    """Yield path and reason of each output that a list names, and 1; nothing and how many more it has."""
    try:
        names = sorted(one for one in os.listdir(folder.system_logs) if one.startswith(LEFT_OUT))
    except FileNotFoundError:
        return
    for name in names:
        for line in read_plain(os.path.join(folder.system_logs, name), _MOST_BYTES).splitlines():
            try:
                one = json.loads(line)
                if "path" in one:
                    yield str(one["path"]), str(one["reason"]), 1
                else:
                    yield "", "", max(0, int(one["more"]))
            except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
                # A job may print frames of its own.
                continue


def _shorten(text: str) -> str:
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= _LONGEST_NAME else text[:_LONGEST_NAME] + "..."
