"""
Secrets of a job: variables of its ranks whose values are stored nowhere.

The plan has their names. The values, here as one JSON object in a text, go from the command that submits to the
supervisor by a pipe, from there to the agents over their authenticated connections, and to ranks in their environment.

Slurm starts the supervisor on another machine, perhaps a day later and more than once, and keeps the environment of a
batch job on its disks until then. So a text is split by a one-time pad: random bytes stay in the run folder, and their
combination with the text goes to Slurm. Neither says anything about the values but an upper limit of their length.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

VARIABLE = "DRUMLINE_SECRETS"
"""The variable by which a driver gets the text itself, and the batch step of an engine its part of it."""

MOST_BYTES = 32 * 1024
"""Of all values of a job: twice as much fits into one variable of the kernel's."""

_BLOCK = 256


def to_text(values: Mapping[str, str]) -> str:
    """Return the text that stands for them; empty for none."""
    return json.dumps(dict(values)) if values else ""


def from_text(text: str) -> dict[str, str]:
    """Return what the text stands for; nothing for one that is damaged."""
    try:
        values = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return {}
    if not isinstance(values, dict):
        return {}
    return {name: value for name, value in values.items() if isinstance(value, str)}


def split(text: str) -> tuple[str, str]:
    """Return two texts of which neither tells anything of this one; ``join`` makes it again."""
    data = text.encode()
    data += b" " * (-len(data) % _BLOCK)
    pad = os.urandom(len(data))
    return pad.hex(), _combine(data, pad).hex()


def join(one: str, other: str) -> str:
    """Return the text that was split into these; empty where they are not parts of the same."""
    try:
        first, second = bytes.fromhex(one), bytes.fromhex(other)
        return _combine(first, second).decode().strip() if len(first) == len(second) else ""
    except ValueError:
        return ""


def _combine(one: bytes, other: bytes) -> bytes:
    both = int.from_bytes(one, "big") ^ int.from_bytes(other, "big")
    return both.to_bytes(len(one), "big")
