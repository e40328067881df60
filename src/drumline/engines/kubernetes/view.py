"""The state of a job as its courier has last seen it, in a file of the run folder: readers need no API."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Literal, cast

from drumline.contract.folder import write_whole
from drumline.engines.base import JobView

if TYPE_CHECKING:
    from drumline.contract.folder import RunFolder


def _path(folder: RunFolder) -> str:
    return os.path.join(folder.path, "kubernetes.json")


def write(folder: RunFolder, state: str, reason: str, end: str = "", exit_code: int = 0) -> None:
    """Write the view down where it is news. Raises OSError."""
    news = {"state": state, "reason": reason, "status": end, "exit_code": exit_code}
    if folder.read_json(_path(folder)) != news:
        write_whole(_path(folder), json.dumps(news))


def read(folder: RunFolder) -> JobView:
    """Return the view; that the job waits, while nobody has looked."""
    known: dict[str, Any] = folder.read_json(_path(folder)) or {}
    state = cast('Literal["waits", "starts", "runs", "gone", "unknown"]', known.get("state") or "waits")
    reason = str(known.get("reason") or "its pods are being made")
    return JobView(state, reason, str(known.get("status") or ""), int(known.get("exit_code") or 0))
