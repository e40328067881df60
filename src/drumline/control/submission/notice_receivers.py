"""The receivers of a job's end and troubles: those that it names, else all that its user has configured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drumline.contract.errors import PlanError, Problem
from drumline.control.settings import receivers
from drumline.supervisor.notifying.notices import URL_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_PATH = "drumline.notify"


def list_receivers(given: Sequence[Any] | None) -> tuple[dict[str, Any], ...]:
    """
    Return the receivers as a plan has them, without addresses. ``given``: ``drumline.notify`` of the job; None: it says
    nothing. Raises PlanError, UsageError.
    """
    known = {
        name: {"name": name, **{key: value for key, value in receiver.items() if key != "url"}}
        for name, receiver in receivers.read().items()
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
    known = receivers.read()
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
            "on": on or list(receivers.ALL),
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
    odd = next((one for one in words if one not in receivers.KINDS_OF_NOTICES), None)
    if not isinstance(words, list) or odd is not None:
        raise ValueError(
            f"on: {odd!r} is no kind of notice", f"one of {', '.join(receivers.KINDS_OF_NOTICES)}"
        )
    return [str(one) for one in words]
