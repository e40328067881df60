"""Bytes to nodes: what YAML means, and what is refused before it can hurt."""

from __future__ import annotations

import time

import pytest
import yaml

from drumline.contract.errors import SpecError
from drumline.spec.reading.source import MAX_DEPTH, MAX_NODES, parse, plain

SCALARS = """
a: yes
b: 012
c: 1:30
d: 2024-01-01
e: 1.10
f: 1e3
g: .inf
h: ~
i: "012"
j: [1, 2, {x: y}]
k: &base {z: 1, w: 2}
l:
  <<: *base
  z: 3
m: !!str 12
n: 1_000
o: 0o14
p: 0x1F
q: |
  two
  lines
r: *base
s: {<<: [*base, {v: 9}]}
t: 'it''s'
u: 2001-12-14t21:59:43.10-05:00
v:
"""


def problem_of(data: bytes | str) -> str:
    with pytest.raises(SpecError) as caught:
        parse(data, "job.yml")
    return str(caught.value)


def test_values_are_those_of_safe_load():
    assert plain(parse(SCALARS, "job.yml")) == yaml.safe_load(SCALARS)


def test_a_key_knows_its_line_and_column():
    key, _ = parse("a: 1\nb:\n  c: 2\n", "job.yml").get("b").entries["c"]
    assert (key.line, key.column, key.width) == (3, 3, 1)


@pytest.mark.parametrize("mark", [b"\xef\xbb\xbf", b""])
def test_a_byte_order_mark_is_no_part_of_the_first_key(mark):
    assert plain(parse(mark + b"a: 1\n", "job.yml")) == {"a": 1}


def test_utf_16_is_read_too():
    assert plain(parse("a: \u00e9\n".encode("utf-16"), "job.yml")) == {"a": "\u00e9"}


def test_windows_line_ends_are_read():
    assert plain(parse(b"a: 1\r\nb: 2\r\n", "job.yml")) == {"a": 1, "b": 2}


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("", "the file is empty"),
        ("# only a comment\n", "the file is empty"),
        ("---\n", "the file is empty"),
        ("- a\n", "got a list"),
        ("hello\n", "got a single value"),
        ("a: 1\nb: 2\na: 3\n", "job.yml:3:1: 'a' is already set on line 1"),
        ("a: *x\n", "has no '&x' before it"),
        ("a: &a [*a]\n", "stands inside itself"),
        ("a: !!python/object/apply:os.system [id]\n", "is not allowed in a job file"),
        ("a: !mine x\n", "the tag '!mine' is not allowed"),
        ("a: !!binary aGk=\n", "is not allowed in a job file"),
        ("a: 1\n---\nb: 2\n", "a job file holds one document"),
        ("? [1]\n: 2\n", "a key must be text"),
        ("? {x: 1}\n: 2\n", "a key must be text"),
        ("a:\n\tb: 1\n", "a tab cannot indent YAML"),
        ('a: "x\n', "a quote or bracket is never closed"),
        ("a: b: c\n", "':' is not allowed here"),
        ("a: 2024-13-45\n", "'2024-13-45' is not a valid timestamp"),
        ("a: \x00\n", "U+0000 is not allowed"),
        ("a: \x1b[31m\n", "U+001B is not allowed"),
        (b"a: \xff\n", "job.yml:1:4: the file is not valid UTF-8"),
        ("a: &b {<<: 3}\n", "'<<' takes a mapping"),
    ],
)
def test_a_bad_file_is_refused_in_plain_words(data, expected):
    assert expected in problem_of(data)


def test_a_quoted_merge_key_is_a_key():
    assert plain(parse("'<<': 1\n", "job.yml")) == {"<<": 1}


BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join(['*' + before] * 9)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("a: " + "[" * 1_000_000, f"more than {MAX_DEPTH} levels"),
        ("{a: " * 50_000, f"more than {MAX_DEPTH} levels"),
        ("\n".join(" " * i + "a:" for i in range(1_000)), f"more than {MAX_DEPTH} levels"),
        ("a: " + "x" * 2_000_000, "larger than 1 MiB"),
        (BOMB, f"more than {MAX_NODES:,} values"),
        ("\n".join(f"k{i}: 1" for i in range(20_000)), f"more than {MAX_NODES:,} values"),
    ],
    ids=["flow", "flow mappings", "block", "large", "aliases", "keys"],
)
def test_a_bomb_is_refused_quickly(data, expected):
    began = time.process_time()
    message = problem_of(data)
    assert expected in message
    # Unlike the time on the wall, this is about the same on a machine that is busy.
    assert time.process_time() - began < 5


def test_the_slow_parser_gives_the_same_tree(monkeypatch):
    fast = plain(parse(SCALARS, "job.yml"))
    monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
    assert fast == plain(parse(SCALARS, "job.yml"))
