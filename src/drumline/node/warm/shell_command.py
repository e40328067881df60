"""
The commands that are one Python program, and what that program would be given.

``python [flags] script.py args...`` or ``python -m module args...``, as it is or for bash: after assignments, ``env``,
``exec``, ``cd``, ``export`` and ``set -e``. The environment is the one that bash would make of the rank's.
Of the shell's language only quotes and plain variables are read; whatever else a command has, it starts cold.
Sources: https://docs.python.org/3/using/cmdline.html, bash(1), env(1), and bash 5.2's variables.c
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from drumline.contract.record import NamedTuple
from drumline.linux import pyenv_shims
from drumline.node.warm.ranks import is_rank_variable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class NotWarm(Exception):  # noqa: N818 - nobody's error
    """Raised where a command is started as it is; says why, in words."""


class Program(NamedTuple):
    python: str
    """The word as the command has it: ``python``, ``/venv/bin/python3``."""

    flags: tuple[str, ...]
    """Before the script: ``-u``, ``-X``, ``dev``."""

    target: tuple[str, ...]
    """``("train.py",)`` or ``("-m", "pkg.train")``."""

    args: tuple[str, ...]
    """``sys.argv[1:]``"""

    env: dict[str, str]
    """All of the environment that Python would get."""

    cwd: str
    """Absolute."""


_PYTHON = re.compile(r"python(3(\.\d+)?t?)?")
_SHORT_FLAGS = re.compile(r"-([uOBsbqPR]*)(([WX])(.*))?", re.DOTALL)
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_REFUSED_X_OPTIONS = ("importtime", "showrefcount", "perf", "perf_jit", "presite")
"""Options of ``-X`` that change or tell how the interpreter starts."""

_REFUSED_VARIABLES = (
    "PYTHONINSPECT",
    "PYTHONVERBOSE",
    "PYTHONDEBUG",
    "PYTHONPROFILEIMPORTTIME",
    "PYTHONPERFSUPPORT",
)
"""Variables that do what flags do which are refused."""


def parse_command(argv: Sequence[str], env: Mapping[str, str], cwd: str) -> Program:
    """
    Return the Python program that ``argv`` would execute. Reads folders; asks the shim that its ``python`` may be.

    Raises NotWarm.
    """
    if not os.path.isabs(cwd) or not argv:
        raise NotWarm("there is no command or no folder for it")
    if argv[0] in ("bash", "/bin/bash", "/usr/bin/bash") and tuple(argv[1:2]) == ("-c",):
        if len(argv) != 3:
            raise NotWarm("the shell is given arguments")
        return _parse_program(*_Bash(env, cwd).start(argv[2]))
    return _parse_program(list(argv), dict(env), cwd)


def find_interpreter(program: Program) -> str:
    """Return the absolute path of the interpreter that would be found, links not resolved. Raises NotWarm."""
    found = os.path.join(program.cwd, program.python)
    if "/" not in program.python:
        found = _find_on_path(program.python, program.env)
    try:
        with open(found, "rb") as file:
            is_program = file.read(4) == b"\x7fELF"
    except OSError as error:
        raise NotWarm(f"{program.python}: {error.strerror}") from error
    if not is_program or not os.access(found, os.X_OK):
        raise NotWarm(f"{program.python} is a script that finds its Python, or no program")
    if not os.path.basename(os.path.realpath(found)).startswith("python"):
        raise NotWarm(f"{program.python} is not CPython")
    return found


def _parse_program(words: list[str], env: dict[str, str], cwd: str) -> Program:
    while os.path.basename(words[0]) == "env":
        words = _take_env_prefix(words, env)
    if not _PYTHON.fullmatch(os.path.basename(words[0])):
        raise NotWarm(f"the command is not Python but {os.path.basename(words[0])[:40]}")
    told = next((name for name in _REFUSED_VARIABLES if env.get(name)), None)
    if told:
        raise NotWarm(f"{told} is set")
    python, env = _look_behind_shim(words[0], env, cwd)
    flags, rest = _split_flags(words[1:])
    target = tuple(rest[:2] if rest[0] == "-m" else rest[:1])
    _check_target(target, cwd)
    return Program(python, tuple(flags), target, tuple(rest[len(target) :]), env, cwd)


class _LookedThrough(NamedTuple):
    """A shim that was looked through."""

    python: str
    changed: dict[str, str]
    removed: frozenset[str]


_looked_through: dict[tuple[str, str, tuple[tuple[str, str], ...]], _LookedThrough] = {}
"""By shim, folder, and the variables that ranks share: one look serves all ranks of a node."""


def _look_behind_shim(word: str, env: dict[str, str], cwd: str) -> tuple[str, dict[str, str]]:
    """
    Return the interpreter and its variables, where the word is a shim's; else the word and the variables as they are.
    """
    found = os.path.join(cwd, word) if "/" in word else _find_on_path(word, env)
    if not pyenv_shims.is_shim(found):
        return word, env
    shared = sorted((name, value) for name, value in env.items() if not is_rank_variable(name))
    key = (found, cwd, tuple(shared))
    if key not in _looked_through:
        try:
            behind = pyenv_shims.resolve_shim(found, env, cwd)
        except OSError as error:
            raise NotWarm(str(error.strerror)) from error
        changed = {name: value for name, value in behind.env.items() if env.get(name) != value}
        _looked_through[key] = _LookedThrough(behind.python, changed, frozenset(env) - frozenset(behind.env))
    through = _looked_through[key]
    kept = {name: value for name, value in env.items() if name not in through.removed}
    return through.python, {**kept, **through.changed}


def _take_env_prefix(words: list[str], env: dict[str, str]) -> list[str]:
    """Return the command that ``env`` starts; the environment ``env`` becomes the command's."""
    program = words[0] if "/" in words[0] else _find_on_path(words[0], env)
    if program not in ("/usr/bin/env", "/bin/env"):
        raise NotWarm(f"env is {program}")
    rest = words[1:]
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if option == "--":
            break
        name = rest.pop(0) if option in ("-u", "--unset") and rest else option.partition("=")[2]
        if not name or "=" in name or not re.fullmatch(r"-u|--unset(=.*)?", option, re.DOTALL):
            raise NotWarm(f"the command has env {option[:40]}")
        env.pop(name, None)
    while rest and "=" in rest[0]:
        name, _, value = rest.pop(0).partition("=")
        if not name:
            raise NotWarm("the command has a variable without a name")
        env[name] = value
    if not rest:
        raise NotWarm("the command has an env without a program")
    return rest


