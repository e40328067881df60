"""Times as programs and people read them."""

from __future__ import annotations

from drumline.contract.errors import UsageError


def utc(seconds: float | None, precision: str = "milliseconds") -> str | None:
    """
    Return seconds since 1970 as RFC 3339 in UTC; None for what is no time, as in a damaged file. ``precision``: a
    ``timespec`` of ``datetime.isoformat``.
    """
    if seconds is None:
        return None
    from datetime import UTC, datetime

    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec=precision).replace("+00:00", "Z")
    except (OverflowError, ValueError, TypeError, OSError):
        return None


_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def parse_duration(text: str, option: str) -> float:
    """
    Return the seconds of ``90s``, ``10m``, ``1h30m``, ``2d`` or ``1w``; a number alone is seconds. Raises UsageError.

    >>> parse_duration("1h30m", "--timeout"), parse_duration("0.5", "--timeout")
    (5400.0, 0.5)
    """
    import re

    word = text.strip().lower()
    number = r"\d{1,9}(?:\.\d{1,9})?"
    if re.fullmatch(number, word, re.ASCII):
        return float(word)
    if not re.fullmatch(rf"(?:{number}[smhdw])+", word, re.ASCII):
        raise UsageError(f"{option}: {text!r} is not a length of time", f"{option} 90s, 10m, 2h, 1h30m or 7d")
    return sum(
        float(count) * _UNIT_SECONDS[unit] for count, unit in re.findall(rf"({number})([smhdw])", word)
    )


def parse_age(text: str, option: str) -> float:
    """
    Return the seconds of an age, such as ``30d``. A number alone is refused, unlike in ``parse_duration``: what is
    older is removed, and days may be meant. Raises UsageError.

    >>> parse_age("30d", "--older-than") == 30 * 24 * 3600
    True
    """
    if text.strip()[-1:].isdigit():
        raise UsageError(f"{option}: {text!r} has no unit", f"{option} 90s, 10m, 2h, 30d or 4w")
    return parse_duration(text, option)


def parse_moment(text: str, option: str) -> float:
    """
    Return when ``10m`` ago was, or ``2026-03-01T08:00``, by the local clock unless it says otherwise, in seconds since
    1970. Raises UsageError.
    """
    import time
    from datetime import datetime

    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError, OSError):
        pass
    try:
        return time.time() - parse_duration(text, option)
    except UsageError as error:
        raise UsageError(
            f"{option}: {text!r} is not a time", f"{option} 10m, 2h or 2026-03-01T08:00"
        ) from error
