"""Text of jobs made safe for a terminal: whoever wrote it may not move the cursor, set titles or fill a clipboard."""

from __future__ import annotations

import re

_SEQUENCES = (
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor, erasing
    r"|\x1b[\]PX^_][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"  # OSC, DCS, SOS, PM, APC with their text
    r"|\x1b[ -/]*[0-~]"  # other escapes
    r"|\x9b[0-?]*[ -/]*[@-~]"  # CSI as one character
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f]"  # control characters but tab and newline
)
_COLOUR = r"\x1b\[[0-9;]*m"
_DIRECTION = "[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"


def clean(text: str, *, colours: bool = False) -> str:
    """
    The text without terminal control sequences; with ``colours`` those that only colour stay.
    Marks that turn the direction of writing are shown as their numbers.

    >>> clean("a\\x1b]0;title\\x07b\\x1b[31mc\\x1b[0m")
    'abc'
    """
    kept = re.sub(
        _SEQUENCES,
        lambda found: found.group() if colours and re.fullmatch(_COLOUR, found.group()) else "",
        text,
    )
    return re.sub(_DIRECTION, lambda mark: f"<U+{ord(mark.group()):04X}>", kept)


def decode(line: bytes) -> str:
    """Bytes of a rank as text; what is not UTF-8 shows as the replacement character."""
    return line.decode("utf-8", "replace")
