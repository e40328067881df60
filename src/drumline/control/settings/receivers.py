"""
The receivers of notices about jobs: ``notify.json`` of the base home, for its owner alone, since a URL is a secret.
A job that names receivers has those, every other one all that its user has configured.
"""

from __future__ import annotations

import os
import re
import time
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import DrumlineError, PlanError, Problem, UsageError
from drumline.control.settings import base_files
from drumline.supervisor.notifying.notices import LIMIT_S, URL_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


KINDS_OF_NOTICES = ("end", "failure", "hang", "preemption")
ALL = ("end", "hang", "preemption")
_COMMAND = "command:"
_FILE = "notify.json"


def path() -> str:
    return base_files.path_of(_FILE)


def read() -> dict[str, dict[str, Any]]:
    """Return the receivers by name. Raises UsageError for a damaged file."""
    is_receiver = lambda value: isinstance(value, dict) and "kind" in value  # noqa: E731
    return base_files.read(path(), is_receiver, "drumline configure --notify NAME=URL")


def change(name: str, target: str, on: tuple[str, ...]) -> None:
    """Add a receiver, or replace one; an empty target removes it. Raises UsageError, OSError."""
    known = read()
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", name):
        hint = "letters, digits, '-', '_' and '.', beginning with a letter or digit"
        raise UsageError(f"--notify: {name!r} cannot be a receiver's name", hint)
    if target:
        known[name] = {**parse_target(target), "on": list(on)}
    elif known.pop(name, None) is None:
        raise UsageError(
            f"--notify: there is no receiver {name!r}", f"known are {', '.join(known) or 'none'}"
        )
    base_files.write(path(), known)


def parse_target(target: str) -> dict[str, Any]:
    """Return what a target means. Raises UsageError, without the target, for what is none."""
    if target.startswith(_COMMAND):
        return {"kind": "command", "command": target.removeprefix(_COMMAND).strip()}
    scheme, is_url, rest = target.partition("://")
    if not is_url or not rest.strip("/") or any(one <= " " for one in target):
        raise UsageError("--notify: the target is neither a URL nor command:PROGRAM", _HINT)
    if scheme.lower() in ("http", "https"):
        return {"kind": "webhook", "url": target}
    _check_apprise(target)
    return {"kind": "apprise", "url": target}


_HINT = "--notify team=https://hooks.example.org/..., or --notify team=- to type it unseen"


def _check_apprise(url: str) -> None:
    """Raise UsageError if apprise is not installed, or does not know such a URL."""
    from importlib.util import find_spec

    from drumline.contract import extras

    if find_spec("apprise") is None:
        what = f"--notify: {url.partition('://')[0]}:// needs the package apprise, which is not installed"
        raise UsageError(what, extras.install_line("notify"))
    import logging

    # What it logs has the address in it.
    logging.getLogger("apprise").disabled = True
    try:
        import apprise

        is_known = apprise.Apprise().add(url)
    except Exception as error:  # noqa: BLE001 - a plug-in of it may raise anything, with the address in it
        what = f"--notify: the package apprise failed with {type(error).__name__}"
        raise UsageError(what, extras.install_line("notify")) from None
    if not is_known:
        what = f"--notify: apprise takes no such {url.partition('://')[0]}:// address"
        raise UsageError(what, "https://github.com/caronc/apprise/wiki lists the services and their forms")


def send_test(name: str) -> None:
    """Tell a receiver of nothing, as a job would. Blocks for seconds at most. Raises UsageError, DrumlineError."""
    known = read()
    if name not in known:
        raise UsageError(
            f"--test-notify: there is no receiver {name!r}", f"known are {', '.join(known) or 'none'}"
        )
    from drumline.supervisor.notifying import sending

    notice = {
        "event": "test",
        "job": "example",
        "status": "Running",
        "exit_code": None,
        "reason": "",
        "host": os.uname().nodename,
        "time": time.time(),
    }
    try:
        sending.send({"name": name, **known[name]}, notice, time.monotonic() + LIMIT_S)
    except sending.NotSentError as error:
        raise DrumlineError(f"{name} was not told: {error}") from error


_PATH = "drumline.notify"


def list_receivers(given: Sequence[Any] | None) -> tuple[dict[str, Any], ...]:
    """
    Return the receivers as a plan has them, without addresses. ``given``: ``drumline.notify`` of the job; None: it says
    nothing. Raises PlanError, UsageError.
    """
    known = {
        name: {"name": name, **{key: value for key, value in receiver.items() if key != "url"}}
        for name, receiver in read().items()
    }
    if given is None:
        return tuple(known.values())
    found, problems = [], []
    for index, one in enumerate(given):
        if "://" in str(one.get("target", "") if isinstance(one, dict) else one):
            # Without its place: the line of the file would be shown.
            what = f"{_PATH}: a URL is a secret, and a job file is kept with the job"
            raise PlanError(what, "drumline configure --notify NAME=URL, and write NAME here")
        try:
            found.append(_parse(one, known))
        except ValueError as error:
            what, hint = error.args
            problems.append(Problem(f"{_PATH}: {what}", path=f"{_PATH}.{index}", hint=hint))
    if problems:
        raise PlanError(problems)
    return tuple(found)


def find_addresses(planned: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the addresses of receivers, by the names under which they are passed on with the secrets of a job."""
    known = read()
    names = [str(one["name"]) for one in planned if one["kind"] in ("webhook", "apprise")]
    return {URL_PREFIX + name: str(known[name].get("url") or "") for name in names if name in known}


def _parse(one: Any, known: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Parse an entry of ``notify``. Raises ValueError with what is wrong and a hint."""
    fields = {"target": one} if isinstance(one, str) else one
    odd = (
        [str(name) for name in fields if name not in ("target", "command", "on")]
        if isinstance(fields, dict)
        else [""]
    )
    if odd or ("target" in fields) == ("command" in fields):
        what = f"unknown key {odd[0]!r}" if odd and odd[0] else "one has a name or a command"
        raise ValueError(what, "notify: [NAME, {command: PROGRAM, on: [failure]}]")
    on = _parse_on(fields.get("on"))
    if "command" in fields:
        if not isinstance(fields["command"], str) or not fields["command"].strip():
            raise ValueError("command is not a text", "command: /path/of/program")
        return {
            "name": "command",
            "kind": "command",
            "command": fields["command"],
            "on": on or list(ALL),
        }
    name = str(fields["target"])
    if name not in known:
        there = ", ".join(known) or "none"
        raise ValueError(
            f"there is no receiver {name!r}", f"known are {there}; drumline configure --notify {name}=URL"
        )
    return {**known[name], "on": on} if on else known[name]


def _parse_on(given: Any) -> list[str]:
    """Return the kinds of notices; none: nothing is said. Raises ValueError."""
    words = [given] if isinstance(given, str) else given or []
    odd = next((one for one in words if one not in KINDS_OF_NOTICES), None)
    if not isinstance(words, list) or odd is not None:
        raise ValueError(f"on: {odd!r} is no kind of notice", f"one of {', '.join(KINDS_OF_NOTICES)}")
    return [str(one) for one in words]
