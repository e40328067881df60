"""
The job that a step ran as last, and what it ran with: by this a step that runs again says why.

``<home>/reuse/last-<digest>`` for each step of an experiment; it may be removed at any time.
"""

from __future__ import annotations

import hashlib
import json
import os
from typing import TYPE_CHECKING, Any

from drumline.contract.folder import home, open_text, private_folder, write_whole

if TYPE_CHECKING:
    from collections.abc import Mapping

_FORMAT = 1


def note(experiment: str, step: str, job: str, parts: Mapping[str, str]) -> None:
    """Record that the step has completed as this job. ``parts``: as in ``reuse.Fingerprint``. Raises OSError."""
    path = _path(experiment, step)
    private_folder(os.path.dirname(path))
    write_whole(path, json.dumps({"format": _FORMAT, "job": job, "parts": dict(parts)}))


def explain(experiment: str, step: str, parts: Mapping[str, str]) -> str:
    """
    Return why a step that runs now takes over nothing from the job that it ran as last; empty if it never ran.

    ``parts``: what it runs with now.
    """
    last = _read(_path(experiment, step))
    job, before = last.get("job"), last.get("parts")
    if last.get("format") != _FORMAT or not isinstance(job, str) or not isinstance(before, dict):
        return ""
    changed = [name for name in {**parts, **before} if parts.get(name) != before.get(name)]
    if changed:
        return f"changed since job {job}: {', '.join(changed)}"
    remote = [name for name, digest in parts.items() if not digest]
    if remote:
        return f"remote data may have changed since job {job}: {', '.join(remote)}"
    return f"job {job}, which did the same, no longer has the outputs that it wrote"


def _read(path: str) -> dict[str, Any]:
    try:
        with open_text(path) as file:
            data = json.load(file)
    except (OSError, ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def _path(experiment: str, step: str) -> str:
    name = hashlib.sha256(f"{experiment}\0{step}".encode("utf-8", "surrogateescape")).hexdigest()
    return os.path.join(home(), "reuse", f"last-{name[:32]}")
