"""Numbers of bytes as people write and read them."""

from __future__ import annotations

import re

from drumline.contract.errors import UsageError

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "p": 10**15}
_BINARY = {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40, "pi": 2**50}


def parse_size(text: str, what: str) -> int:
    """
    Return a number of bytes. Raises UsageError that says that ``what`` is wrong.

    >>> parse_size("200GB", "--to"), parse_size("1.5 GiB", "--to")
    (200000000000, 1610612736)
    """
    found = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,6})?)\s*([kmgtp]?i?)b?", text.strip().lower())
    unit = {**_UNITS, **_BINARY}.get(found[2]) if found else None
    if found is None or unit is None:
        raise UsageError(f"{what}: {text!r} is not a size", "a number with a unit, such as 200GB or 1.5TiB")
    return int(float(found[1]) * unit)


def format_size(count: int) -> str:
    """
    Return a number of bytes in its unit, with two or three digits.

    >>> format_size(999), format_size(1_500_000), format_size(200_000_000_000)
    ('999 B', '1.5 MB', '200 GB')
    """
    size, unit = float(count), "B"
    for larger in ("kB", "MB", "GB", "TB", "PB"):
        if size < 999.5:
            break
        size, unit = size / 1000, larger
    digits = f"{size:.0f}" if unit == "B" or size >= 99.95 else f"{size:.1f}".removesuffix(".0")
    return f"{digits} {unit}"
