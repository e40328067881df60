"""Keyword arguments that a class does not know: a mistake, as an unknown key of a file is."""

from __future__ import annotations

from drumline.contract.errors import SpecError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


def refuse_unknown(given: Iterable[str], known: tuple[str, ...], where: str = "") -> None:
    """
    Raise SpecError for the first keyword that is not known. Private ones, with an underscore, pass.

    ``where``: the field that takes them, such as ``distribution``; empty for the job itself.
    azure-ai-ml drops them in silence, and the job then is another one.
    """
    for name in given:
        if name not in known and not name.startswith("_"):
            from drumline.spec.schema.hints import key_hint

            place = f" in {where}" if where else ""
            raise SpecError(f"unknown keyword {name!r}{place}", key_hint(name, where, known))
