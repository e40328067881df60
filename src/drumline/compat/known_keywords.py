"""Keyword arguments that the classes of older SDKs never had: a typo makes another job of it."""

from __future__ import annotations

from drumline.contract.errors import SpecError
from drumline.spec.entity import read_signature

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


def refuse_unknown(given: Iterable[str], kind: type, unused: tuple[str, ...] = ()) -> None:
    """
    Raise SpecError for the first keyword that neither the constructors of ``kind`` nor ``unused`` have.

    ``unused``: what the older SDK knows and says nothing here. Private keywords, with an underscore, pass.
    """
    for name in given:
        if name in unused or name.startswith("_"):
            continue
        from drumline.spec.hints import did_you_mean

        known = (*_list_keywords(kind), *unused)
        if name not in known:
            raise SpecError(f"unknown keyword {name!r} in {kind.__name__}", did_you_mean(name, known))


def _list_keywords(kind: type) -> list[str]:
    """List the keywords of a class's constructor, and of those that it extends."""
    parameters = [
        one
        for base in kind.__mro__[:-1]
        if "__init__" in vars(base)
        for one in read_signature(vars(base)["__init__"]).parameters.values()
    ]
    return [one.name for one in parameters if one.name != "self" and one.kind != one.VAR_KEYWORD]
