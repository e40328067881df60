"""Ignore patterns match what pathspec's match, in a time that does not explode."""

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pathspec import GitIgnoreSpec

from drumline.contract.errors import PlanError
from drumline.staging.snapshot.code_files import read_ignore_rules, remove_backtracking

SEGMENTS = st.one_of(
    st.sampled_from(["**", "*", "a", "b", "a[ab]*b*", "*[ab]?*b", "*a.b*\\\\*"]),
    st.text("ab**?.", min_size=1, max_size=6),
    st.lists(st.sampled_from(["*", "***", "[]a]", "[]ab]", "?", "a"]), min_size=1).map("".join),
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
        ("*" * 8 + "x", "a" * 100),
        ("/" + "*" * 30 + "/b", "a" * 250 + "/c"),
        ("**a" * 12 + "x", "a" * 200),
        ("**?***" * 9 + "x", "a" * 200),
        ("a/" + "*" * 40 + "[!b]x", "a/" + "a" * 250),
        ("*[]a]" * 9 + "x", "a" * 200),
        ("***[!]b]" * 9 + "x/", "a" * 200 + "/"),
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


def test_patterns_that_take_long_in_all_are_an_error(tmp_path, monkeypatch):
    (tmp_path / ".gitignore").write_text("x\n")
    ignored = read_ignore_rules(str(tmp_path))
    seconds = iter(range(10_000))
    monkeypatch.setattr(time, "thread_time", lambda: 0.5 * next(seconds))
    for number in range(20):
        assert not ignored(f"file-{number}")
    with pytest.raises(PlanError, match=r"\.gitignore: its patterns took [\d.]+ s for 21 paths"):
        ignored("file-20")


def test_a_line_longer_than_any_path_is_an_error(tmp_path):
    (tmp_path / ".amlignore").write_text("x\n" + "*a" * 500_000)
    with pytest.raises(
        PlanError, match=r"\.amlignore:2: this pattern has 1000000 characters, and may have 4096"
    ):
        read_ignore_rules(str(tmp_path))
