"""Values on their way from the command to the ranks."""

import pytest

from drumline.contract import secrets

VALUES = {"TOKEN": "hf_" + "ä" * 300, "ODD": 'a "quoted" \\ value\n\udcff'}


def test_a_text_stands_for_values_and_an_empty_one_for_none():
    assert secrets.from_text(secrets.to_text(VALUES)) == VALUES
    assert secrets.to_text({}) == ""
    assert secrets.from_text("") == {}


@pytest.mark.parametrize("text", ["x", "[1]", "{", "3", "[" * 10000])
def test_a_damaged_text_stands_for_nothing(text):
    assert secrets.from_text(text) == {}


def test_each_half_says_nothing_but_a_rough_length():
    text = secrets.to_text(VALUES)
    one, other = secrets.split(text)
    assert secrets.from_text(secrets.join(one, other)) == VALUES
    assert secrets.split(text) != (one, other)
    assert len(secrets.split(secrets.to_text({"A": "1"}))[1]) == len(
        secrets.split(secrets.to_text({"A": "1" * 99}))[1]
    )
    for half in (one, other):
        assert text.encode()[:20].hex() not in half


def test_halves_that_are_not_of_each_other_are_nothing():
    one, other = secrets.split(secrets.to_text(VALUES))
    for pair in (
        (one, other[2:]),
        ("", other),
        (one, "no hex"),
        (one, secrets.split(secrets.to_text(VALUES))[1]),
    ):
        assert secrets.from_text(secrets.join(*pair)) == {}


def test_a_job_that_is_submitted_once_more_has_a_pad_for_each_time():
    texts = [secrets.to_text({"TOKEN": f"value {number}"}) for number in range(3)]
    pads, halves = "", []
    for text in texts:
        pad, half = secrets.split(text)
        pads = secrets.add_pad(pads, pad)
        halves.append(half)
    assert [secrets.join(pads, half) for half in halves] == texts


def test_pads_do_not_grow_without_end():
    pads = ""
    for _ in range(20):
        pad, half = secrets.split(secrets.to_text({"A": "x" * (secrets.MOST_BYTES - 10)}))
        pads = secrets.add_pad(pads, pad)
    assert len(pads) <= secrets.MOST_PAD_CHARACTERS
    assert secrets.from_text(secrets.join(pads, half))["A"].startswith("x")
