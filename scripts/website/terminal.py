"""
What a terminal shows over time, and a picture of it: an SVG whose lines appear when they were printed.

It knows the few control sequences that the command line writes; the picture loads nothing, and stands still for readers
who ask for less motion.
"""

import re
from html import escape
from typing import NamedTuple

COLORS = {
    30: "#5c6370", 31: "#e06c75", 32: "#98c379", 33: "#e5c07b", 34: "#61afef", 35: "#c678dd", 36: "#56b6c2",
    37: "#d7dae0", 90: "#7f848e", 91: "#e06c75", 92: "#98c379", 93: "#e5c07b", 94: "#61afef", 95: "#c678dd",
    96: "#56b6c2", 97: "#ffffff",
}  # fmt: skip
GROUND, INK = "#16181d", "#d7dae0"
CELL, LINE, EDGE = 8.0, 18, 14
_PARTS = re.compile(r"\x1b\[([?\d;]*)([A-Za-z])|\x1b\][^\x07]*\x07|\x1b.|([\r\n\b\t])|([^\x1b\r\n\b\t]+)")


class Style(NamedTuple):
    color: int = 0
    is_bold: bool = False
    is_dim: bool = False


class Cell(NamedTuple):
    text: str
    style: Style


class Shown(NamedTuple):
    """A row of the screen from one moment to another; ``until`` 0: to the end."""

    row: int
    cells: tuple[Cell, ...]
    since: float
    until: float = 0.0


class Screen:
    """A terminal as high as all that is printed; nothing scrolls out of it, and long lines are broken."""

    def __init__(self, columns: int) -> None:
        self.columns = columns
        self.rows: list[list[Cell]] = [[]]
        self.row = self.column = 0
        self.style = Style()

    def write(self, text: str) -> None:
        for found in _PARTS.finditer(text):
            arguments, kind, control, plain = found.groups()
            if plain:
                self._print(plain)
            elif control == "\n":
                self._go(self.row + 1, self.column)
            elif control == "\r":
                self.column = 0
            elif control == "\b":
                self.column = max(0, self.column - 1)
            elif control == "\t":
                self._print(" " * (8 - self.column % 8))
            elif kind:
                self._control(kind, [int(one) for one in re.findall(r"\d+", arguments)])

    def _print(self, text: str) -> None:
        for one in text:
            if self.column >= self.columns:
                self._go(self.row + 1, 0)
            row = self.rows[self.row]
            while len(row) <= self.column:
                row.append(Cell(" ", Style()))
            row[self.column] = Cell(one, self.style)
            self.column += 1

    def _go(self, row: int, column: int) -> None:
        self.row, self.column = max(0, row), max(0, column)
        while len(self.rows) <= self.row:
            self.rows.append([])

    def _control(self, kind: str, numbers: list[int]) -> None:
        first = numbers[0] if numbers else 0
        steps = max(1, first)
        if kind == "m":
            for number in numbers or [0]:
                self._set(number)
        elif kind in "ABCD":
            down = {"A": -steps, "B": steps}.get(kind, 0)
            right = {"C": steps, "D": -steps}.get(kind, 0)
            self._go(self.row + down, self.column + right)
        elif kind == "G":
            self.column = steps - 1
        elif kind == "K":
            del self.rows[self.row][0 if first == 2 else self.column :]
        elif kind == "J":
            del self.rows[self.row][self.column :]
            for row in self.rows[self.row + 1 :]:
                row.clear()

    def _set(self, number: int) -> None:
        if number == 0:
            self.style = Style()
        elif number == 1:
            self.style = self.style._replace(is_bold=True)
        elif number == 2:
            self.style = self.style._replace(is_dim=True)
        elif number == 22:
            self.style = self.style._replace(is_bold=False, is_dim=False)
        elif number == 39:
            self.style = self.style._replace(color=0)
        elif number in COLORS:
            self.style = self.style._replace(color=number)


def history(events: list[tuple[float, str]], columns: int = 80) -> list[Shown]:
    """Return every row with the time in which the screen had it, given what was printed at which second."""
    screen = Screen(columns)
    now: dict[int, Shown] = {}
    done: list[Shown] = []
    for time, text in events:
        screen.write(text)
        for number, row in enumerate(screen.rows):
            cells = tuple(row)
            old = now.get(number)
            if (old.cells if old else ()) == cells:
                continue
            if old is not None and old.cells:
                done.append(old._replace(until=time))
            now[number] = Shown(number, cells, time)
    return sorted(done + [one for one in now.values() if one.cells])


def picture(events: list[tuple[float, str]], columns: int, title: str) -> str:
    """Return the SVG of what was printed at which second."""
    shown = history(events, columns)
    rows = max(one.row for one in shown) + 1
    width, height = columns * CELL + 2 * EDGE, rows * LINE + 2 * EDGE
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img" '
        f'aria-label="{escape(title)}">',
        f"<title>{escape(title)}</title>",
        "<style>",
        "text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;white-space:pre}",
        "g{opacity:0;animation:on 1ms linear forwards}",
        "g.gone{animation:on 1ms linear forwards,off 1ms linear forwards}",
        "@keyframes on{to{opacity:1}}@keyframes off{to{opacity:0}}",
        "@media (prefers-reduced-motion:reduce){g{animation:none;opacity:1}g.gone{animation:none;opacity:0}}",
        "</style>",
        f'<rect width="{width:g}" height="{height:g}" rx="6" fill="{GROUND}"/>',
    ]
    for one in shown:
        delays = f"{one.since:.2f}s" + (f",{one.until:.2f}s" if one.until else "")
        gone = ' class="gone"' if one.until else ""
        lines.append(f'<g{gone} style="animation-delay:{delays}">{_spans(one)}</g>')
    return "\n".join([*lines, "</svg>", ""])


def _spans(shown: Shown) -> str:
    """Return the text elements of a row, one for each run of cells of one style."""
    spans, start = [], 0
    baseline = EDGE + shown.row * LINE + 13
    cells = shown.cells
    for place in range(1, len(cells) + 1):
        if place < len(cells) and cells[place].style == cells[start].style:
            continue
        text = "".join(cell.text for cell in cells[start:place])
        stripped = text.strip(" ")
        if stripped:
            begin = start + len(text) - len(text.lstrip(" "))
            style = cells[start].style
            fill = COLORS.get(style.color, INK)
            more = ' font-weight="bold"' if style.is_bold else ""
            more += ' fill-opacity=".6"' if style.is_dim else ""
            spans.append(
                f'<text x="{EDGE + begin * CELL:g}" y="{baseline}" fill="{fill}"{more} '
                f'textLength="{len(stripped) * CELL:g}">{escape(stripped, quote=False)}</text>'
            )
        start = place
    return "".join(spans)