def _split_flags(words: list[str]) -> tuple[list[str], list[str]]:
    rest, flags = list(words), []
    while rest and rest[0].startswith("-") and rest[0] != "-m":
        flag = rest.pop(0)
        match = _SHORT_FLAGS.fullmatch(flag)
        if match is None or flag == "-":
            raise NotWarm(f"Python is given {flag[:40]}")
        flags.append(flag)
        value = match[4] or ""
        if match[3] and not value:
            if not rest:
                raise NotWarm(f"Python is given {flag} without a value")
            value = rest.pop(0)
            flags.append(value)
        if match[3] == "X" and value.partition("=")[0] in _REFUSED_X_OPTIONS:
            raise NotWarm(f"Python is given -X {value[:40]}")
    if not rest:
        raise NotWarm("Python is given no script")
    return flags, rest


def _check_target(target: Sequence[str], cwd: str) -> None:
    if target[0] == "-m":
        if len(target) < 2 or not _MODULE.fullmatch(target[1]):
            raise NotWarm("Python is given -m without the name of a module")
    elif not target[0].endswith(".py"):
        raise NotWarm(f"{target[0][:80]} is not named like a script of Python")
    elif not os.path.isfile(os.path.join(cwd, target[0])):
        raise NotWarm(f"{target[0][:80]} is not a file")


# The part of bash's language that is understood. A name has one end, or a refused text is tried at each of its letters.

_NAME = "[A-Za-z_][A-Za-z0-9_]*"
_VARIABLE = rf"\$(?:{_NAME}(?![A-Za-z0-9_]|\\\n)|\{{{_NAME}\}})"
_PART = rf"""[^ \t\n'"\\$`&|;<>()~*?\[{{]+|'[^']*'|\\[^\n]|{_VARIABLE}|"(?:[^"\\$`]|\\.|{_VARIABLE})*\""""
_TOKEN = re.compile(
    r"(?P<blank>[ \t]+(?:\\\n[ \t]*)*|\\\n(?=[ \t\n]|\Z))|(?P<comment>\#[^\n]*)|(?P<end>&&|;|\n)"
    rf"|(?P<word>(?:{_PART})+)",
    re.DOTALL,
)
_IN_QUOTES = re.compile(rf'\\([$`"\\\n])|({_VARIABLE})')
_ASSIGNMENT = re.compile(rf"({_NAME})=")
_CONTROL = re.compile(r"[\0-\x08\x0b\x0c\x0e-\x1f\x7f]")
_ONE_WORD = re.compile(r"[\w@%+=:,./-]+", re.ASCII)
"""The value of a variable that is one word without quotes too."""

