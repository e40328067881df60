"""
Colour of our own words on a terminal: grey for what repeats, red for where it began.

Text of jobs gets a colour as a whole or none, after ``control.terminal.clean`` has made it safe; nothing blinks.
"""

from __future__ import annotations

import os
import sys
from contextvars import ContextVar
from typing import TYPE_CHECKING

from drumline.contract import status as known
from drumline.contract.errors import UsageError

if TYPE_CHECKING:
    from typing import Literal, TextIO

    Colour = Literal["grey", "red", "green", "yellow", "bold"]

CHOICES = ("auto", "always", "never")
_CODES = {"grey": "2", "red": "31", "green": "32", "yellow": "33", "bold": "1"}
"""Source: ECMA-48, SGR. Grey is faint: bright black cannot be seen on some dark backgrounds."""

_choice: ContextVar[str] = ContextVar("drumline_color", default="auto")


def choose(word: str) -> None:
    """Take the word of ``--color`` for the rest of this process. Raises UsageError."""
    if word not in CHOICES:
        raise UsageError(f"--color must be one of {', '.join(CHOICES)}; got {word!r}", "--color never")
    from drumline.control import progress_bar

    _choice.set(word)
    progress_bar.IS_ALLOWED.set(word != "never")


def is_on(stream: TextIO | None = None) -> bool:
    """
    Return whether our words are coloured on a stream, by default standard output.

    ``--color`` decides, then NO_COLOR, then FORCE_COLOR and CLICOLOR_FORCE, then whether it is a terminal.
    Source: https://no-color.org, https://force-color.org, https://bixense.com/clicolors
    """
    choice = _choice.get()
    if choice != "auto":
        return choice == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if any(os.environ.get(name, "0") not in ("", "0") for name in ("FORCE_COLOR", "CLICOLOR_FORCE")):
        return True
    if os.environ.get("CLICOLOR") == "0" or os.environ.get("TERM") == "dumb":
        return False
    return (stream or sys.stdout).isatty()


def paint(text: str, colour: Colour | None, stream: TextIO | None = None) -> str:
    """Return the text in a colour where the stream has colours; ``colour`` None: as it is."""
    if not text or colour is None or not is_on(stream):
        return text
    return f"\x1b[{_CODES[colour]}m{text}\x1b[0m"


def colour_of(status: str) -> Colour | None:
    """Return the colour of a job's status: red for a failure, green for what goes on well, grey for what is over."""
    if status == known.FAILED:
        return "red"
    if status in (known.CANCELED, known.SKIPPED, known.NOT_STARTED):
        return "grey"
    if status in (known.RUNNING, known.FINALIZING):
        return "green"
    return None if status == known.COMPLETED else "yellow"


def paint_ending(text: str, stream: TextIO | None = None) -> str:
    """Colour the last lines of a stream: the verdict of a failure red, the command to paste bold."""
    if not is_on(stream):
        return text
    lines = text.splitlines(keepends=True)
    return "".join(_paint_line(line, stream) for line in lines)


def _paint_line(line: str, stream: TextIO | None) -> str:
    words = line.split(" ", 3)
    body = line.rstrip("\n")
    if words[0] == "job" and words[2:3] == ["failed"]:
        return paint(body, "red", stream) + line[len(body) :]
    if words[0] == "next:":
        return paint("next:", "bold", stream) + line[len("next:") :]
    return line
