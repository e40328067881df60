"""Regular expressions that most processes of a launch never use, and therefore compile when they first do."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, AnyStr, cast

if TYPE_CHECKING:
    from re import Pattern


DIRECTION_MARKS = "[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
"""Characters that turn the direction of writing, and with it what a text seems to say."""


class _LatePattern:
    def __init__(self, pattern: str | bytes, flags: int) -> None:
        self._pattern = pattern
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        """Return a method or attribute of the compiled pattern, which replaces this one's for the next time."""
        if name.startswith("_"):
            raise AttributeError(name)
        value = getattr(re.compile(self._pattern, self._flags), name)
        setattr(self, name, value)
        return value


def compile_late(pattern: AnyStr, flags: int = 0) -> Pattern[AnyStr]:
    """Return what ``re.compile`` returns, for use by its methods; a mistake in the pattern shows at the first use."""
    return cast("Pattern[AnyStr]", _LatePattern(pattern, flags))
