"""
Bash's syntax of a command that is one program after a few words of preparation. Whatever has more to it raises
NotWarm, and so does what could run a program or assign while it is expanded.

Source: https://www.gnu.org/software/bash/manual/bash.html#Shell-Syntax and #Shell-Expansions
"""

from __future__ import annotations

import re

from drumline.contract.record import NamedTuple


class NotWarm(Exception):  # noqa: N818 - nobody's error
    """Raised where a command is started as it is; says why, in words."""


class ShellWord(NamedTuple):
    raw: str
    """As the command has it."""

    value: str | None
    """Without its quotes; None where only the shell can tell."""

    name: str
    """``A`` of ``A=b``, else empty."""


class ShellStatement(NamedTuple):
    assigned: tuple[ShellWord, ...]
    words: tuple[ShellWord, ...]

    @property
    def verb(self) -> str:
        return (self.words[0].value or "") if self.words else ""

    @property
    def all(self) -> tuple[ShellWord, ...]:
        return self.assigned + self.words


class ShellCommand(NamedTuple):
    statements: tuple[ShellStatement, ...]
    shape: str
    """The same with every statement but ``set`` replaced by one that does nothing, and the last by ``env``."""


SHELL_VARIABLES = re.compile(
    r"BASH.*|COMP_.*|DIRSTACK|EPOCH.*|E?UID|FUNCNAME|GROUPS|HISTCMD|IFS|LINENO|OPT(ARG|ERR|IND)|PIPESTATUS"
    r"|POSIXLY_CORRECT|PPID|PS4|RANDOM|READLINE_.*|SECONDS|SHELLOPTS|SRANDOM|CDPATH|GLOBIGNORE|EXECIGNORE|_"
)
"""Variables that bash sets, or is led by, in ways that are not followed here."""

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_ASSIGNMENT = re.compile(rf"({_NAME})=")
_ODD_ASSIGNMENT = re.compile(rf"{_NAME}(\[.*\])?\+?=", re.DOTALL)
_PLAIN = re.compile(r"[^ \t\n'\"\\$`&|;<>()~*?\[{]+")
_FOR_SHELL = re.compile(r"[~*?\[{]+")
_IN_QUOTES = re.compile(r'[^"\\$`]+')
_COMMENT = re.compile(r"[^\n]*")
_ANSI_QUOTED = re.compile(r"\$'(?:[^'\\]|\\.)*'", re.DOTALL)
_CONTROL = re.compile(r"[\0-\x08\x0b-\x1f\x7f]")

_PARAMETER = re.compile(rf"\$({_NAME}|[0-9@*#])")
_BRACED = re.compile(rf"\$\{{(?:#({_NAME})(?=\}})|({_NAME}|[0-9]+|[@*](?=\}})))")
_OPERATOR = re.compile(r":[0-9]+(?::[0-9]+)?(?=\})|:?[-+?]|##?|%%?|/[/#%]?|\^\^?|,,?|(?=\})")
_OPERAND = re.compile(r"[\w./:,@%+=~*?#\[\]^ -]+", re.ASCII)

_REFUSED = {
    "|": "a pipe",
    "&": "a program in the background",
    "<": "a redirection",
    ">": "a redirection",
    "(": "a subshell or a function",
    ")": "a subshell or a function",
    "`": "a command substitution",
}

_MAX_CHARACTERS = 1 << 17
"""Characters; Linux's limit for one argument."""


def parse_shell(text: str) -> ShellCommand:
    """Parse a command of a shell. Raises NotWarm."""
    if len(text) > _MAX_CHARACTERS:
        raise NotWarm("the command is very long")
    if _CONTROL.search(text.replace("\r", "")):
        raise NotWarm("the command has control characters")
    return _ShellReader(text).read()


