"""The readable ones of many files, as lists show them: one that was damaged hides no other."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from drumline.contract.errors import NotFoundError, SpecError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

K = TypeVar("K")
T = TypeVar("T")


def readable(
    keys: Iterable[K], read: Callable[[K], T], damaged: Callable[[str], None] | None = None
) -> list[T]:
    """
    Return what ``read`` makes of each key, without those that are gone meanwhile.

    ``damaged``: told of each that cannot be read; None: SpecError is raised.
    """
    found = []
    for key in keys:
        try:
            found.append(read(key))
        except NotFoundError:
            continue
        except SpecError as error:
            if damaged is None:
                raise
            damaged(str(error))
    return found
