"""The word that a mistaken command line probably meant."""

import pytest

from drumline.cli.arguments import FORMATS, Parser
from drumline.contract.errors import UsageError


def hint_of(*arguments):
    parser = Parser(prog="tool")
    parser.add_argument("--set", nargs="+")
    parser.add_argument("--count", type=int)
    parser.add_argument("--warm", choices=("auto", "on", "off"))
    parser.add_argument("-o", "--output", choices=FORMATS)
    with pytest.raises(UsageError) as raised:
        parser.parse_args(list(arguments))
    return raised.value.hint


@pytest.mark.parametrize(
    "arguments", [("--set",), ("--warm",), ("-o",), ("--count", "one"), ("--count",), ("-o", "choose")]
)
def test_no_word_of_the_message_itself_is_taken_for_a_mistake(arguments):
    assert hint_of(*arguments) == "tool --help"


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [(("--warm", "onn"), "on"), (("-o", "tabel"), "table"), (("--coutn", "1"), "--count")],
)
def test_a_mistaken_word_is_mended(arguments, meant):
    assert hint_of(*arguments) == f"did you mean {meant!r}?"
