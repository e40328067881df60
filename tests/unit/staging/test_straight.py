"""Ignore patterns match what pathspec's match, in a time that does not explode."""

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pathspec import GitIgnoreSpec

from drumline.staging.snapshot.ignore_regex import remove_backtracking
from drumline.staging.snapshot.ignore_rules import read_ignore_rules

SEGMENTS = st.one_of(
    st.sampled_from(["**", "*", "a", "b", "a[ab]*b*", "*[ab]?*b", "*a.b*\\\\*"]),
    st.text("ab**?.", min_size=1, max_size=6),
)
PATTERNS = st.builds(
    lambda start, segments, end: start + "/".join(segments) + end,
    st.sampled_from(["", "/"]),
    st.lists(SEGMENTS, min_size=1, max_size=4),
    st.sampled_from(["", "/"]),
)
PATHS = st.builds(
    lambda names, end: "/".join(names) + end,
    st.lists(st.text("ab.", min_size=1, max_size=5), min_size=1, max_size=5),
    st.sampled_from(["", "/"]),
)


def regex_of(pattern):
    """As pathspec has it; None for a pattern that is none."""
    try:
        return GitIgnoreSpec.from_lines([pattern]).patterns[0].regex
    except (ValueError, re.error):
        return None


@settings(max_examples=400)
@given(PATTERNS, st.lists(PATHS, min_size=5, max_size=20))
def test_the_same_paths_match(pattern, paths):
    before = regex_of(pattern)
    if before is None:
        return
    after = re.compile(remove_backtracking(before.pattern), before.flags)
    for path in paths:
        one, other = before.match(path), after.match(path)
        assert (one and one.groupdict()) == (other and other.groupdict()), path


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("*a" * 7 + "*b", "a" * 200),
        ("*?" * 7 + "*b", "a" * 200),
        ("*[!b]" * 7 + "*b", "a" * 200),
        ("/".join(["**", "a"] * 8) + "/b", "/".join("a" * 100)),
        ("**/" + "*a" * 7 + "*b/**/c", "/".join(["a" * 50] * 4)),
    ],
)
def test_no_pattern_holds_up_a_submission(tmp_path, pattern, path):
    (tmp_path / ".amlignore").write_text(pattern + "\n")
    ignored = read_ignore_rules(str(tmp_path))
    before = time.process_time()
    assert not ignored(path)
    assert time.process_time() - before < 1.0
