"""The named outputs of a job that has completed, as assets. What cannot be registered fails no job; it is said."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from drumline.contract import events as e
from drumline.contract.errors import DrumlineError, describe_os_error
from drumline.contract.outcome import fold
from drumline.contract.user import user

if TYPE_CHECKING:
    from collections.abc import Iterable

    from drumline.contract.folder import RunFolder
    from drumline.contract.plan import Registration


def register(folder: RunFolder, wanted: Iterable[Registration]) -> None:
    """Register the outputs that are not yet. Raises OSError when not even that can be written down."""
    before = fold(folder.read_events()).registered
    for one in wanted:
        done = before.get(one.output)
        if done is not None and not done.away:
            continue
        away = not os.path.isdir(one.home)
        if away and done is not None:
            continue
        version, error = ("", f"this machine does not see {one.home}") if away else _register(folder, one)
        folder.append(e.OutputRegistered(time.time(), one.output, one.name, version, error, away))


def _register(folder: RunFolder, one: Registration) -> tuple[str, str]:
    """Register an output; return its version, and why it has none."""
    if os.path.isabs(one.path) and not os.path.exists(one.path):
        return "", "the job did not write it"
    before = _made_before(folder, one)
    if before:
        return before, ""
    try:
        return _create(folder, one), ""
    except FileExistsError:
        return one.version, f"there is version {one.version} of {one.name} already"
    except DrumlineError as error:
        return one.version, error.message
    except OSError as error:
        return one.version, describe_os_error(error)


def _made_before(folder: RunFolder, one: Registration) -> str:
    """Return the version that a supervisor made of it, and could not record before it was killed; empty for none."""
    from drumline.store.assets import Records

    records = Records(one.home, one.kind)
    try:
        newest = records.find(one.name, "latest")
        known = records.read(one.name, one.version or newest).get("properties") or {}
    except (DrumlineError, OSError):
        return ""
    ours = (known.get("drumline.job"), known.get("drumline.output")) == (folder.name, one.output)
    return (one.version or newest) if ours else ""


def _create(folder: RunFolder, one: Registration) -> str:
    from drumline.store.assets import Records

    values = {
        "type": one.type,
        "path": one.path,
        "description": one.description,
        "properties": {"drumline.job": folder.name, "drumline.output": one.output},
        "created_by": user(),
    }
    given = {key: value for key, value in values.items() if value}
    return Records(one.home, one.kind).create(one.name, one.version or None, given)
