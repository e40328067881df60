"""The values of a job's secrets when it is submitted: given with the command, else in the environment."""

from __future__ import annotations

import os
from contextvars import ContextVar
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from drumline.contract import secrets
from drumline.contract.errors import PlanError, Problem, UsageError
from drumline.spec import paths

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_PATH = "drumline.secrets"

given: ContextVar[Mapping[str, str]] = ContextVar("drumline_secrets", default=MappingProxyType({}))
"""Values by name, of the command that submits, or of a driver for its steps."""


def find_text(names: Iterable[str], more: Mapping[str, str] = MappingProxyType({})) -> str:
    """
    Return the values of these secrets as ``contract.secrets`` passes them on. ``more``: such as addresses to notify.

    Raises PlanError for missing ones.
    """
    known = given.get()
    values = {name: known.get(name, os.environ.get(name, "")) for name in names}
    wrong = [_describe_missing(name) for name, value in values.items() if not value]
    wrong += [_describe_odd(name) for name, value in values.items() if "\0" in value]
    text = secrets.to_text({**values, **more})
    if len(text.encode()) > secrets.MOST_BYTES:
        what = f"{_PATH}: the values have more than {secrets.MOST_BYTES // 1024} KiB"
        hint = "pass the path of a file that the nodes can read, instead of what is in it"
        wrong.append(Problem(what, path=_PATH, hint=hint))
    if wrong:
        raise PlanError(wrong)
    return text


def list_names(graph: Any) -> list[str]:
    """Return the secrets of all steps or trials in what a driver works by."""
    return list(dict.fromkeys(_list_all(graph)))


def _list_all(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        for key, value in part.items():
            if key == "drumline" and isinstance(value, dict):
                yield from map(str, value.get("secrets") or ())
            else:
                yield from _list_all(value)
    elif isinstance(part, list):
        for value in part:
            yield from _list_all(value)


def check_file(name: str, path: str, job: Any) -> None:
    """Refuse the file of a secret that would be copied with the code of the job. Raises UsageError."""
    real = os.path.realpath(os.path.expanduser(path))
    for code in _list_code(job):
        root = os.path.realpath(code)
        relative = os.path.relpath(real, root)
        if relative != os.pardir and not relative.startswith(os.pardir + os.sep):
            from drumline.staging.snapshot.ignore_rules import read_ignore_rules

            if os.path.isdir(root) and read_ignore_rules(root)(relative):
                continue
            what = f"--secret {name}: {path} is in the code {code}, which is copied with the job"
            raise UsageError(what, "move the file elsewhere, or list it in .amlignore")


def _list_code(job: Any) -> Iterator[str]:
    steps = getattr(job, "jobs", None)
    for one in (job, getattr(job, "trial", None), *(steps.values() if isinstance(steps, dict) else ())):
        code = getattr(one, "code", None)
        if code and not paths.is_remote(str(code)):
            yield paths.resolve(one if hasattr(one, "base_path") else job, str(code))


def _describe_missing(name: str) -> Problem:
    state = "is empty" if name in os.environ or name in given.get() else "is not set"
    what = f"{_PATH}: {name} {state} in the environment of this command, and values are not stored"
    return Problem(what, path=_PATH, hint=f"export {name}, or --secret {name}=@FILE")


def _describe_odd(name: str) -> Problem:
    return Problem(f"{_PATH}: the value of {name} has a zero byte, which no variable can hold", path=_PATH)
