"""
Paths in a shell command, whatever characters they have.

Azure ML puts every value in as it is, which is safe for paths because its own have no blanks. A path of this machine
may: the shell is given the name of its variable instead, quoted as the place asks. So nothing in a path is ever read
as shell, even where the place was misjudged. Literal inputs are put in as they are: a value may be several words.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_SAFE = r"[\w@%+=:,./-]*"
_MARK = "\x01(\\d+)\x02"


def is_safe(path: str) -> bool:
    """Return whether a shell takes a path as one word, unquoted."""
    return re.fullmatch(_SAFE, path, re.ASCII) is not None


def mark(index: int) -> str:
    """Return the mark of a path until the command is whole. Callers have refused commands with these bytes."""
    return f"\x01{index}\x02"


def put(command: str, variables: Sequence[str]) -> str:
    r"""
    Return the command with its marks replaced by variables, each quoted as its place asks.

    >>> print(put("cat \1\x30\2 '\1\x30\2' \"\1\x30\2\"", ["IN"]))
    cat "${IN}" ''"${IN}"'' "${IN}"
    """
    parts: list[str] = []
    position = 0
    place = _QuotingState()
    for match in re.finditer(_MARK, command):
        before = command[position : match.start()]
        place.read(before)
        parts += (before, _quote_variable(variables[int(match[1])], place.quote))
        position = match.end()
    return "".join((*parts, command[position:]))


def _quote_variable(variable: str, quote: str) -> str:
    value = "${" + variable + "}"
    if quote == '"':
        return value
    return f"'\"{value}\"'" if quote else f'"{value}"'


class _QuotingState:
    """The position in a shell command: in which quotes, and in how many ``$(``."""

    def __init__(self) -> None:
        self._open = [""]
        """Innermost last: a quote, or ``(`` of a command substitution; the outermost is neither."""

        self._word_begins = True

    @property
    def quote(self) -> str:
        """Return the quote that is open; empty for none."""
        return self._open[-1] if self._open[-1] in ("'", '"') else ""

    def read(self, text: str) -> None:
        position = 0
        while position < len(text):
            position += self._step(text, position)

    def _step(self, text: str, position: int) -> int:
        character, quote = text[position], self.quote
        begins, self._word_begins = self._word_begins, not quote and character in " \t\n;&|("
        if quote == "'":
            return self._close_on(character, "'")
        if character == "\\":
            return 2
        if text.startswith("$(", position):
            self._open.append("(")
            self._word_begins = True
            return 2
        if quote:
            return self._close_on(character, '"')
        if character == "#" and begins:
            end = text.find("\n", position)
            return (len(text) if end < 0 else end) - position
        if character in "'\"":
            self._open.append(character)
        elif character == ")" and self._open[-1] == "(":
            self._open.pop()
        return 1

    def _close_on(self, character: str, quote: str) -> int:
        if character == quote:
            self._open.pop()
        return 1
