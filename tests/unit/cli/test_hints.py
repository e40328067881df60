"""The word that a mistaken command line probably meant."""

import shlex

import pytest

from drumline.cli.arguments import FORMATS, Parser
from drumline.cli.main import main
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


@pytest.mark.parametrize(
    ("line", "error", "hint"),
    [
        (
            "job create job.yml",
            "job.yml needs -f before it",
            "did you mean 'drumline job create -f job.yml'?",
        ),
        (
            "job create -s job.yml --set environment_variables.TOKEN=hush",
            "job.yml needs -f before it",
            "did you mean 'drumline job create -f job.yml ...'?",
        ),
        ("job validate e.yaml", "e.yaml needs -f before it", None),
        (
            "job exec calm_drum ls -l 'a b'",
            "unrecognized arguments: ls -l a b",
            "the command stands after --: drumline job exec calm_drum -- ls -l 'a b'",
        ),
        (
            "job exec calm_drum --rank 1 hostname",
            "unrecognized arguments: hostname",
            "the command stands after --: drumline job exec calm_drum --rank 1 -- hostname",
        ),
        ("job exec calm_drum --rnk 1", "unrecognized arguments: --rnk 1", "did you mean '--rank'?"),
        (
            "job shwo calm_drum",
            "there is no verb 'shwo' of drumline job",
            "did you mean 'drumline job show'? drumline job --help lists the verbs",
        ),
        (
            "help job prune",
            "there is no verb 'prune' of drumline job",
            "did you mean 'drumline prune'? drumline job --help lists the verbs",
        ),
        (
            "job df",
            "there is no verb 'df' of drumline job",
            "did you mean 'drumline df'? drumline job --help lists the verbs",
        ),
        ("pipeline", "there is no command 'pipeline'", "did you mean 'drumline job --help'?"),
        (
            "pipeline p.yml",
            "there is no command 'pipeline'",
            "did you mean 'drumline job create -f p.yml'?",
        ),
        (
            "pipeline run -f p.yml",
            "there is no command 'pipeline'",
            "did you mean 'drumline job create -f p.yml'?",
        ),
        ("job xyz", "there is no verb 'xyz' of drumline job", "drumline job --help lists the verbs"),
        (
            "compute resize c",
            "there is no verb 'resize' of drumline compute",
            "machines are not started or stopped by Drumline; drumline compute detach only forgets one. "
            "drumline compute --help lists the verbs",
        ),
    ],
)
def test_a_word_in_the_wrong_place_gets_the_line_that_was_meant(line, error, hint, capsys):
    assert main(shlex.split(line)) == 2
    said = capsys.readouterr().err
    assert said.splitlines()[0] == f"error: {error}"
    assert hint is None or said.splitlines()[1] == f"hint: {hint}"
    assert "hush" not in said
