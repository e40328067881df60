"""Variables that come with a submission: the values of secrets, and files of NAME=VALUE lines."""

from __future__ import annotations

import os
import re
from contextvars import ContextVar
from types import MappingProxyType
from typing import TYPE_CHECKING

from drumline.contract import secrets
from drumline.contract.errors import NotFoundError, PlanError, Problem, SpecError, UsageError
from drumline.contract.words import format_size

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


_PATH = "drumline.secrets"

given: ContextVar[Mapping[str, str]] = ContextVar("drumline_secrets", default=MappingProxyType({}))
"""Values by name, of the command that submits, or of a driver for its steps."""

lost: ContextVar[bool] = ContextVar("drumline_secrets_lost", default=False)
"""In a driver that was started again without the values: whose environment it has is not who submitted the job."""


def find_text(names: Iterable[str], more: Mapping[str, str] = MappingProxyType({})) -> str:
    """
    Return the values of these secrets as ``contract.secrets`` passes them on. ``more``: such as addresses to notify.

    Raises PlanError for missing ones.
    """
    known = given.get()
    environment: Mapping[str, str] = {} if lost.get() else os.environ
    values = {name: known.get(name, environment.get(name, "")) for name in names}
    wrong = [_describe_missing(name) for name, value in values.items() if not value]
    odd = [name for name, value in values.items() if "\0" in value]
    what = "has a zero byte, which no variable can hold"
    wrong += [Problem(f"{_PATH}: the value of {name} {what}", path=_PATH) for name in odd]
    text = secrets.to_text({**values, **more})
    if len(text.encode()) > secrets.MOST_BYTES:
        what = f"{_PATH}: the values have more than {format_size(secrets.MOST_BYTES)}"
        hint = "pass the path of a file that the nodes can read, instead of what is in it"
        wrong.append(Problem(what, path=_PATH, hint=hint))
    if wrong:
        raise PlanError(wrong)
    return text


def find_all_or_none(names: Iterable[str]) -> str:
    """Return the values as ``find_text`` does; empty where one is missing, which the job that needs it then says."""
    try:
        return find_text(names)
    except PlanError:
        return ""


def find_held(names: Iterable[str]) -> str:
    """Return the values as ``find_text`` does, if this process was given all of them; else nothing."""
    known = given.get()
    wanted = list(names)
    return secrets.to_text({name: known[name] for name in wanted}) if known.keys() >= set(wanted) else ""


def check_wanted(names: Iterable[str], kind: str) -> None:
    """Refuse a value that was given for a secret that no step has. Raises UsageError."""
    unknown = next((name for name in given.get() if name not in set(names)), "")
    if unknown:
        what = f"--secret {unknown}: no step of the {kind} has this secret"
        raise UsageError(what, f"drumline: {{secrets: [{unknown}]}} in the steps that need it")


def check_code(code: str, includes: Iterable[str], files: Mapping[str, str]) -> None:
    """
    Refuse code that has the file of a secret in it: it would be copied with the job. ``files``: by name of the secret.

    Raises PlanError.
    """
    for name, path in files.items():
        real = os.path.realpath(os.path.expanduser(path))
        for root in filter(None, (code, *includes)):
            if _holds(os.path.realpath(root), real):
                what = (
                    f"code: {path}, the file of --secret {name}, is in {root}, which is copied with the job"
                )
                raise PlanError(what, "move the file elsewhere, or list it in .amlignore", path="code")


def _holds(root: str, file: str) -> bool:
    """Return whether a copy of ``root``, a folder or a file, has the file in it."""
    relative = os.path.relpath(file, root)
    if relative == os.pardir or relative.startswith(os.pardir + os.sep):
        return False
    from drumline.staging.snapshot.code_files import read_ignore_rules

    return not os.path.isdir(root) or not read_ignore_rules(root)(relative)


def _describe_missing(name: str) -> Problem:
    if lost.get():
        what = f"{_PATH}: the value of {name} was lost when the process that runs the steps was killed"
        return Problem(what, path=_PATH, hint="submit the job again: drumline job rerun continues a pipeline")
    state = "is empty" if name in os.environ or name in given.get() else "is not set"
    what = f"{_PATH}: {name} {state} in the environment of this command, and values are not stored"
    return Problem(what, path=_PATH, hint=f"export {name}, or --secret {name}=@FILE")


# files of variables: what the dotenv libraries and shells read alike


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
