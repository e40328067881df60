"""Warnings of a pipeline: what several of its steps say alike is said once, with their names."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_STEP_PREFIX = re.compile(r"((?:jobs\.\w+: )+)(.*)", re.DOTALL)
_MOST_NAMED = 4


def group_warnings(warnings: Iterable[str]) -> list[str]:
    """
    Group equal warnings of several steps, in the order in which each was said first.

    >>> group_warnings(["jobs.a: x", "other", "jobs.b: x", "jobs.c: jobs.d: x", "jobs.a: y"])
    ['jobs.a, jobs.b, jobs.c.jobs.d: x', 'other', 'jobs.a: y']
    """
    steps: dict[str, list[str]] = {}
    for warning in dict.fromkeys(warnings):
        found = _STEP_PREFIX.fullmatch(warning)
        prefix, text = found.groups() if found else ("", warning)
        steps.setdefault(text, []).append(prefix)
    return [_format_group(text, prefixes) for text, prefixes in steps.items()]


def _format_group(text: str, prefixes: list[str]) -> str:
    if len(prefixes) == 1:
        return prefixes[0] + text
    names = [prefix.removesuffix(": ").replace(": ", ".") or "the job" for prefix in prefixes]
    if len(names) > _MOST_NAMED + 1:
        names = [*names[:_MOST_NAMED], f"{len(names) - _MOST_NAMED} more steps"]
        return f"{', '.join(names[:-1])} and {names[-1]}: {text}"
    return f"{', '.join(names)}: {text}"
