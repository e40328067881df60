"""
The receivers of notices about jobs: ``notify.json`` of the base home, for its owner alone, since a URL is a secret.
"""

from __future__ import annotations

import os
import re
import time
from typing import Any

from drumline.contract.errors import DrumlineError, UsageError
from drumline.control.settings import base_files

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
    from drumline.supervisor.notifying.notices import LIMIT_S

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
