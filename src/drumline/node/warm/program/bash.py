"""
Bash's reading of a command: the words of its program, its environment and its folder.

Only where something is to be expanded is a bash asked, which runs nothing of the command but ``cd``, ``export``,
assignments and expansions that ``shell.read`` has found harmless.
Source: bash(1), and bash 5.2's variables.c (``initialize_shell_variables``) and execute_cmd.c
"""

from __future__ import annotations

import functools
import os
import re
from typing import TYPE_CHECKING

from drumline.contract.record import NamedTuple
from drumline.node.warm.program import shell_syntax
from drumline.node.warm.program.shell_syntax import NotWarm

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_EXPAND_TIMEOUT_S = 2.0
"""For the shell to expand a command. Only a glob over a huge or hanging folder takes longer."""

_MAX_MEMORY_KIB = 1 << 20
"""Of memory: ``{1..999999999}`` takes more than the machine has."""

_SET_BY_CD = ("PWD", "OLDPWD", "SHLVL")
_FLAGS_OF_SET = re.compile(r"-[eu]+|-[eu]*o")
_OPTIONS_OF_SET = ("errexit", "nounset", "pipefail")
_CALLED_BUILTINS = ("cd", "env", "exec", "export", "exit", "printf", "set", "test", "ulimit", "__drumline")
_MAX_SHLVL = 900
"""A SHLVL from which it could reach 1000, where bash begins anew."""

_PROGRAM = re.compile(r"env$|python")

_PRINT_FUNCTION = '__drumline() { printf \'%s\\0\' "$#" "$@"; }'


def _is_unused_function(name: str) -> bool:
    """
    Return whether a variable is a function that no word of such a command calls; some systems give one to every shell.
    """
    function = re.fullmatch(r"BASH_FUNC_(.+)%%", name)
    return (
        function is not None
        and not re.match(r"python|[:\[]", function[1])
        and function[1] not in _CALLED_BUILTINS
    )


@functools.lru_cache(maxsize=256)
def _execs_last_program(program: str, shape: str) -> bool:
    """
    Return whether that bash only execs the last program of a command of such a shape, and so is gone once it runs.
    """
    if re.fullmatch(r"( #|\n)*\0( #)?\n?", shape):
        return True
    said = _run_bash(program, shape.replace("\0", "/usr/bin/env -0"), {"SHLVL": "5"}, "/")
    return "SHLVL=5" in said


def _expand_in_bash(
    program: str, statements: Sequence[shell_syntax.ShellStatement], env: Mapping[str, str], cwd: str
) -> Iterator[Sequence[str]]:
    """
    Yield for each statement the words of the last and of ``cd``, then the values that are assigned.

    For ``cd`` those are the values of PWD and OLDPWD.
    """
    script = [f"ulimit -Sv {_MAX_MEMORY_KIB}", _PRINT_FUNCTION]
    for index, statement in enumerate(statements):
        script += _build_expansion_script(statement, index == len(statements) - 1)
    said = _run_bash(program, "\n".join(script), env, cwd)
    groups = []
    while said and said[0].isdecimal():
        groups.append(said[1 : int(said[0]) + 1])
        del said[: int(said[0]) + 1]
    if said or len(groups) != 1 + sum(2 if one.verb == "cd" else 1 for one in statements):
        raise NotWarm("the shell does not expand the command")
    return iter(groups)


def _build_expansion_script(statement: shell_syntax.ShellStatement, is_last: bool) -> Iterator[str]:
    raw = " ".join(word.raw for word in statement.words)
    if is_last:
        yield f"__drumline {raw}"
        yield from (f"{word.raw} || exit 9" for word in statement.assigned)
    elif statement.verb == "cd":
        yield f"__drumline {raw}"
        yield f"{raw} >/dev/null || exit 9"
        yield '__drumline "$PWD" "$OLDPWD"'
        return
    else:
        yield " ".join(word.raw for word in statement.all) + " || exit 9"
    names = [word.name for word in (statement.assigned if is_last else statement.all) if word.name]
    yield "__drumline " + " ".join(f'"${{{name}-}}"' for name in names)


