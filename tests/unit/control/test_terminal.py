import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumline.control.terminal import clean, decode


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ü 漢 🥁", "plain ü 漢 🥁"),
        ("a\tb\nc", "a\tb\nc"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b[2J\x1b[Hx", "x"),
        ("\x1b]0;title\x07x", "x"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b]52;c;never ends", ""),
        ("\x1bPq#0\x1b\\x", "x"),
        ("\x1b(Bx", "x"),
        ("\x1bcx", "x"),
        ("\x9b2Jx", "x"),
        ("a\x00\x07\x08b\x7f", "ab"),
        ("a\rb", "ab"),
        ("\u202ea\u2069", "<U+202E>a<U+2069>"),
        ("\x1b", ""),
        ("\x1b[", ""),
    ],
)
def test_what_moves_or_writes_elsewhere_is_left_out(text, shown):
    assert shown == clean(text)


def test_colours_stay_where_they_may_and_nothing_else_does():
    assert clean("\x1b[1;31mred\x1b[0m\x1b[2J", colours=True) == "\x1b[1;31mred\x1b[0m"


@given(st.text(st.characters() | st.sampled_from("\x1b[]\x9b\x07;0m\\")))
def test_no_text_leaves_a_control_character_but_tab_and_newline(text):
    left = {char for char in clean(text) if ord(char) < 32 or 127 <= ord(char) < 160}
    assert left <= {"\t", "\n"}


@given(st.text(st.characters() | st.sampled_from("\x1b[]\x9b\x07;0m\\")))
def test_to_clean_twice_changes_nothing(text):
    assert clean(text) == clean(clean(text))


def test_bytes_that_are_no_text_show_as_such():
    assert decode(b"caf\xe9") == "caf\ufffd"
