"""Text of jobs made safe for a terminal: whoever wrote it may not move the cursor, set titles or fill a clipboard."""

from __future__ import annotations

import re

from drumline.contract.words import DIRECTION_MARKS

_SEQUENCES = (
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor, erasing
    r"|\x1b[\]PX^_][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"  # OSC, DCS, SOS, PM, APC with their text
    r"|\x1b[ -/]*[0-~]"  # other escapes
    r"|\x9b[0-?]*[ -/]*[@-~]"  # CSI as one character
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f]"  # control characters but tab and newline
)
_CONTROL = r"[\x00-\x08\x0b-\x1f\x7f-\x9f]"
_IN_A_LINE = (
    r"(?:(?<=\x1b)(?:"
    r"\[[0-?]*[ -/]*[@-~]"
    r"|[\]PX^_][^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?"
    r"|[ -/]*[0-~])"
    r"|(?<=\x9b)[0-?]*[ -/]*[@-~])?"
)
"""What follows on a control character in the same line. A pattern that begins with a set is searched for quickly."""

_NO_COLOUR = r"(?!(?<=\x1b)\[[0-9;]*m)"
_UNSAFE = bytes([*range(9), *range(0x0B, 0x20), *range(0x7F, 0x100)])

_COLOUR = r"\x1b\[[0-9;]*m"


def clean(text: str, *, colours: bool = False) -> str:
    """
    Return the text without terminal control sequences; with ``colours`` those that only colour stay.

    Marks that turn the direction of writing are shown as their numbers.

    >>> clean("a\\x1b]0;title\\x07b\\x1b[31mc\\x1b[0m")
    'abc'
    """
    kept = re.sub(
        _SEQUENCES,
        lambda found: found.group() if colours and re.fullmatch(_COLOUR, found.group()) else "",
        text,
    )
    return re.sub(DIRECTION_MARKS, _as_number, kept)


def decode(line: bytes) -> str:
    """Decode bytes of a rank; invalid UTF-8 becomes the replacement character."""
    return line.decode("utf-8", "replace")


def clean_lines(lines: bytes, *, colours: bool = False) -> str:
    """
    Return what ``clean`` makes of each line decoded, for many lines at once.

    >>> clean_lines(b"a\\x1b]0;title\\nb\\x1b[31mc\\n")
    'a\\nbc\\n'
    """
    if len(lines.translate(None, _UNSAFE)) == len(lines):
        return lines.decode("ascii")
    text = decode(lines)
    if re.search(_CONTROL, text):
        text = re.sub(_CONTROL + (_NO_COLOUR if colours else "") + _IN_A_LINE, "", text)
    return re.sub(DIRECTION_MARKS, _as_number, text)


def _as_number(mark: re.Match[str]) -> str:
    return f"<U+{ord(mark.group()):04X}>"