_SHAPE = re.compile(r"(#?\n)*S(?:(?:;(#?\n)*|(#?\n)+|&(#?\n)*)S)*;?(#?\n)*#?")
"""Statements, what is between them, and comments, as bash accepts them."""

_SET = re.compile(r"set (-[eu]+|-[eu]*o (errexit|nounset|pipefail))")
_SHELL_VARIABLES = re.compile(
    r"BASH.*|COMP_.*|DIRSTACK|EPOCH.*|E?UID|FUNCNAME|GROUPS|HISTCMD|IFS|LINENO|OPT(ARG|ERR|IND)|PIPESTATUS"
    r"|POSIXLY_CORRECT|PPID|PS4|RANDOM|READLINE_.*|SECONDS|SHELLOPTS|SRANDOM|CDPATH|GLOBIGNORE|EXECIGNORE|_"
)
"""Variables that bash sets, or is led by, in ways that are not followed here."""

_UNUSED_FUNCTION = re.compile(r"BASH_FUNC_(?!(?:python.*|[:\[].*|cd|env|exec|export|set)%%).+%%")
"""Functions that no word of such a command calls; some systems give one to every shell."""

_MAX_CHARACTERS = 1 << 17
"""Linux's limit for one argument."""

_MAX_SHLVL = 900
"""A SHLVL from which it could reach 1000, where bash begins anew."""


class _PreparedProgram(NamedTuple):
    """A program as bash starts it."""

    words: list[str]
    env: dict[str, str]
    cwd: str


class _Bash:
    """The variables and the folder of a bash while it goes through a command."""

    def __init__(self, env: Mapping[str, str], cwd: str) -> None:
        self._env = _start_environment(env, cwd)
        self._unexported: dict[str, str] = {}

    def start(self, text: str) -> _PreparedProgram:
        *before, last = _parse_shell(text)
        for statement in before:
            self._prepare(statement)
        assignments, words = _split_assignments(last)
        by_exec = words[:1] == ["exec"]
        argv = [self._expand(word) for word in words[by_exec:]]
        for assignment in assignments:
            self._assign(assignment, is_exported=True)
        if not argv:
            raise NotWarm("the command does not end with a program")
        if not re.match(r"env$|python", os.path.basename(argv[0])) or argv[0].startswith("%"):
            raise NotWarm(f"the command is not Python but {' '.join(argv)[:40]}")
        if not by_exec:
            # As below a bash that becomes its last program, so that SHLVL is what it was; some count one more.
            self._env["_"] = argv[0] if "/" in argv[0] else _find_on_path(argv[0], self._env)
        elif before:
            self._env.pop("_", None)
        return _PreparedProgram(argv, self._env, self._env["PWD"])

    def _prepare(self, statement: Sequence[str]) -> None:
        """Do what a statement before the program does."""
        assignments, words = _split_assignments(statement)
        verb = words[0] if words and not assignments else ""
        if not words:
            for assignment in assignments:
                self._assign(assignment, is_exported=False)
        elif verb == "export" and len(words) > 1 and all(map(_ASSIGNMENT.match, words[1:])):
            values = [self._expand_value(word) for word in words[1:]]
            for name, value in values:
                self._set(name, value, is_exported=True)
        elif verb == "cd" and len(words) == 2:
            self._change_folder(self._expand(words[1]))
        elif not _SET.fullmatch(" ".join(words)) or assignments:
            raise NotWarm(f"the command has more than one program: {' '.join(statement)[:40]}")

    def _change_folder(self, folder: str) -> None:
        before = self._env["PWD"]
        after = os.path.normpath(os.path.join(before, folder))
        is_plain = folder and not folder.startswith("-") and ".." not in folder.split("/")
        if not is_plain or os.path.normpath(before) != before or after.startswith("//"):
            raise NotWarm("the command has a cd that is not understood")
        if not os.path.isdir(after) or not os.access(after, os.X_OK):
            raise NotWarm(f"there is no folder {folder}")
        self._env["PWD"], self._env["OLDPWD"] = after, before

    def _assign(self, assignment: str, *, is_exported: bool) -> None:
        self._set(*self._expand_value(assignment), is_exported=is_exported)

    def _set(self, name: str, value: str, *, is_exported: bool) -> None:
        if _SHELL_VARIABLES.fullmatch(name) or name in ("PWD", "OLDPWD", "SHLVL"):
            raise NotWarm(f"the command sets {name}")
        if is_exported or name in self._env:
            self._unexported.pop(name, None)
            self._env[name] = value
        else:
            self._unexported[name] = value

    def _expand_value(self, assignment: str) -> tuple[str, str]:
        name, _, value = assignment.partition("=")
        return name, self._expand(value, is_value=True)

    def _expand(self, word: str, *, is_value: bool = False) -> str:
        """Return what a word stands for. ``is_value``: it is assigned, and so not split."""
        parts = []
        for part in re.findall(f"(?s:{_PART})", word):
            if part[0] == "$":
                value = self._get(part)
                if not is_value and not _ONE_WORD.fullmatch(value):
                    raise NotWarm(f"{part} without quotes is not one plain word")
                parts.append(value)
            elif part[0] == '"':
                parts.append(_IN_QUOTES.sub(self._expand_in_quotes, part[1:-1]))
            else:
                parts.append(part[1:-1] if part[0] == "'" else part.removeprefix("\\"))
        return "".join(parts)

    def _expand_in_quotes(self, match: re.Match[str]) -> str:
        return self._get(match[2]) if match[2] else match[1].strip("\n")

    def _get(self, reference: str) -> str:
        name = reference.strip("${}")
        value = self._unexported.get(name, self._env.get(name))
        if value is None or name == "SHLVL" or _SHELL_VARIABLES.fullmatch(name) or _CONTROL.search(value):
            raise NotWarm(f"only the shell knows ${name}")
        return value