def _run_bash(program: str, script: str, env: Mapping[str, str], cwd: str) -> list[str]:
    import subprocess

    try:
        ran = subprocess.run(  # noqa: S603 - what was looked through
            (program, "-c", script),
            env=env,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_EXPAND_TIMEOUT_S,
            check=True,
        )
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise NotWarm("the shell does not expand the command") from error
    return [os.fsdecode(part) for part in ran.stdout.split(b"\0")[:-1]]


class PreparedProgram(NamedTuple):
    """A program as bash starts it."""

    words: list[str]
    env: dict[str, str]
    cwd: str


class BashSession:
    """The state that a bash keeps while it goes through a command."""

    def __init__(self, word: str, env: Mapping[str, str], cwd: str) -> None:
        self._program = word
        self._given = env
        self._begin = cwd
        self._env = _start_environment(env, cwd)
        self._unexported: dict[str, str] = {}
        self._marked: set[str] = set()
        """Names that are exported as soon as they have a value."""

    def start(self, text: str) -> PreparedProgram:
        command = shell_syntax.parse_shell(text)
        for index, statement in enumerate(command.statements):
            _check(statement, is_last=index == len(command.statements) - 1)
        values = self._values(command)
        *before, last = command.statements
        for statement in before:
            self._take(statement, values)
        words = list(next(values))
        self._env.update(zip((word.name for word in last.assigned), next(values)))
        return self._start(last.verb, words, command)

    def _values(self, command: shell_syntax.ShellCommand) -> Iterator[Sequence[str]]:
        if not any(_is_for_shell(statement) for statement in command.statements):
            return self._list_literal_words(command.statements)
        names = {word.name for statement in command.statements for word in statement.all}
        if "HOME" in names and any(
            "~" in word.raw for statement in command.statements for word in statement.all
        ):
            raise NotWarm("the command sets HOME and has ~")
        return _expand_in_bash(self._program, command.statements, self._given, self._begin)

    def _list_literal_words(
        self, statements: Sequence[shell_syntax.ShellStatement]
    ) -> Iterator[Sequence[str]]:
        """Yield the words as ``_expand_in_bash`` does, where nothing is to be expanded."""
        for index, statement in enumerate(statements):
            is_last = index == len(statements) - 1
            if is_last or statement.verb == "cd":
                yield [word.value or "" for word in statement.words]
            if statement.verb == "cd" and not is_last:
                yield self._gone_to(statement.words[1].value or "")
            else:
                named = statement.assigned if is_last else statement.all
                yield [(word.value or "")[len(word.name) + 1 :] for word in named if word.name]

    def _gone_to(self, folder: str) -> Sequence[str]:
        before = self._env["PWD"]
        if os.path.normpath(before) != before:
            raise NotWarm(f"the folder is {before}")
        after = os.path.normpath(os.path.join(before, folder))
        if after.startswith("//") or not os.path.isdir(after) or not os.access(after, os.X_OK):
            raise NotWarm(f"there is no folder {folder}")
        return after, before

    def _take(self, statement: shell_syntax.ShellStatement, values: Iterator[Sequence[str]]) -> None:
        if statement.verb == "cd":
            self._go(list(next(values))[1:], next(values))
            return
        names = [word.name for word in statement.all if word.name]
        for name, value in zip(names, next(values)):
            self._set(name, value, statement.verb == "export")
        if statement.verb == "export":
            self._export([word.raw for word in statement.words[1:] if not word.name])

    def _go(self, words: Sequence[str], folders: Sequence[str]) -> None:
        if len(words) != 1 or not words[0] or words[0].startswith("-"):
            raise NotWarm("the command has a cd that is not understood")
        self._env["PWD"], self._env["OLDPWD"] = folders

    def _set(self, name: str, value: str, exported: bool) -> None:
        if exported or name in self._env or name in self._marked:
            self._env[name] = value
        else:
            self._unexported[name] = value

    def _export(self, names: Sequence[str]) -> None:
        for name in names:
            self._marked.add(name)
            if name in self._unexported:
                self._env[name] = self._unexported.pop(name)

    def _start(self, verb: str, words: list[str], command: shell_syntax.ShellCommand) -> PreparedProgram:
        by_exec = verb == "exec"
        if by_exec:
            words = words[1:]
        if not words or not _PROGRAM.match(os.path.basename(words[0])) or words[0].startswith("%"):
            raise NotWarm(f"the command is not Python but {' '.join(words)[:40]}")
        if not by_exec:
            self._env["_"] = words[0] if "/" in words[0] else find_on_path(words[0], self._env)
            if not _execs_last_program(self._program, command.shape):
                self._env["SHLVL"] = str(int(self._env["SHLVL"]) + 1)
        elif len(command.statements) > 1:
            self._env.pop("_", None)
        return PreparedProgram(words, self._env, self._env["PWD"])


