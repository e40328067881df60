"""
Secrets of a job: variables of its ranks whose values are stored nowhere.

The plan has their names. The values, here as one JSON object in a text, go from the command that submits to the
supervisor by a pipe, from there to the agents over their authenticated connections, and to ranks in their environment.

Slurm starts the supervisor on another machine, perhaps a day later and more than once, and keeps the environment of a
batch job on its disks until then. So a text is split by a one-time pad: random bytes stay in the run folder, and their
combination with the text goes to Slurm. Neither says anything about the values but an upper limit of their length.
A job that may be in the queue already is submitted with a pad of its own, which stands in the same file: either of the
two may start.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

VARIABLE = "DRUMLINE_SECRETS"
"""The variable by which a driver gets the text itself, and the batch step of an engine its part of it."""

MOST_BYTES = 32 * 1024
"""Of all values of a job: twice as much fits into one variable of the kernel's."""

_BLOCK = 256
_MOST_PADS = 8

MOST_PAD_CHARACTERS = _MOST_PADS * (4 * MOST_BYTES + 1)
"""Of the file with the pads of a job."""


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


def list_names(graph: Any) -> list[str]:
    """Return the secrets of all steps or trials in what a driver works by."""
    return list(dict.fromkeys(_list_all(graph)))


def _list_all(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        for key, value in part.items():
            if key == "drumline" and isinstance(value, dict):
                yield from map(str, value.get("secrets") or ())
            else:
                yield from _list_all(value)
    elif isinstance(part, list):
        for value in part:
            yield from _list_all(value)


def split(text: str) -> tuple[str, str]:
    """Return two texts of which neither tells anything of this one; ``join`` makes it again."""
    data = text.encode()
    data += b" " * (-len(data) % _BLOCK)
    pad = os.urandom(len(data))
    return pad.hex(), _combine(data, pad).hex()


def add_pad(pads: str, pad: str) -> str:
    """Return the text of the file of pads with one more; the oldest of too many are dropped."""
    return "\n".join([*pads.split()[1 - _MOST_PADS :], pad])


def join(pads: str, masked: str) -> str:
    """Return the text that was split; empty if the pad of ``masked`` is not among the pads."""
    for pad in pads.split():
        text = _join_one(pad, masked)
        if from_text(text):
            return text
    return ""


def _join_one(pad: str, masked: str) -> str:
    """Return the text; nonsense or nothing if the two are not of each other."""
    try:
        first, second = bytes.fromhex(pad), bytes.fromhex(masked)
        return _combine(first, second).decode().strip() if len(first) == len(second) else ""
    except ValueError:
        return ""


def _combine(one: bytes, other: bytes) -> bytes:
    both = int.from_bytes(one, "big") ^ int.from_bytes(other, "big")
    return both.to_bytes(len(one), "big")
