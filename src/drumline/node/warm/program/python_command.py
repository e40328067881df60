"""
The commands that are one Python program, and what that program would be given.

``python [flags] script.py args...`` or ``python -m module args...``, as it is or for bash: after assignments, ``env``,
``exec``, ``cd``, ``export`` and ``set -e``. The environment is the one that bash would make of the rank's.
Sources: https://docs.python.org/3/using/cmdline.html, bash(1), env(1), and bash 5.2's variables.c
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from drumline.contract.record import NamedTuple
from drumline.linux import pyenv_shims
from drumline.node.warm import rank_variables
from drumline.node.warm.program.bash import BashSession, find_on_path
from drumline.node.warm.program.shell_syntax import NotWarm

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ("NotWarm", "Program", "find_interpreter", "parse_command")


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
    Return the Python program that ``argv`` would execute. Reads folders; may start a bash, for a few milliseconds.

    Raises NotWarm.
    """
    if not os.path.isabs(cwd) or not argv:
        raise NotWarm("there is no command or no folder for it")
    if argv[0] in ("bash", "/bin/bash", "/usr/bin/bash") and tuple(argv[1:2]) == ("-c",):
        if len(argv) != 3:
            raise NotWarm("the shell is given arguments")
        return _parse_program(*BashSession(argv[0], env, cwd).start(argv[2]))
    return _parse_program(list(argv), dict(env), cwd)


def find_interpreter(program: Program) -> str:
    """Return the absolute path of the interpreter that would be found, links not resolved. Raises NotWarm."""
    found = os.path.join(program.cwd, program.python)
    if "/" not in program.python:
        found = find_on_path(program.python, program.env)
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
    found = os.path.join(cwd, word) if "/" in word else find_on_path(word, env)
    if not pyenv_shims.is_shim(found):
        return word, env
    shared = sorted((name, value) for name, value in env.items() if not rank_variables.is_rank_variable(name))
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
    program = words[0] if "/" in words[0] else find_on_path(words[0], env)
    if program not in ("/usr/bin/env", "/bin/env"):
        raise NotWarm(f"env is {program}")
    rest = words[1:]
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if option == "--":
            break
        name = rest.pop(0) if option in ("-u", "--unset") and rest else option.partition("=")[2]
        if not name or not re.fullmatch(r"-u|--unset(=.*)?", option, re.DOTALL):
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
