"""
The times at which the logs of a node's ranks grew: ``<run folder>/log_times/attempt-<a>-node-<n>``, written by the
node's agent, a line for each look that found one longer, oldest first::

    1763850000.3 0:1024+512 3:99+99

Seconds since 1970 by the node's clock; then, for each log that had grown, the rank, the size in bytes, and how many of
them came since the line before. The agent looks once a second; the larger the file, the more rarely.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

from drumline.contract.record import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable


class Growth(NamedTuple):
    """The log of ``rank`` had ``size`` bytes; ``added`` of them were new."""

    rank: int
    size: int
    added: int


class LogLook(NamedTuple):
    """One look at all logs of a node."""

    time: float
    grown: tuple[Growth, ...]


def to_line(time: float, grown: Iterable[Growth]) -> bytes:
    """
    Return the line of a file of log times that says how far each log had grown at that time.

    >>> to_line(12.34, [Growth(0, 1024, 512)])
    b'12.3 0:1024+512\\n'
    """
    return b"%.1f%s\n" % (time, b"".join(b" %d:%d+%d" % tuple(one) for one in grown))


def from_line(line: bytes) -> Optional[LogLook]:
    """
    Return what a line says; None for one that is not whole.

    >>> from_line(b"12.3 0:1024+512\\n").grown[0].size
    1024
    """
    words = line.split()
    if not line.endswith(b"\n") or not words:
        return None
    try:
        grown = [map(int, word.replace(b"+", b":").split(b":")) for word in words[1:]]
        return LogLook(float(words[0]), tuple(Growth(*numbers) for numbers in grown))
    except (ValueError, TypeError):
        return None
