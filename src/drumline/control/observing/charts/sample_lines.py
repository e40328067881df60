"""Lines of an agent's samples (``contract/samples.py``), of which only few are parsed: 512 ranks write very many."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from drumline.contract.folder import read_plain
from drumline.contract.record import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST_BYTES = 64 << 20
_BEGIN = re.compile(rb'\{"t":(\d{1,18}(?:\.\d{1,9})?),"a":(\d{1,9}),')
_RANK = re.compile(
    rb'\{"k":(-?\d{1,18}),"p":-?\d{1,18},"c":(\d{1,18}(?:\.\d{1,9})?),"m":(\d{1,18}),'
    rb'(?:[^{}"]|"(?!x":1\})|\{[^{}]{0,20000}\})*+("x":1)?\}'
)


class QuickUse(NamedTuple):
    """The parts of ``RankUse`` that most drawings are of."""

    rank: int
    cpu_s: float
    memory: int
    has_ended: bool


def choose_lines(path: str, attempt: int, bin_of: Callable[[float], int]) -> list[tuple[float, bytes]]:
    """Return the last line of an attempt in each bin, with its time."""
    chosen: dict[int, tuple[float, bytes]] = {}
    for line in read_plain(path, _MOST_BYTES).split(b"\n"):
        begin = _BEGIN.match(line)
        if begin and int(begin[2]) == attempt:
            when = float(begin[1])
            chosen[bin_of(when)] = (when, line)
    return [one for _, one in sorted(chosen.items())]


def list_uses(line: bytes) -> list[QuickUse]:
    """
    Return the ranks of a line as ``samples.to_line`` writes it, in a tenth of the time of ``from_line``.

    >>> list_uses(b'{"t":1.0,"ranks":[{"k":3,"p":9,"c":0.25,"m":100,"M":100,"n":1,"t":1,"g":{"0":5},"x":1}]}')[0][1:]
    (0.25, 100, True)
    """
    return [
        QuickUse(int(rank), float(cpu_s), int(memory), bool(ended))
        for rank, cpu_s, memory, ended in _RANK.findall(line)
    ]
