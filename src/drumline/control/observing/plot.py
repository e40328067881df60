"""A curve in a few lines of text: in braille's dots, or in ASCII where a terminal has no other letters."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from drumline.tracking.series import Series

_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
"""Of the left and the right column of a braille letter, from above. Source: Unicode, block Braille Patterns."""

_BLOCKS = "▁▂▃▄▅▆▇█"
_LEVELS = "_.-=*#"
LETTERS = "abcdefgh"
MOST_OVERLAID = len(LETTERS)
_SEVERAL = "*"


def curve(series: Series, width: int, height: int, *, unicode: bool) -> list[str]:
    """Draw ``height`` lines of at most ``width`` letters, and one with the steps; empty without finite values."""
    figures = series.figures()
    low, high = figures.lowest, figures.highest
    if low is None or high is None:
        return []
    labels = [number(high), *[""] * (height - 2), number(low)]
    margin = max(map(len, labels))
    columns = max(4, width - margin - 2)
    draw = _braille if unicode else _ascii
    rows = draw(series, columns, height, low, high)
    edge = "┤" if unicode else "|"
    lines = [f"{label:>{margin}}{edge}{row}".rstrip() for label, row in zip(labels, rows, strict=True)]
    first, last = map(str, figures.steps) if figures.steps[0] != figures.steps[1] else ("1", str(len(series)))
    gap = max(1, columns - len(first) - len(last))
    return [*lines, " " * (margin + 1) + first + " " * gap + last]


def line(series: Series, width: int, *, unicode: bool) -> str:
    """Draw one line; empty without finite values."""
    figures = series.figures()
    if figures.lowest is None or figures.highest is None:
        return ""
    marks = _BLOCKS if unicode else _LEVELS
    first, last = figures.steps
    values = series.columns(max(1, min(width, len(series), (last - first + 1) if last > first else width)))
    return "".join(
        " " if value is None else marks[_level(value, figures.lowest, figures.highest, len(marks))]
        for value in values
    )


def overlay(several: Sequence[Series | None], width: int, height: int) -> list[str]:
    """
    Draw series over the same steps and values, each with its letter, ``*`` where some meet.

    Empty without finite values. ``several``: None leaves out a letter.
    """
    drawn = [(letter, one) for letter, one in zip(LETTERS, several, strict=False) if one is not None]
    figures = {letter: (one, one.figures()) for letter, one in drawn}
    known = {letter: (one, shown) for letter, (one, shown) in figures.items() if shown.lowest is not None}
    if not known:
        return []
    low = min(one.lowest or 0.0 for _, one in known.values())
    high = max(one.highest or 0.0 for _, one in known.values())
    steps = (min(one.steps[0] for _, one in known.values()), max(one.steps[1] for _, one in known.values()))
    labels = [number(high), *[""] * (height - 2), number(low)]
    margin = max(map(len, labels))
    columns = max(4, width - margin - 2)
    rows = [[" "] * columns for _ in range(height)]
    for letter, (series, shown) in known.items():
        first, count = _place(shown.steps, steps, columns)
        for column, dots in enumerate(_dots(_join(series.columns(count)), height, low, high), first):
            for dot in dots:
                row = rows[height - 1 - dot]
                row[column] = letter if row[column] in (" ", letter) else _SEVERAL
    lines = [f"{label:>{margin}}|{''.join(row)}".rstrip() for label, row in zip(labels, rows, strict=True)]
    begin, end = map(str, steps)
    return [*lines, " " * (margin + 1) + begin + " " * max(1, columns - len(begin) - len(end)) + end]


def _place(steps: tuple[int, int], whole: tuple[int, int], columns: int) -> tuple[int, int]:
    """Return the first column of a series, and its number of columns."""
    span = whole[1] - whole[0]
    if not span:
        return 0, columns
    first, last = ((step - whole[0]) * (columns - 1) // span for step in steps)
    return first, last - first + 1


def number(value: float | None) -> str:
    """Format a number in few letters."""
    return "-" if value is None else f"{value:.5g}"


def _level(value: float, low: float, high: float, count: int) -> int:
    """Return the level of a value; 0 for the lowest."""
    # Halved first: their difference may be more than a number holds.
    span = high / 2 - low / 2
    share = (value / 2 - low / 2) / span if span else 0.5
    return min(count - 1, max(0, int(share * (count - 1) + 0.5)))


def _braille(series: Series, columns: int, height: int, low: float, high: float) -> list[str]:
    cells = [[0] * columns for _ in range(height)]
    for column, dots in enumerate(_dots(_join(series.columns(columns * 2)), height * 4, low, high)):
        for dot in dots:
            from_above = height * 4 - 1 - dot
            cells[from_above // 4][column // 2] |= _DOTS[column % 2][from_above % 4]
    return ["".join(chr(0x2800 + cell) if cell else " " for cell in row) for row in cells]


def _ascii(series: Series, columns: int, height: int, low: float, high: float) -> list[str]:
    rows = [[" "] * columns for _ in range(height)]
    for column, dots in enumerate(_dots(_join(series.columns(columns)), height, low, high)):
        for dot in dots:
            rows[height - 1 - dot][column] = "*"
    return ["".join(row) for row in rows]


def _join(values: list[float | None]) -> list[float | None]:
    """Fill each gap between two values with a straight line."""
    known = [index for index, value in enumerate(values) if value is not None]
    for left, right in pairwise(known):
        a, b = values[left] or 0.0, values[right] or 0.0
        for index in range(left + 1, right):
            share = (index - left) / (right - left)
            values[index] = a * (1 - share) + b * share
    return values


def _dots(values: Sequence[float | None], levels: int, low: float, high: float) -> list[range]:
    """Return the dots to set in each column, from below: its own, and those between it and the column before."""
    found: list[range] = []
    before: int | None = None
    for value in values:
        if value is None:
            found.append(range(0))
            continue
        level = _level(value, low, high, levels)
        if before is None or abs(level - before) <= 1:
            found.append(range(level, level + 1))
        else:
            found.append(range(before + 1, level + 1) if level > before else range(level, before))
        before = level
    return found
