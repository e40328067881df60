"""Find the line at which one rank leaves the others."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

from drumline.contract.words import format_seconds
from drumline.control.logs.lines import rank_files

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drumline.control.logs.lines.line_index import LineIndex
    from drumline.control.logs.lines.merged import MergedLog

LIMIT_S = 2.0
_MOST_PEERS = 7
_LINES = 2048
_MOST_FORMS = 200_000
_MOST_BYTES = 4 << 20
_SHOWN = 120
_VALUES = re.compile(
    rb"0x[0-9a-fA-F]+|\b[0-9a-f]{8,}\b|\d+(?:[.,:]\d+)*(?:[eE][+-]?\d+)?|nan|inf", re.IGNORECASE
)


def find_divergence(name: str, rank: int, attempt: int | None = None) -> dict[str, Any]:
    """
    Return in one ``sentence`` where the lines of a rank leave those of the others, and the number ``n`` of that line in
    the merged order of all ranks, or None; ``line`` is its number in the rank's own log.

    Lines are compared without the numbers in them. Of many other ranks some are looked at. Raises NotFoundError,
    UsageError.
    """
    logs = rank_files.find_logs(name, rank_files.ChosenLogs(attempt=attempt))
    own = logs.find(rank)
    merged = rank_files.merge(logs)
    label = logs.files[own].label
    peers = _choose_peers(merged, own)
    if not peers:
        return _tell(f"rank {label} has no other rank to be compared with", None, None)
    deadline = time.monotonic() + LIMIT_S
    known: set[int] = set()
    for peer in peers:
        known.update(form for _, form, _ in _read_forms(merged.logs[peer], merged.counts[peer], deadline))
    for line, form, text in _read_forms(merged.logs[own], merged.counts[own], deadline):
        if form not in known:
            shown = text.decode("utf-8", "replace").strip()
            shown = shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "..."
            return _tell(
                f"rank {label} leaves the others at its line {line + 1}: {shown}",
                merged.number_of(own, line),
                line,
            )
    if time.monotonic() > deadline:
        return _tell(
            f"rank {label} says what others say, as far as could be looked in {format_seconds(LIMIT_S)}",
            None,
            None,
        )
    return _tell_of_end(merged, own, peers)


def _tell_of_end(merged: MergedLog, own: int, peers: list[int]) -> dict[str, Any]:
    """Tell of a rank that says nothing of its own: whether it stopped before the others."""
    label, count = merged.files[own].label, merged.counts[own]
    most = sorted(merged.counts[peer] for peer in peers)[len(peers) // 2]
    if count >= most:
        return _tell(f"rank {label} says what the others say", None, None)
    if not count:
        return _tell(f"rank {label} has said nothing; the others have {most} lines", None, None)
    sentence = f"rank {label} stops after line {count}; the others go on to line {most}"
    return _tell(sentence, merged.number_of(own, count - 1), count - 1)


def _tell(sentence: str, number: int | None, line: int | None) -> dict[str, Any]:
    return {"sentence": sentence, "n": number, "line": line}


def _choose_peers(merged: MergedLog, own: int) -> list[int]:
    """Choose ranks that have said something, spread over all of them."""
    others = [log for log, count in enumerate(merged.counts) if log != own and count]
    step = max(1, len(others) // _MOST_PEERS)
    return others[::step][:_MOST_PEERS]


def _read_forms(index: LineIndex, count: int, deadline: float) -> Iterator[tuple[int, int, bytes]]:
    """Yield the number, the form without values, as a hash, and the text of each line that is not blank."""
    for first in range(0, min(count, _MOST_FORMS), _LINES):
        if time.monotonic() > deadline:
            return
        block = index.read_block(first, min(_LINES, count - first), _MOST_BYTES)
        forms = _VALUES.sub(b"#", block).split(b"\n")
        for place, (form, text) in enumerate(zip(forms, block.split(b"\n"), strict=True)):
            if form.strip():
                yield first + place, hash(form.strip()), text