class _ShellReader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._words: list[ShellWord] = []
        self._statements: list[ShellStatement] = []
        self._shape: list[str] = []
        self._goes_on = False
        """After ``&&``."""

    def read(self) -> ShellCommand:
        while self._at < len(self._text):
            self._step(self._text[self._at])
        self._end()
        if self._goes_on or not self._statements:
            raise NotWarm("the command is not complete")
        before = ["set -e" if statement.verb == "set" else ":" for statement in self._statements[:-1]]
        stands = iter((*before, "\0"))
        return ShellCommand(
            tuple(self._statements), "".join(next(stands) if p == "\0" else p for p in self._shape)
        )

    def _step(self, character: str) -> None:
        text, at = self._text, self._at
        if character in " \t":
            self._at += 1
        elif text.startswith("\\\n", at):
            self._at += 2
        elif character == "#":
            self._at = _require(_COMMENT.match(text, at)).end()
            self._end()
            self._shape.append(" #")
        elif character == "\n":
            self._end()
            self._separate("\n", 1)
        elif text.startswith("&&", at) or character == ";":
            self._end()
            if self._goes_on or not self._statements or self._shape[-1] != "\0":
                raise NotWarm("the shell would not understand the command")
            self._goes_on = character == "&"
            self._separate(" && " if self._goes_on else ";", 2 if self._goes_on else 1)
        else:
            self._words.append(self._word())

    def _separate(self, separator: str, length: int) -> None:
        self._shape.append(separator)
        self._at += length

    def _end(self) -> None:
        if self._words:
            words, count = self._words, 0
            while count < len(words) and _is_assignment(words[count]):
                count += 1
            self._statements.append(ShellStatement(tuple(words[:count]), tuple(words[count:])))
            self._shape.append("\0")
            self._words, self._goes_on = [], False

    def _word(self) -> ShellWord:
        begin, text = self._at, self._text
        parts: list[str | None] = []
        while self._at < len(text) and text[self._at] not in " \t\n;" and not text.startswith("&&", self._at):
            if text.startswith("\\\n", self._at):
                if text[self._at + 2 : self._at + 3] not in ("", " ", "\t", "\n"):
                    raise NotWarm("a word goes on in the next line")
                break
            parts.append(self._part(text[self._at]))
        raw = text[begin : self._at]
        named = _ASSIGNMENT.match(raw)
        known = [part for part in parts if part is not None]
        return ShellWord(raw, "".join(known) if len(known) == len(parts) else None, named[1] if named else "")

    def _part(self, character: str) -> str | None:
        """Read a part of a word; None where only the shell can say what it stands for."""
        text, at = self._text, self._at
        if character in _REFUSED:
            raise NotWarm(f"the command has {_REFUSED[character]}")
        if character == "'":
            self._at = self._behind("'", at + 1)
            return text[at + 1 : self._at - 1]
        if character == '"':
            return self._double_quoted()
        if character == "\\":
            if at + 1 == len(text):
                raise NotWarm("the command is not complete")
            self._at += 2
            return text[at + 1]
        if character == "$":
            self._at = _skip_expansion(text, at, quoted=False)
            return None
        plain = _PLAIN.match(text, at)
        self._at = _require(plain or _FOR_SHELL.match(text, at)).end()
        return plain[0] if plain else None

    def _behind(self, quote: str, at: int) -> int:
        end = self._text.find(quote, at)
        if end < 0:
            raise NotWarm("the command has a quote that is not closed")
        return end + 1

    def _double_quoted(self) -> str | None:
        text, at, parts, known = self._text, self._at + 1, [""], True
        while text[at : at + 1] != '"':
            if at >= len(text):
                raise NotWarm("the command has a quote that is not closed")
            if text[at] == "`":
                raise NotWarm("the command has a command substitution")
            if text[at] == "\\":
                after = text[at + 1 : at + 2]
                parts.append("" if after == "\n" else after if after in '$`"\\' else "\\" + after)
                at += 2
            elif text[at] == "$":
                known = False
                at = _skip_expansion(text, at, quoted=True)
            else:
                plain = _require(_IN_QUOTES.match(text, at))
                parts.append(plain[0])
                at = plain.end()
        self._at = at + 1
        return "".join(parts) if known else None


def _require(match: re.Match[str] | None) -> re.Match[str]:
    if match is None:
        raise NotWarm("the command is not understood")
    return match


def _is_assignment(word: ShellWord) -> bool:
    if not word.name and _ODD_ASSIGNMENT.match(word.raw):
        raise NotWarm(f"the command has {word.raw[:40]}")
    return bool(word.name)


def _skip_expansion(text: str, at: int, quoted: bool) -> int:
    """Return where the expansion ends that begins with the ``$`` at ``at``."""
    if text.startswith(("$((", "$["), at):
        raise NotWarm("the command has arithmetic")
    if text.startswith("$(", at):
        raise NotWarm("the command has a command substitution")
    if text.startswith("${", at):
        return _skip_braces(text, at)
    parameter = _PARAMETER.match(text, at)
    if parameter:
        return _check_name(parameter[1], parameter.end())
    if not quoted and text.startswith("$'", at):
        return _require(_ANSI_QUOTED.match(text, at)).end()
    if text[at + 1 : at + 2] in tuple("$!?-") or (not quoted and text.startswith('$"', at)):
        raise NotWarm(f"the command has {text[at : at + 2]}")
    return at + 1


def _skip_braces(text: str, at: int) -> int:
    begin = _BRACED.match(text, at)
    operator = _OPERATOR.match(text, begin.end()) if begin else None
    if begin is None or operator is None:
        raise NotWarm(f"the command has {text[at : at + 12]}")
    at = _check_name(begin[1] or begin[2], operator.end())
    while text[at : at + 1] != "}":
        operand = _OPERAND.match(text, at)
        if operand:
            at = operand.end()
        elif text.startswith("$", at):
            at = _skip_expansion(text, at, quoted=True)
        else:
            raise NotWarm("the command has an expansion that is not understood")
    return at + 1


def _check_name(name: str, end: int) -> int:
    if SHELL_VARIABLES.fullmatch(name):
        raise NotWarm(f"the command has ${name}")
    return end
