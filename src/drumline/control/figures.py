"""Numbers, durations and sizes in few letters, as people read them."""

from __future__ import annotations

import math
from typing import Any

_MOST_DIGITS = 18
_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86400


def read_count(value: Any) -> int | None:
    """
    Return the whole number that a value is, or that its text says; None: it is none, or one of very many digits.

    >>> [read_count(one) for one in (7, "007", "-7", "²", "9" * 5000, 10**5000, True, 7.5)]
    [7, 7, None, None, None, None, None, None]
    """
    if isinstance(value, str):
        is_count = value.isascii() and value.isdigit() and len(value) <= _MOST_DIGITS
        return int(value) if is_count else None
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**_MOST_DIGITS
    return value if is_count else None


def short_number(value: float | None) -> str:
    """
    Return three significant digits, or more for whole numbers below a million.

    >>> short_number(0.24138), short_number(4811.0), short_number(3e-05), short_number(1.234e9), short_number(10.0)
    ('0.241', '4,811', '3e-5', '1.23e9', '10')
    """
    if value is None:
        return "-"
    if not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    size = abs(value)
    if 1000 <= size < 1e6:
        return f"{value:,.0f}"
    text = f"{value:.3g}"
    digits, e, power = text.partition("e")
    return f"{digits}e{int(power)}" if e else text


def short_duration(seconds: float | None) -> str:
    """
    Return a duration in its largest units, for tables.

    >>> [short_duration(one) for one in (0.354, 9.2, 57, 192, 3840, 183600)]
    ['0.35s', '9.2s', '57s', '3m12s', '1h4m', '2d3h']
    """
    if seconds is None:
        return "-"
    if seconds < 0.995:
        return f"{max(0.0, seconds):.2f}s"
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    return "".join(f"{count}{unit}" for count, unit in split_duration(round(seconds)))


def split_duration(seconds: int) -> tuple[tuple[int, str], ...]:
    """
    Return a duration as a number of its largest unit and one of the next.

    >>> split_duration(57), split_duration(192), split_duration(183600)
    (((57, 's'),), ((3, 'm'), (12, 's')), ((2, 'd'), (3, 'h')))
    """
    if seconds < _MINUTE_S:
        return ((seconds, "s"),)
    if seconds < _HOUR_S:
        return (seconds // _MINUTE_S, "m"), (seconds % _MINUTE_S, "s")
    if seconds < _DAY_S:
        return (seconds // _HOUR_S, "h"), (seconds % _HOUR_S // _MINUTE_S, "m")
    return (seconds // _DAY_S, "d"), (seconds % _DAY_S // _HOUR_S, "h")


def short_age(seconds: float | None) -> str:
    """
    Return an age in one unit.

    >>> [short_age(one) for one in (12, 240, 7200, 259200)]
    ['12s', '4m', '2h', '3d']
    """
    if seconds is None:
        return "-"
    whole = max(0, int(seconds))
    for unit_s, unit in ((_DAY_S, "d"), (_HOUR_S, "h"), (_MINUTE_S, "m")):
        if whole >= unit_s:
            return f"{whole // unit_s}{unit}"
    return f"{whole}s"


def short_size(count: float | None) -> str:
    """
    Return a number of bytes with its unit, for tables.

    >>> short_size(0), short_size(1234567), short_size(214e6)
    ('0 B', '1.2 MB', '214 MB')
    """
    if count is None:
        return "-"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(count) < 999.5 or unit == "TB":
            return f"{count:.1f} {unit}" if unit != "B" and abs(count) < 9.95 else f"{count:.0f} {unit}"
        count /= 1000
    raise AssertionError


def round_rate(value: float | None) -> float | None:
    """
    Round a rate to four digits: one of steps that take hours is a small number.

    >>> round_rate(1 / 1500), round_rate(12.34567), round_rate(None)
    (0.0006667, 12.35, None)
    """
    return None if value is None else float(f"{value:.4g}")
