"""
Ignore patterns as regular expressions that do not backtrack.

``*a*a*a*b`` as pathspec translates it takes a time that grows with a power of the name's length: one pattern and one
long name hold up a submission for ever. In a glob the leftmost match of what is between two stars is as good as any
other, so each star but the last of a segment may be decided once, and so may each ``**`` but the last. A run of stars
is one.
Source: https://research.swtch.com/glob
"""

from __future__ import annotations

import re

_CLASS = r"\[\^?\]?(?:\\.|[^\]\\])*\]"
_ONE = rf"(?:\\.|(?!\[\^/\][*+]){_CLASS}|[^\[\](){{}}*+?/\\|^$.])"
"""What matches exactly one character that is no slash."""

_RUN = re.compile(r"(?:\[\^/\]\*){2,}")
_STAR = re.compile(rf"\[\^/\]\*((?:{_ONE})+)(?=\[\^/\]\*)")
_STARS = re.compile(r"\(\?:/\.\+\)\?((?:(?!\(\?:/\.\+\)\?|\(\?P<).)+)(?=\(\?:/\.\+\)\?)")
_CLASSES = re.compile(rf"\\.|{_CLASS}")


def remove_backtracking(regex: str) -> str:
    """
    Return a regular expression that matches the same paths as one of pathspec's.

    >>> remove_backtracking("^(?:.+/)?[^/]*a[^/]*b(?:(?P<ps_d>/)|$)")
    '^(?:.+/)?(?>[^/]*?a)[^/]*b(?:(?P<ps_d>/)|$)'
    """
    once = _STAR.sub(r"(?>[^/]*?\1)", _RUN.sub("[^/]*", regex))
    once = _CLASSES.sub(_keep_to_segment, once)
    return _STARS.sub(r"(?>(?:/.+?)??\1(?=/|$))", once)


def _keep_to_segment(found: re.Match[str]) -> str:
    """Have a class such as [!a] match no slash, as git has it."""
    return "(?!/)" + found[0] if found[0].startswith("[^") and found[0] != "[^/]" else found[0]
