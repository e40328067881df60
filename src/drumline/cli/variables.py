"""Variables of a job from the command line: ``--env-file``, and ``--secret``, whose values are stored nowhere."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence


_MOST_BYTES = 1 << 20


def hide_typed(given: Sequence[str]) -> None:
    """Hide values that were typed with ``--secret``, which is an error, in this process's command line."""
    typed = [word for word in given if not word.partition("=")[2].startswith(("@", "-"))]
    if any("=" in word for word in typed):
        hide_values(typed)


def read_env_files(paths: Sequence[str]) -> dict[str, str]:
    """Return the variables of all files; of one that is in several, the last. Raises NotFoundError, SpecError."""
    if not paths:
        return {}
    from drumline.control.submission import submitted_secrets

    return {name: value for path in paths for name, value in submitted_secrets.read(path).items()}


def set_variables(job: Any, arguments: argparse.Namespace) -> None:
    """Apply both options to a job, or to the trials of a sweep. Raises UsageError, NotFoundError, SpecError."""
    program = getattr(job, "trial", job)
    if arguments.env_file:
        if not hasattr(program, "environment_variables"):
            what = f"--env-file: a {job.type} has no variables of its own, its steps do"
            raise UsageError(what, "environment_variables of a step")
        variables = read_env_files(arguments.env_file)
        program.environment_variables = {**(program.environment_variables or {}), **variables}
    if arguments.secret:
        set_secrets(job, arguments.secret)


def set_secrets(job: Any, words: Sequence[str]) -> None:
    """Add secrets to a job, and remember the values for its submission. Raises UsageError, NotFoundError."""
    from drumline.control.submission import planning, submitted_secrets

    if sum(word.endswith("=-") for word in words) > 1:
        raise UsageError("--secret: standard input is one value", "use NAME=@FILE for the others")
    values: dict[str, str] = {}
    for word in words:
        name, equals, source = word.partition("=")
        if name in values:
            raise UsageError(f"--secret: {name} is given twice")
        values[name] = _read(name, source if equals else None)
    program = getattr(job, "trial", job)
    if hasattr(program, "drumline"):
        named = [*(program.drumline.get("secrets") or ()), *values]
        program.drumline = {**program.drumline, "secrets": list(dict.fromkeys(named))}
    elif job.type != "pipeline":
        what = f"--secret {next(iter(values))}: the program of this {job.type} is a component, which has no secrets"
        raise UsageError(what, "write the command into the job file, with drumline: {secrets: [NAME]}")
    submitted_secrets.given.set(values)
    files = {word.partition("=")[0]: word.partition("=@")[2] for word in words if "=@" in word}
    planning.secret_files.set(files)


def _read(name: str, source: str | None) -> str:
    """Return the value. ``source``: None for this shell, ``@FILE``, or ``-``. Raises UsageError, NotFoundError."""
    if source is None:
        if not os.environ.get(name):
            state = "is empty" if name in os.environ else "is not set"
            raise UsageError(
                f"--secret: {name!r} {state} in this shell", f"export {name}, or --secret {name}=@FILE"
            )
        return os.environ[name]
    if source == "-":
        value = _read_input(name)
    elif source.startswith("@"):
        value = _read_file(name, source[1:])
    else:
        # Not repeated: a terminal may be recorded.
        what = (
            f"--secret {name}: a value that is typed is in the history of this shell, and others can read it"
        )
        raise UsageError(
            what, f"--secret {name} takes it from this shell, {name}=@FILE from a file, {name}=- from input"
        )
    if not value:
        raise UsageError(f"--secret {name}: the value is empty")
    return value


def _read_input(name: str) -> str:
    if sys.stdin.isatty():
        import getpass

        try:
            return getpass.getpass(f"{name}: ", stream=sys.stderr)
        except EOFError:
            raise UsageError(f"--secret {name}: nothing was typed") from None
    return _without_newline(sys.stdin.buffer.read(_MOST_BYTES))


def _read_file(name: str, path: str) -> str:
    try:
        with open(os.path.expanduser(path), "rb") as file:
            return _without_newline(file.read(_MOST_BYTES))
    except OSError as error:
        raise NotFoundError(f"--secret {name}: {path}: {error.strerror}") from error


def _without_newline(data: bytes) -> str:
    return os.fsdecode(data).removesuffix("\n").removesuffix("\r")


# values in this process's command line


_ARG_START, _ARG_END = 45, 46
"""In what follows the name in ``/proc/self/stat``. Source: proc_pid_stat(5), fields 48 and 49."""

_VARIABLES_FIELD = "environment_variables"


def hide_values(words: Iterable[str]) -> None:
    """
    Replace values by asterisks. ``words``: NAME=VALUE, as they were typed. Never raises.

    To be called before anything is forked from this process.
    """
    typed = [value for _, _, value in (word.partition("=") for word in words) if value]
    if not typed:
        return
    try:
        import ctypes

        with open("/proc/self/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        start, end = int(fields[_ARG_START]), int(fields[_ARG_END])
        line = ctypes.string_at(start, end - start)
        for value in map(os.fsencode, typed):
            at = line.find(b"=" + value + b"\0")
            while at >= 0:
                ctypes.memset(start + at + 1, ord("*"), len(value))
                at = line.find(b"=" + value + b"\0", at + 1)
    except (ImportError, OSError, ValueError, IndexError):
        return


def hide_set_values(given: Iterable[str]) -> None:
    """Hide the values of those words of ``--set`` that set environment variables."""
    hide_values(word for word in given if _VARIABLES_FIELD in word.partition("=")[0])
