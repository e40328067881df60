"""Long output goes to the user's pager, on a terminal alone."""

import os
import pty
import subprocess
import sys

import pytest

from drumline.cli import screen

LINES = "".join(f"line {number}\n" for number in range(50))
PROGRAM = "import sys; from drumline.cli.screen import print_text; print_text(sys.argv[1])"


@pytest.mark.parametrize(
    ("variables", "command"),
    [
        ({"DRUMLINE_PAGER": "more -s", "PAGER": "less"}, "more -s"),
        ({"PAGER": "most"}, "most"),
        ({"PAGER": "cat"}, ""),
        ({"DRUMLINE_PAGER": "", "PAGER": "less"}, ""),
    ],
)
def test_which_pager(monkeypatch, variables, command):
    for name in ("DRUMLINE_PAGER", "PAGER"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert screen.find_pager() == command


def on_terminal(text, **env):
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, text],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", "LINES": "24", "COLUMNS": "80", **env},
    )
    os.close(theirs)
    got = b""
    try:
        while data := os.read(ours, 1 << 16):
            got += data
    except OSError:  # nobody has it open any more
        pass
    os.close(ours)
    assert process.wait(60) == 0
    return got.decode().replace("\r\n", "\n")


@pytest.mark.parametrize(
    ("text", "command", "shown"),
    [
        (LINES, "sed 's/^/> /'", LINES.replace("line", "> line")),
        (LINES, "head -n 1; exit 3", "line 0\n"),
        (LINES, "no-such-pager 2>/dev/null", LINES),
        ("short\n", "sed 's/^/> /'", "short\n"),
    ],
)
def test_what_is_longer_than_the_screen_goes_through_it(text, command, shown):
    assert on_terminal(text, DRUMLINE_PAGER=command) == shown


def test_less_leaves_the_screen_when_all_fits_on_it():
    assert on_terminal("short\n", DRUMLINE_PAGER="false") == "short\n"
    assert screen._LESS == {"LESS": "FRX"}


def test_a_pipe_has_no_pager(monkeypatch, capsys):
    monkeypatch.setenv("DRUMLINE_PAGER", "false")
    screen.print_text(LINES)
    assert capsys.readouterr().out == LINES
