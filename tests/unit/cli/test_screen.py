"""Text of jobs in the columns of a terminal, whatever it holds."""

import pytest

from drumline.cli import screen

HOSTILE = {
    "plain": "digits-ddp",
    "wide": "鼓线" * 30,
    "emoji": "🥁" * 40,
    "combining": "e" + "\u0301" * 500,
    "escape": "a\x1b]0;title\x07\x1b[2Jb\nc\td",
    "bidi": "a\u202eb",
    "surrogate": "a\udc80b",
    "separator": "a\u2028b\x85c",
    "joined": "👩\u200d💻" * 20,
    "long": "x" * 3000,
    "empty": "",
}


@pytest.mark.parametrize("width", [20, 60, 80, 100])
@pytest.mark.parametrize("name", HOSTILE)
def test_a_table_is_never_wider_than_its_room(name, width):
    text = screen.to_line(HOSTILE[name])
    assert text.isprintable() or "\u200d" in text
    rows = [
        ("NAME", "N", "METRIC", "STATUS"),
        (text, "4", "loss 0.25", f"Failed: {text}"),
        ("a", "10", "-", "Queued"),
    ]
    for cells in screen.fit_table(rows, width, {1}):
        assert screen.measure(screen.join(cells)) <= width


@pytest.mark.parametrize("width", [1, 3, 10, 40])
@pytest.mark.parametrize("name", HOSTILE)
def test_a_cell_is_cut_to_its_room_and_a_line_is_wrapped_in_it(name, width):
    text = screen.to_line(HOSTILE[name])
    assert screen.measure(screen.cut(text, width)) <= width
    if width > 1:
        assert all(screen.measure(line) <= width for line in screen.wrap(text, width))
    assert "".join(screen.wrap(text, width)).replace(" ", "") == text.replace(" ", "")


def test_columns_give_up_room_in_the_order_given():
    rows = [("name" * 5, "metric" * 3, "reason" * 10)]
    (cells,) = screen.fit_table(rows, 60, order=((2, 10), (1, 6), (0, 5)))
    assert [screen.measure(cell) for cell in cells] == [20, 18, 18]
    (cells,) = screen.fit_table(rows, 42, order=((2, 10), (1, 6), (0, 5)))
    assert [screen.measure(cell) for cell in cells] == [20, 8, 10]


def test_numbers_stand_at_the_right():
    rows = [("a", "1"), ("b", "10")]
    assert [screen.join(cells) for cells in screen.fit_table(rows, None, {1})] == ["a   1", "b  10"]


def test_letters_that_the_terminal_lacks_are_numbers(monkeypatch):
    monkeypatch.setattr("sys.stdout", type("Ascii", (), {"encoding": "ascii"})())
    assert screen.to_line("naïve") == "na\\xefve"
    assert screen.cut("abcdef", 5) == "ab..."


@pytest.mark.parametrize(
    ("text", "columns_taken"),
    [("abc", 3), ("鼓线", 4), ("🥁", 2), ("e\u0301", 1), ("❤\ufe0f", 2), ("a\u200db", 2)],
)
def test_wide_letters_take_two_columns_and_marks_none(text, columns_taken):
    assert screen.measure(text) == columns_taken


def test_a_table_without_columns_is_empty():
    assert screen.fit_table([()], 60) == [[]]
    assert screen.fit_table([], 60) == []
