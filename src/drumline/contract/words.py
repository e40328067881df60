"""
Figures as people read them: numbers, sizes, rates, durations, ages, counts and ranges.

The terminal, the page (``format.js``), sentences and notebooks all use these rules:

- A size is in powers of 1,024 (KiB, MiB, GiB): so do ``free``, ``du``, ``nvidia-smi``, PyTorch, Slurm and Kubernetes
  count, with whose figures and limits it is compared. The speed of a link is in bits and powers of 1,000.
- A figure has three significant digits.
- What is not known is ``-``.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from drumline.contract.errors import UsageError
from drumline.contract.record import compile_late

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

DIRECTION_MARKS = "[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
"""Characters that turn the direction of writing, and with it what a text seems to say."""

_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86400
_LONGEST_RANGE = 1 << 20
_MOST_DIGITS = 18
_MOST_LISTED = 20
_PART = compile_late(r"([0-9]{1,7})-([0-9]{1,7})")


def format_number(value: float | str | None, digits: int = 3) -> str:
    """
    Return so many significant digits, or more for whole numbers below a million; text as it is.

    >>> format_number(0.24138), format_number(4811.0), format_number(3e-05), format_number(1.234e9), format_number(10.0)
    ('0.241', '4,811', '3e-5', '1.23e9', '10')
    """
    if value is None or isinstance(value, str):
        return "-" if value is None else value
    if not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    value = _settle_tie(value)
    if 10**digits <= abs(value) < 1e6:
        return f"{value:,.0f}"
    text, e, power = f"{value:,.{digits}g}".partition("e")
    return f"{text}e{int(power)}" if e else text


def _settle_tie(value: float) -> float:
    """Let 1.125 be 1.13, as JavaScript rounds it; Python would round to the even digit."""
    return value * (1 + 1e-12)


def round_rate(value: float | None) -> float | None:
    """
    Round a rate to four digits: one of steps that take hours is a small number.

    >>> round_rate(1 / 1500), round_rate(12.34567), round_rate(None)
    (0.0006667, 12.35, None)
    """
    return None if value is None else float(f"{value:.4g}")


def read_count(value: Any) -> int | None:
    """
    Return the whole number that a value is, or that its text says; None: it is none, or one of very many digits.

    >>> [read_count(value) for value in (7, "007", "-7", "²", "9" * 5000, 10**5000, True, 7.5)]
    [7, 7, None, None, None, None, None, None]
    """
    if isinstance(value, str):
        is_count = value.isascii() and value.isdigit() and len(value) <= _MOST_DIGITS
        return int(value) if is_count else None
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**_MOST_DIGITS
    return value if is_count else None


def format_size(count: float | None) -> str:
    """
    Return a number of bytes.

    >>> format_size(999), format_size(1_500_000), format_size(64 << 20), format_size(1000 << 20)
    ('999 B', '1.43 MiB', '64 MiB', '0.977 GiB')
    """
    if count is None:
        return "-"
    unit = "B"
    for larger in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        if abs(count) < 999.5:
            break
        count, unit = count / 1024, larger
    return f"{format_number(count)} {unit}"


def parse_size(text: str, what: str) -> int:
    """
    Return a number of bytes. Raises UsageError that says that ``what`` is wrong.

    >>> parse_size("200GB", "--to"), parse_size("1.5 GiB", "--to")
    (200000000000, 1610612736)
    """
    size = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,6})?)\s*(?:([kmgtp])(i?))?b?", text.strip().lower())
    if size is None:
        raise UsageError(f"{what}: {text!r} is not a size", "a number with a unit, such as 200GiB or 1.5TB")
    power = " kmgtp".index(size[2] or " ")
    return int(float(size[1]) * (1024 if size[3] else 1000) ** power)


def format_rate(bytes_per_s: float | None) -> str:
    """Return what is read, written or sent in a second: ``11.4 MiB/s``."""
    return "-" if bytes_per_s is None else f"{format_size(bytes_per_s)}/s"


def format_link(bytes_per_s: float) -> str:
    """
    Return the speed of a link.

    >>> format_link(23_800_000), format_link(1_250_000_000), format_link(60_000)
    ('190 Mbit/s', '10 Gbit/s', '0.48 Mbit/s')
    """
    bits = 8 * bytes_per_s
    return f"{format_number(bits / 1e9)} Gbit/s" if bits >= 1e9 else f"{format_number(bits / 1e6)} Mbit/s"


def format_duration(seconds: float | None) -> str:
    """
    Return a duration in its two largest units.

    >>> [format_duration(seconds) for seconds in (0.0123, 0.354, 9.2, 57, 180, 192, 3840, 183600)]
    ['0.01s', '0.35s', '9.2s', '57s', '3m', '3m12s', '1h4m', '2d3h']
    """
    if seconds is None:
        return "-"
    seconds = _settle_tie(max(0.0, seconds))
    if seconds < 9.95:
        return f"{seconds:.2f}s" if seconds < 0.995 else f"{seconds:.1f}s"
    whole = int(seconds + 0.5)
    if whole < _MINUTE_S:
        return f"{whole}s"
    if whole < _HOUR_S:
        large, small = (whole // _MINUTE_S, "m"), (whole % _MINUTE_S, "s")
    elif whole < _DAY_S:
        large, small = (whole // _HOUR_S, "h"), (whole % _HOUR_S // _MINUTE_S, "m")
    else:
        large, small = (whole // _DAY_S, "d"), (whole % _DAY_S // _HOUR_S, "h")
    return "".join(f"{count}{unit}" for count, unit in (large, small) if count)


def format_seconds(seconds: float | None) -> str:
    """
    Return a duration in seconds, as sentences say it beside settings and logs, which are in seconds too.

    >>> format_seconds(2.314), format_seconds(60.0), format_seconds(0.052)
    ('2.31 s', '60 s', '0.05 s')
    """
    return f"{format_number(seconds and round(seconds, 2))} s"


def format_ms(seconds: float) -> str:
    """
    Return the time of a step or of a message.

    >>> format_ms(0.13184), format_ms(0.0000123)
    ('132 ms', '0.0123 ms')
    """
    return f"{format_number(1000 * seconds)} ms"


def format_age(seconds: float | None) -> str:
    """
    Return an age in one unit.

    >>> [format_age(seconds) for seconds in (12, 240, 7200, 259200)]
    ['12s', '4m', '2h', '3d']
    """
    if seconds is None:
        return "-"
    whole = max(0, int(seconds))
    for unit_s, unit in ((_DAY_S, "d"), (_HOUR_S, "h"), (_MINUTE_S, "m")):
        if whole >= unit_s:
            return f"{whole // unit_s}{unit}"
    return f"{whole}s"


def format_count(count: int, noun: str) -> str:
    """
    Return a number with its noun.

    >>> format_count(1, "core"), format_count(0, "job"), format_count(1200, "process"), format_count(2, "mini-batch")
    ('1 core', '0 jobs', '1,200 processes', '2 mini-batches')
    """
    return f"{count:,} {name_plural(noun, count)}"


def name_plural(noun: str, count: int) -> str:
    """Return the noun as it stands after the number."""
    if count == 1:
        return noun
    return f"{noun}es" if noun.endswith(("s", "ch")) else f"{noun}s"


def format_ranges(labels: Iterable[str]) -> str:
    """
    Return labels of ranks or nodes in few letters, in their order.

    >>> format_ranges(["0", "1", "2", "5", "ps0"])
    '0-2,5,ps0'
    """
    return ",".join(_join_neighbours(labels))


def name_several(noun: str, labels: Sequence[str | int]) -> str:
    """
    Return ranks or nodes as a sentence names them.

    >>> name_several("node", [1]), name_several("rank", ["2", "5", "0", "ps0", "1"])
    ('node 1', 'ranks 0-2, 5 and ps0')
    """
    texts = [str(label) for label in labels]
    numbers = sorted(filter(is_number, texts), key=int)
    listed = _join_neighbours([*numbers, *(text for text in texts if not is_number(text))])
    if len(listed) > _MOST_LISTED:
        listed[_MOST_LISTED:] = ["others"]
    if len(listed) > 1:
        listed = [", ".join(listed[:-1]), listed[-1]]
    return f"{name_plural(noun, len(labels))} {' and '.join(listed)}"


def _join_neighbours(labels: Iterable[str]) -> list[str]:
    runs: list[tuple[str, str]] = []
    for label in labels:
        if runs and is_number(label) and is_number(runs[-1][1]) and int(label) == int(runs[-1][1]) + 1:
            runs[-1] = (runs[-1][0], label)
        else:
            runs.append((label, label))
    return [first if first == last else f"{first}-{last}" for first, last in runs]


def is_number(label: str) -> bool:
    """Return whether a label is a number that a person may write."""
    return label.isascii() and label.isdigit() and len(label) < 8


def parse_ranges(text: str) -> list[str]:
    """
    Return the labels that such a text names; what is no range stands for itself.

    >>> parse_ranges("0-2, 5,ps0")
    ['0', '1', '2', '5', 'ps0']
    """
    labels: list[str] = []
    for part in text.replace(" ", "").split(","):
        ends = _PART.fullmatch(part)
        if ends is not None and int(ends[1]) <= int(ends[2]) < _LONGEST_RANGE:
            labels += map(str, range(int(ends[1]), int(ends[2]) + 1))
        else:
            labels.append(part)
    return labels
