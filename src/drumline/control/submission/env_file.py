"""
Files of environment variables, a NAME=VALUE a line: what the dotenv libraries and shells read alike, and nothing else.

    # a comment, and blank lines
    export NAME=VALUE        the word export may stand before it
    NAME=plain text          up to the end of the line, or to a # after a blank; nothing is expanded
    NAME='as it is'
    NAME="with \\n, \\t, \\r, \\" and \\\\"
"""

from __future__ import annotations

import re

from drumline.contract.errors import NotFoundError, Problem, SpecError
from drumline.contract.words import format_size

_ASSIGNMENT = re.compile(r"(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*(.*)", re.DOTALL)
_SINGLE = re.compile(r"'([^']*)'(.*)", re.DOTALL)
_DOUBLE = re.compile(r'"((?:[^"\\]|\\.)*)"(.*)', re.DOTALL)
_PLAIN = re.compile(r"(?:(?!(?:^|[ \t])#).)*", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\", "$": "$"}
_MOST_BYTES = 1 << 20


def read(path: str) -> dict[str, str]:
    """Return the variables; of one that is there twice, the last. Raises NotFoundError, SpecError."""
    try:
        with open(path, "rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        hint = "--env-file FILE, with a NAME=VALUE on each line"
        raise NotFoundError(f"--env-file: {path}: {error.strerror}", hint) from error
    if len(data) > _MOST_BYTES:
        raise SpecError(f"--env-file: {path} is larger than {format_size(_MOST_BYTES)}")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SpecError(f"--env-file: {path} is not UTF-8") from error
    variables: dict[str, str] = {}
    problems: list[Problem] = []
    for number, line in enumerate(re.split(r"\r?\n", text), start=1):
        words = line.strip(" \t")
        if not words or words.startswith("#"):
            continue
        try:
            name, value = _parse(words)
        except ValueError as error:
            what, hint = error.args
            # Without the line itself: it may hold a secret.
            problems.append(Problem(what, file=path, line=number, column=1, hint=hint))
        else:
            variables[name] = value
    if problems:
        raise SpecError(problems)
    return variables


def _parse(line: str) -> tuple[str, str]:
    """Parse a line. Raises ValueError with what is wrong and a hint."""
    found = _ASSIGNMENT.fullmatch(line)
    if not found:
        if "=" in line:
            what = "what stands before '=' is not the name of a variable"
            raise ValueError(what, "letters, digits and '_', not beginning with a digit")
        hint = "write NAME=VALUE; --env NAME takes the value from this shell, --secret NAME does not store it"
        raise ValueError("there is no '=' in this line", hint)
    name, rest = found.groups()
    if "\0" in rest:
        raise ValueError(f"the value of {name} has a zero byte", "")
    if rest[:1] not in ("'", '"'):
        plain = _PLAIN.match(rest)
        return name, plain[0].rstrip(" \t") if plain else ""
    quoted = (_SINGLE if rest[0] == "'" else _DOUBLE).fullmatch(rest)
    if not quoted:
        hint = r"a value is on one line; in double quotes, \n stands for a new one"
        raise ValueError(f"the quote of {name} is not closed on this line", hint)
    value, after = quoted.groups()
    if after.strip(" \t") and not re.match(r"[ \t]+#", after):
        raise ValueError(
            f"there is more text after the quotes of {name}", "quote the whole value, or a # comment"
        )
    if rest[0] == '"':
        value = re.sub(r"\\(.)", lambda one: _ESCAPES.get(one[1], one[0]), value, flags=re.DOTALL)
    return name, value
