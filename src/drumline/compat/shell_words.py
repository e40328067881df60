"""Arguments as one line of shell, in which ``$NAME`` is still a variable of the rank, as v1 has it."""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_PLAIN = re.compile(r"[\w@%+=:,./-]+", re.ASCII)
_VARIABLE = re.compile(r"(\$(?:\{[A-Za-z_]\w*\}|[A-Za-z_]\w*))", re.ASCII)
_OPERATORS = frozenset(("&&", "||", ";", "|", "&", ">", ">>", "<", "2>", "2>>", "2>&1", "(", ")", "{", "}"))
_PLACEHOLDER = re.compile(r"\{\{|\{(?:inputs|outputs|search_space)\.|\[\[")


def word(text: str) -> str:
    """
    Return the argument as one word, whatever characters it has; ``$NAME`` and ``${NAME}`` alone mean something.

    >>> print(word("a b"), word("$AZ_BATCHAI_TASK_INDEX"), word("it's"))
    'a b' "$AZ_BATCHAI_TASK_INDEX" 'it'"'"'s'
    """
    if _PLAIN.fullmatch(text):
        return text
    if not _VARIABLE.search(text):
        return "'" + _apart(text.replace("'", "'\"'\"'"), "''") + "'"
    # Every second part is a variable.
    parts = [
        part if index % 2 else _apart(re.sub(r'([\\`"$])', r"\\\1", part), '""')
        for index, part in enumerate(_VARIABLE.split(text))
    ]
    return '"' + "".join(parts) + '"'


def line(words: Iterable[str]) -> str:
    """Return the line of a command that was given as a list; an operator of the shell, such as ``&&``, stays one."""
    return " ".join(text if text in _OPERATORS else word(text) for text in words)


def _apart(text: str, nothing: str) -> str:
    """Cut user's text that looks like a placeholder of today's, so that only the shell puts it together."""
    if not _PLACEHOLDER.search(text):
        return text
    return text.replace("{", "{" + nothing).replace("[", "[" + nothing)
