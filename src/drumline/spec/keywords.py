"""Keyword arguments that a class does not know: a mistake, as an unknown key of a file is."""

from __future__ import annotations

from drumline.contract.errors import SpecError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

_PARTS = ("distribution", "resources", "limits", "queue_settings")
_READ_ONLY = (
    "id", "status", "studio_url", "log_files", "creation_context",
    "steps", "trials", "best_trial",
)  # fmt: skip
"""Attributes that the store gives a job."""


def refuse_unknown(given: Iterable[str], known: tuple[str, ...], where: str = "") -> None:
    """
    Raise SpecError for the first keyword that is not known. Private ones, with an underscore, pass.

    ``where``: the field that takes them, such as ``distribution``; empty for the job itself.
    azure-ai-ml drops them in silence, and the job then is another one.
    """
    for name in given:
        if name not in known and not name.startswith("_"):
            from drumline.spec.hints import key_hint

            place = f" in {where}" if where else ""
            raise SpecError(f"unknown keyword {name!r}{place}", key_hint(name, where, known))


def describe_ignored(name: str, known: tuple[str, ...]) -> str:
    """Return the warning for a keyword that azure-ai-ml drops in silence, which turns a typo into another job."""
    from drumline.spec.hints import did_you_mean

    hint = did_you_mean(name, known)
    return f"{name}: not known, and ignored" + (f"; {hint}" if hint else "")


def unknown_attributes(job: Any) -> Iterator[str]:
    """
    Yield a warning for each attribute that a script set on a job or its parts and that they do not have.

    No error: scripts may keep attributes of their own on a job. Private ones, with an underscore, pass.
    """
    yield from _unknown(job, "")
    for part in _PARTS:
        yield from _unknown(getattr(job, part, None), part)


def _unknown(entity: Any, where: str) -> Iterator[str]:
    if not hasattr(entity, "_fields"):
        return
    for name in vars(entity):
        if (
            name.startswith("_")
            or name in entity._fields
            or name in _READ_ONLY
            or hasattr(type(entity), name)
        ):
            continue
        from drumline.spec.hints import key_hint

        hint = key_hint(name, where, tuple(entity._fields))
        place = f"{where}.{name}" if where else name
        yield f"{place}: not an attribute of the {where or 'job'}, not used" + (f"; {hint}" if hint else "")
