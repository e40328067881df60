"""When our words are coloured, and that nothing else of the output changes with it."""

import io

import pytest

from drumline.cli import colour, main
from drumline.contract.errors import UsageError

VARIABLES = ("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE", "CLICOLOR")


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    yield
    colour.choose("auto")


@pytest.mark.parametrize(
    ("stream", "variables", "choice", "on"),
    [
        (Terminal(), {}, "auto", True),
        (io.StringIO(), {}, "auto", False),
        (Terminal(), {"NO_COLOR": "1"}, "auto", False),
        (Terminal(), {"NO_COLOR": ""}, "auto", True),
        (Terminal(), {"TERM": "dumb"}, "auto", False),
        (Terminal(), {"CLICOLOR": "0"}, "auto", False),
        (io.StringIO(), {"FORCE_COLOR": "1"}, "auto", True),
        (io.StringIO(), {"CLICOLOR_FORCE": "1"}, "auto", True),
        (io.StringIO(), {"FORCE_COLOR": "0"}, "auto", False),
        (io.StringIO(), {"FORCE_COLOR": "1", "NO_COLOR": "1"}, "auto", False),
        (io.StringIO(), {"NO_COLOR": "1"}, "always", True),
        (Terminal(), {"FORCE_COLOR": "1"}, "never", False),
    ],
)
def test_who_decides(monkeypatch, stream, variables, choice, on):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    colour.choose(choice)
    assert colour.is_on(stream) == on
    assert colour.paint("x", "red", stream) == ("\x1b[31mx\x1b[0m" if on else "x")
    assert colour.paint("x", None, stream) == "x"


def test_another_word_is_refused():
    with pytest.raises(UsageError, match="--color must be one of auto, always, never; got 'blue'"):
        colour.choose("blue")


@pytest.mark.parametrize(
    ("argv", "left", "choice"),
    [
        (["job", "list", "--color", "always"], ["job", "list"], "always"),
        (["--color=never", "job", "list"], ["job", "list"], "never"),
        (["run", "--", "ls", "--color", "always"], ["run", "--", "ls", "--color", "always"], "auto"),
        (["run", "ls", "--color=always"], ["run", "ls", "--color=always"], "auto"),
        (["--color", "never", "run", "ls", "--color=always"], ["run", "ls", "--color=always"], "never"),
    ],
)
def test_the_option_is_taken_from_everywhere_but_a_program(argv, left, choice):
    main._take_color(argv)
    assert argv == left
    assert colour._choice.get() == choice


@pytest.mark.parametrize("argv", [["job", "list", "--color"], ["--color", "blue", "job", "list"]])
def test_without_a_word_it_is_a_mistake(capsys, argv):
    assert main.main(argv) == 2
    assert "--color must be one of" in capsys.readouterr().err