def _start_environment(given: Mapping[str, str], cwd: str) -> dict[str, str]:
    """Return the environment that a program gets from a bash which does nothing else."""
    env = dict(given)
    odd = next(
        (
            name
            for name in env
            if name != "_" and shell_syntax.SHELL_VARIABLES.fullmatch(name) and not _is_unused_function(name)
        ),
        None,
    )
    if odd is not None:
        raise NotWarm(f"{odd} is set, which is for the shell")
    level = env.setdefault("SHLVL", "0")
    if not re.fullmatch(r"[0-9]{1,4}", level) or int(level) > _MAX_SHLVL:
        raise NotWarm(f"SHLVL is {level[:40]}")
    if int(level) == 0 and ("SSH_CLIENT" in env or "SSH2_CLIENT" in env):
        raise NotWarm("the shell reads its .bashrc, because SSH_CLIENT is set and SHLVL is not")
    env["SHLVL"] = str(int(level))
    try:
        if not _is_here(env.get("PWD", ""), cwd):
            env["PWD"] = os.path.realpath(cwd)
    except OSError as error:
        raise NotWarm(f"{cwd}: {error.strerror}") from error
    if "OLDPWD" in env and not os.path.isdir(os.path.join(cwd, env["OLDPWD"])):
        del env["OLDPWD"]
    return env


def _is_here(folder: str, cwd: str) -> bool:
    if not folder.startswith("/"):
        return False
    there = os.stat(cwd)
    try:
        return os.path.samestat(os.stat(folder), there)
    except OSError:
        return False


def _is_for_shell(statement: shell_syntax.ShellStatement) -> bool:
    if statement.verb == "cd" and any(".." in word.raw for word in statement.words):
        return True
    return any(word.value is None for word in statement.all)


def _check(statement: shell_syntax.ShellStatement, is_last: bool) -> None:
    """Raise NotWarm where a statement does more than set variables or the folder, or the last one is no program."""
    verb = statement.verb
    _check_names(statement)
    if is_last:
        if not statement.words or verb in ("cd", "export", "set"):
            raise NotWarm("the command does not end with a program")
    elif not statement.words:
        return
    elif statement.assigned or verb not in ("cd", "export", "set"):
        raise NotWarm(f"the command has more than one program: {(verb or statement.words[0].raw)[:40]}")
    elif verb == "cd" and len(statement.words) != 2:
        raise NotWarm("the command has a cd that is not understood")
    elif verb == "set":
        _check_set([word.value or "" for word in statement.words[1:]])


def _check_names(statement: shell_syntax.ShellStatement) -> None:
    is_export = statement.verb == "export"
    for word in (*statement.assigned, *(statement.words if is_export else ())):
        if (
            shell_syntax.SHELL_VARIABLES.fullmatch(word.name or word.raw)
            or (word.name or word.raw) in _SET_BY_CD
        ):
            raise NotWarm(f"the command sets {word.name or word.raw}")
    for word in statement.words[1:] if is_export else ():
        if not word.name and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", word.raw):
            raise NotWarm(f"the command has export {word.raw[:40]}")


def _check_set(words: Sequence[str]) -> None:
    rest = list(words)
    while rest:
        flags = rest.pop(0)
        takes = flags.endswith("o")
        if not _FLAGS_OF_SET.fullmatch(flags) or (takes and (not rest or rest.pop(0) not in _OPTIONS_OF_SET)):
            raise NotWarm(f"the command has set {' '.join(words)[:40]}")
    if not words:
        raise NotWarm("the command has set, which prints all variables")


def find_on_path(name: str, env: Mapping[str, str]) -> str:
    for folder in env.get("PATH", "").split(":"):
        found = f"{folder.rstrip('/')}/{name}"
        if not folder.startswith("/"):
            raise NotWarm(f"{name}: PATH has folders that are not absolute, or none")
        if os.path.isfile(found) and os.access(found, os.X_OK):
            return found
    raise NotWarm(f"{name} is not on PATH")
