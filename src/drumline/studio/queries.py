"""What a request asks for: the values of its query or its body, within limits, and jobs of this user."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, overload

from drumline.contract.errors import NotFoundError, UsageError
from drumline.control.jobs import lookup

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from starlette.requests import Request

MOST_TEXT = 1000
_MOST_WORDS = 1000
MOST_OFFSET = 1 << 62
"""Of a place in a file."""

_DEEPEST = 64
"""Levels of an object in a body."""


class Reader(NamedTuple):
    """The values of a query or a body. Each method raises UsageError for what cannot be meant."""

    values: Mapping[str, Any]

    def text(self, name: str, default: str = "", most: int = MOST_TEXT) -> str:
        value = self.values.get(name)
        if value is None:
            return default
        if not isinstance(value, str) or len(value) > most:
            raise UsageError(f"{name} must be a text of at most {most:,} characters")
        return value

    @overload
    def number(self, name: str, default: int, least: int | None = None, most: int | None = None) -> int: ...

    @overload
    def number(
        self, name: str, default: None = None, least: int | None = None, most: int | None = None
    ) -> int | None: ...

    def number(
        self, name: str, default: int | None = None, least: int | None = None, most: int | None = None
    ) -> int | None:
        """Return a whole number; the default where it is missing or empty."""
        value = self.values.get(name)
        if value is None or value == "":
            return default
        try:
            number = int(value) if isinstance(value, str) and len(value) < 20 else value
        except ValueError:
            number = None
        if not isinstance(number, int) or isinstance(number, bool):
            raise UsageError(f"{name} must be a whole number")
        if (least is not None and number < least) or (most is not None and number > most):
            limits = (
                f"at least {least}"
                if most is None
                else f"at most {most}"
                if least is None
                else f"{least} to {most}"
            )
            raise UsageError(f"{name} must be {limits}; got {number}")
        return number

    def flag(self, name: str, *, default: bool = False) -> bool:
        value = self.values.get(name, default)
        known = {"1": True, "true": True, "0": False, "false": False, "": default}
        value = known.get(value.lower()) if isinstance(value, str) else value
        if not isinstance(value, bool):
            raise UsageError(f"{name} must be 1 or 0")
        return value

    def words(self, name: str) -> list[str]:
        """Return a list, in a query separated by commas."""
        value = self.values.get(name, "")
        words = [one.strip() for one in value.split(",")] if isinstance(value, str) else value
        if not isinstance(words, list) or not all(isinstance(one, str) for one in words):
            raise UsageError(f"{name} must be a list of texts")
        if len(words) > _MOST_WORDS:
            raise UsageError(f"{name} has {len(words):,} entries; {_MOST_WORDS:,} at most")
        return [one for one in words if one]

    def choice(self, name: str, default: str, known: Sequence[str]) -> str:
        value = self.text(name, default) or default
        if value not in known:
            raise UsageError(f"{name} must be one of {', '.join(known)}")
        return value

    def mapping(self, name: str) -> dict[str, Any]:
        value = self.values.get(name, {})
        if not isinstance(value, dict):
            raise UsageError(f"{name} must be an object")
        _check_depth(name, value)
        return value

    def jobs(self, name: str, most: int = 200) -> list[str]:
        """Return the names of jobs of this user. Raises NotFoundError."""
        names = self.words(name)
        if len(names) > most:
            raise UsageError(f"{name} has {len(names):,} jobs; {most} at most")
        for one in names:
            check_is_ours(one)
        return names


def _check_depth(name: str, value: Any) -> None:
    level = [value]
    for _ in range(_DEEPEST):
        level = [
            inner
            for one in level
            if isinstance(one, (dict, list))
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
    if level:
        raise UsageError(f"{name} has more than {_DEEPEST} levels")


def query(request: Request) -> Reader:
    return Reader(request.query_params)


def body(request: Request) -> Reader:
    """Return the object that was sent with a change."""
    return Reader(request.state.body)


def check_is_ours(name: str) -> None:
    """Raise NotFoundError unless the job is there and this user's own: the server shows nobody else's run folders."""
    if not lookup.is_own(lookup.folder_of(name)):
        raise NotFoundError(f"there is no job {name!r} of yours", "drumline job list")


def of_job(describe: Callable[[str], Any]) -> Callable[[Request], Any]:
    """Make a handler of a function that answers about a job by its name alone."""

    def answer(request: Request) -> Any:
        return describe(request.path_params["name"])

    return answer
