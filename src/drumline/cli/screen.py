"""
Text for the screen of a terminal: cut to its width, in tables without lines, and in a pager where it is long.

Everything here takes text of jobs, which may hold anything: ``to_line`` makes one safe line of it.
"""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING

from drumline.control.terminal import clean

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from typing import Any

PAGE_WIDTH = 100
GAP = "  "
_MOST_LETTERS = 4000
"""Of a cell, before it is looked at: a reason may be megabytes."""

_LEAST_CELL = 6
_EMOJI = "\ufe0f"
"""Makes the sign before it an emoji, which takes two columns."""


def terminal_width(most: int) -> int:
    """Return the width of the terminal, at most ``most``; at least 20."""
    return max(20, min(most, shutil.get_terminal_size().columns))


def to_line(value: Any, *, keep_blanks: bool = False) -> str:
    """
    Return one line without control characters, in letters that standard output has; ``-`` for None.

    ``keep_blanks``: as many as there are, for lines of a log; else one between words.
    """
    if value is None:
        return "-"
    text = clean(str(value)[:_MOST_LETTERS])
    if keep_blanks:
        text = "".join(" " if letter.isspace() else letter for letter in text.expandtabs()).rstrip()
    else:
        text = " ".join(text.split())
    encoding = sys.stdout.encoding or "utf-8"
    return text if text.isascii() else text.encode(encoding, "backslashreplace").decode(encoding)


def measure(text: str) -> int:
    """
    Return how many columns a terminal takes for a line.

    >>> measure("abc"), measure("鼓线"), measure("e\\u0301")
    (3, 4, 1)
    """
    return len(text) if text.isascii() else sum(map(_measure_letter, text))


def _measure_letter(letter: str) -> int:
    # wcwidth knows each terminal's quirks; for cutting a cell, Unicode's own tables are enough.
    from unicodedata import category, east_asian_width

    if letter == _EMOJI:
        return 1
    if category(letter) in ("Mn", "Me", "Cf") and letter != "\xad":
        return 0
    return 2 if east_asian_width(letter) in ("W", "F") else 1


def cut(text: str, room: int) -> str:
    """
    Return as much of a line as fits into ``room`` columns; its last letters say that it was cut.

    >>> cut("abcdef", 4), cut("鼓线鼓", 4)
    ('abc…', '鼓…')
    """
    if len(text) <= room and measure(text) <= room:
        return text
    try:
        mark = "…"
        mark.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        mark = "..."
    left = room - len(mark)
    if left < 0:
        return mark[: max(0, room)]
    end = 0
    for end, letter in enumerate(text):
        left -= 1 if letter.isascii() else _measure_letter(letter)
        # Many marks of no width may stand on one letter.
        if left < 0 or end > 4 * room:
            break
    return text[:end].rstrip() + mark


def pad(text: str, room: int, *, right: bool = False) -> str:
    """Return the text with blanks up to that width; ``right``: at the right edge."""
    blanks = " " * max(0, room - measure(text))
    return blanks + text if right else text + blanks


def fit_table(
    rows: Sequence[Sequence[str]],
    room: int | None,
    right: Collection[int] = (),
    order: Sequence[tuple[int, int]] = (),
) -> list[list[str]]:
    """
    Return the cells of a table, cut and padded so that a line of them with GAP between is at most ``room`` wide.

    ``room`` None: as wide as it takes. ``right``: columns at the right edge. ``order``: columns that are cut first, and
    the width that each keeps; without it the last column, then the widest.
    """
    if not rows or not rows[0]:
        return [[] for _ in rows]
    widths = [max(map(measure, column)) for column in zip(*rows, strict=True)]
    last = len(widths) - 1
    if room is not None:
        room -= len(GAP) * last
        for at, least in order or ((last, 2 * _LEAST_CELL),):
            widths[at] -= max(0, min(sum(widths) - room, widths[at] - least))
        while sum(widths) > room and max(widths) > 1:
            widths[widths.index(max(widths))] -= 1
    return [
        [
            cut(cell, width)
            if at == last and at not in right
            else pad(cut(cell, width), width, right=at in right)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        for row in rows
    ]


def join(cells: Sequence[str]) -> str:
    return GAP.join(cells).rstrip()


def wrap(text: str, room: int) -> list[str]:
    """Break a line between words so that each part is at most ``room`` wide; a longer word is broken."""
    lines: list[str] = []
    line = ""
    for word in text.split(" "):
        longer = f"{line} {word}" if line else word
        if measure(longer) <= room:
            line = longer
            continue
        if line:
            lines.append(line)
        while measure(word) > room:
            end = _break_at(word, room)
            lines.append(word[:end])
            word = word[end:]  # noqa: PLW2901
        line = word
    return [*lines, line] if line or not lines else lines


def _break_at(word: str, room: int) -> int:
    """Return how many letters of a word fit; at least one."""
    left = room
    for at, letter in enumerate(word):
        left -= _measure_letter(letter)
        if left < 0:
            return max(1, at)
    return len(word)


# long text in a pager, as git has it; never when piped


_VARIABLES = ("DRUMLINE_PAGER", "PAGER")
_LESS = {"LESS": "FRX"}
"""Quit if all fits on one screen, keep colours, leave the screen as it is. Not where the user has set it."""


def print_text(text: str) -> None:
    """Print the text; on a terminal that it does not fit on, in a pager. Blocks until the user has left that."""
    is_page = sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") not in (None, "dumb")
    is_long = is_page and text.count("\n") >= shutil.get_terminal_size().lines
    command = find_pager() if is_long else ""
    if not command or not _show_in_pager(command, text):
        sys.stdout.write(text)


def find_pager() -> str:
    """Return the pager's command for a shell; empty for none, as an empty variable or ``cat`` wants it."""
    for name in _VARIABLES:
        if name in os.environ:
            command = os.environ[name].strip()
            return "" if command == "cat" else command
    return "less" if shutil.which("less") else ""


def _show_in_pager(command: str, text: str) -> bool:
    """Return False if the pager could not be started, and the text is still to be shown."""
    import signal
    import subprocess

    sys.stdout.flush()
    # Ctrl-C is the pager's: it ends a search, not the reading.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        # The user's own command, as git runs it.
        with subprocess.Popen(  # noqa: S603
            ["sh", "-c", command],  # noqa: S607
            stdin=subprocess.PIPE,
            env={**_LESS, **os.environ},
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - no threads yet
        ) as pager:
            # A user who leaves early closes the pipe, which is no error.
            pager.communicate(text.encode(sys.stdout.encoding or "utf-8", "backslashreplace"))
    except OSError:
        return False
    finally:
        signal.signal(signal.SIGINT, before)
    # As the shell says it: it cannot be run, or there is none.
    return pager.returncode not in (126, 127)
