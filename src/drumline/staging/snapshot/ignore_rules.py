"""The files that an ignore file at the root of the code leaves out."""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from typing import TYPE_CHECKING

from drumline.contract.errors import PlanError
from drumline.contract.words import format_seconds

if TYPE_CHECKING:
    from collections.abc import Callable


# Ignore patterns as regular expressions that do not backtrack.
#
# ``*a*a*a*b`` as pathspec translates it takes a time that grows with a power of the name's length: one pattern and one
# long name hold up a submission for ever. In a glob the leftmost match of what is between two stars is as good as any
# other, so each star but the last of a segment may be decided once, and so may each ``**`` but the last. A run of stars
# is one.
# Source: https://research.swtch.com/glob

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


NAMES = (".amlignore", ".gitignore")
"""The first that is there counts. Source: https://learn.microsoft.com/azure/machine-learning/how-to-save-write-experiment-files"""

_MOST_BYTES = 1 << 20
_LONGEST_LINE = 4096
"""As long as a path. pathspec takes minutes to read some that have a million characters."""

_MOST_S = 10.0
_MOST_S_A_PATH = 0.01
"""
Of the processor for the patterns of a file, in all and more for each path: thousands of plain ones take less than a
tenth of it.
"""


def read_ignore_rules(root: str) -> Callable[[str], bool]:
    """
    Return a function that says whether a relative path is to be left out; a folder's path ends with a slash.

    Below a folder that is left out nothing is asked for any more. Raises PlanError with file and line of a pattern that
    is none, and OSError; the function raises PlanError when its patterns take too long.
    """
    for name in NAMES:
        path = os.path.join(root, name)
        if os.path.isfile(path):
            return _limit_time(path, _parse_rules(path))
    return lambda _: False


def _limit_time(path: str, is_ignored: Callable[[str], bool]) -> Callable[[str], bool]:
    spent_s, count = 0.0, 0

    def ask(relative: str) -> bool:
        nonlocal spent_s, count
        before = time.thread_time()
        answer = is_ignored(relative)
        count += 1
        spent_s += time.thread_time() - before
        if spent_s > _MOST_S + count * _MOST_S_A_PATH:
            what = f"{path}: its patterns took {format_seconds(spent_s)} for {count} paths"
            raise PlanError(what, "use fewer patterns, with fewer stars")
        return answer

    return ask


def _parse_rules(path: str) -> Callable[[str], bool]:
    import re

    from pathspec import GitIgnoreSpec

    lines = _read(path).splitlines()
    for number, line in enumerate(lines, 1):
        if len(line) > _LONGEST_LINE:
            raise PlanError(
                f"{path}:{number}: this pattern has {len(line)} characters, and may have {_LONGEST_LINE}"
            )
    try:
        rules = GitIgnoreSpec.from_lines(lines)
        for pattern in rules.patterns:
            regex = getattr(pattern, "regex", None)
            if regex is not None:
                pattern.regex = re.compile(remove_backtracking(regex.pattern), regex.flags)
    except (ValueError, re.error) as error:
        raise PlanError(f"{path}:{_line_of(lines)}: not a pattern of an ignore file") from error
    if not any(line.startswith("!") for line in lines):
        return rules.match_file
    # As in Azure, a file may be taken again from a folder that is ignored, so all folders are looked into.
    return lambda relative: not relative.endswith("/") and rules.match_file(relative)


def _read(path: str) -> str:
    # It may be a link, and a pipe may have taken its place.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, encoding="utf-8", errors="replace") as file:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            raise OSError(errno.EINVAL, "not a plain file", path)
        if facts.st_size > _MOST_BYTES:
            raise OSError(errno.EFBIG, "too large for an ignore file", path)
        return file.read(_MOST_BYTES)


def _line_of(lines: list[str]) -> int:
    """Return the number of the first line that is not a pattern, counted from 1."""
    import re

    from pathspec import GitIgnoreSpec

    for number, line in enumerate(lines, 1):
        try:
            GitIgnoreSpec.from_lines([line])
        except (ValueError, re.error):
            return number
    return 1