def _parse_shell(text: str) -> list[list[str]]:
    """Return the words of each statement, as they are written. Raises NotWarm."""
    if len(text) > _MAX_CHARACTERS or _CONTROL.search(text):
        raise NotWarm("the command is very long, or has control characters")
    statements: list[list[str]] = []
    shape, position = "", 0  # S for a statement, the characters between statements, and # for a comment.
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None:
            raise NotWarm(f"only the shell understands {text[position : position + 20]}")
        position = token.end()
        if token.lastgroup != "word":
            shape += token[0][0] if token.lastgroup != "blank" else ""
        elif shape[-1:] == "S":
            statements[-1].append(token[0])
        else:
            statements.append([token[0]])
            shape += "S"
    if not _SHAPE.fullmatch(shape) or (shape[-1:] == "\n" and text[-1:] != "\n"):
        raise NotWarm("the command is not complete")
    return statements


def _split_assignments(statement: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    count = 0
    while count < len(statement) and _ASSIGNMENT.match(statement[count]):
        count += 1
    return statement[:count], statement[count:]


def _start_environment(given: Mapping[str, str], cwd: str) -> dict[str, str]:
    """Return the environment that a program gets from a bash which does nothing else."""
    env = dict(given)
    for name in env:
        if name != "_" and _SHELL_VARIABLES.fullmatch(name) and not _UNUSED_FUNCTION.fullmatch(name):
            raise NotWarm(f"{name} is set, which is for the shell")
    level = env.setdefault("SHLVL", "0")
    if not re.fullmatch(r"[0-9]{1,4}", level) or int(level) > _MAX_SHLVL:
        raise NotWarm(f"SHLVL is {level[:40]}")
    if int(level) == 0 and ("SSH_CLIENT" in env or "SSH2_CLIENT" in env):
        raise NotWarm("the shell reads its .bashrc, because SSH_CLIENT is set and SHLVL is not")
    env["SHLVL"] = str(int(level))
    try:
        if not _is_folder(env.get("PWD", ""), cwd):
            env["PWD"] = os.path.realpath(cwd)
    except OSError as error:
        raise NotWarm(f"{cwd}: {error.strerror}") from error
    if "OLDPWD" in env and not (env["OLDPWD"] and os.path.isdir(os.path.join(cwd, env["OLDPWD"]))):
        del env["OLDPWD"]
    return env


def _is_folder(folder: str, cwd: str) -> bool:
    if not folder.startswith("/"):
        return False
    there = os.stat(cwd)
    try:
        return os.path.samestat(os.stat(folder), there)
    except OSError:
        return False


def _find_on_path(name: str, env: Mapping[str, str]) -> str:
    for folder in env.get("PATH", "").split(":"):
        path = f"{folder.rstrip('/')}/{name}"
        if not folder.startswith("/"):
            raise NotWarm(f"{name}: PATH has folders that are not absolute, or none")
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    raise NotWarm(f"{name} is not on PATH")
