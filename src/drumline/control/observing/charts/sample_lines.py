"""Lines of an agent's samples (``contract/samples.py``), of which only few are parsed: 512 ranks write very many."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from drumline.contract.folder import read_plain

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST_BYTES = 64 << 20
_BEGIN = re.compile(rb'\{"t":(\d{1,18}(?:\.\d{1,9})?),"a":(\d{1,9}),')
_RANK = re.compile(
    rb'\{"k":(-?\d{1,18}),"p":-?\d{1,18},"c":(\d{1,18}(?:\.\d{1,9})?),"m":(\d{1,18}),'
    rb'(?>(?:[^{}"]|"(?!x":1\})|\{[^{}]{0,20000}\})*)("x":1)?\}'
)


CPU_S, MEMORY = 1, 2
"""Places of values in what ``_RANK`` finds: those that most drawings are of."""


def choose_lines(path: str, attempt: int, bin_of: Callable[[float], int]) -> list[tuple[float, bytes]]:
    """Return the last line of an attempt in each bin, with its time."""
    chosen: dict[int, tuple[float, bytes]] = {}
    for line in read_plain(path, _MOST_BYTES).split(b"\n"):
        begin = _BEGIN.match(line)
        if begin and int(begin[2]) == attempt:
            when = float(begin[1])
            chosen[bin_of(when)] = (when, line)
    return [one for _, one in sorted(chosen.items())]


def list_uses(line: bytes, place: int) -> list[tuple[int, float, bool]]:
    """
    Return rank, value and whether it has ended for the ranks of a line as ``samples.to_line`` writes it, in a tenth of
    the time of ``from_line``.

    >>> line = b'{"t":1.0,"ranks":[{"k":3,"p":9,"c":0.25,"m":100,"M":100,"n":1,"t":1,"g":{"0":5},"x":1}]}'
    >>> list_uses(line, CPU_S), list_uses(line, MEMORY)
    ([(3, 0.25, True)], [(3, 100.0, True)])
    """
    return [(int(found[0]), float(found[place]), bool(found[3])) for found in _RANK.findall(line)]
