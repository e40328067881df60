"""Paths with any characters, in every place of a command."""

import subprocess

import pytest

from drumline.plan import shell

PATHS = ["a b", "a'b", 'a"b', "a$HOME", "a`id`", "a\\b", "a;echo foo", "a\nb", "-rf x", "*", "é ü", "a#b c"]


def words_of(command, path):
    """What a shell makes of the arguments of ``show``, with the path in a variable."""
    script = f"show() {{ printf '%s\\0' \"$@\"; }}\n{command}"
    done = subprocess.run(["/bin/bash", "-c", script], capture_output=True, check=True, env={"IN": path})
    return done.stdout.decode().split("\0")[:-1]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("command", "around"),
    [
        ("show {}", ("", "")),
        ("show x={}/y", ("x=", "/y")),
        ('show "{}"', ("", "")),
        ('show "x {} \\" y"', ("x ", ' " y')),
        ("show '{}'", ("", "")),
        ("show 'x {} y'", ("x ", " y")),
        ("show \\'{}", ("'", "")),
        ('true "it\'s"; show {}', ("", "")),
        ("# don't\nshow {}", ("", "")),
        ("true; # it's\nshow {}", ("", "")),
        ("show a#'b' >/dev/null; show {}", ("", "")),
        ('show "$(printf %s. "{}")"', ("", ".")),
        ("show \"$(printf %s. '{}')\"", ("", ".")),
        ('show "$(printf %s. {})"', ("", ".")),
        ('show "$(true)"{}', ("", "")),
    ],
)
def test_a_path_is_one_word_wherever_it_stands(path, command, around):
    text = shell.put(command.format(shell.mark(0)), ["IN"])
    assert words_of(text, path) == [around[0] + path + around[1]]


def test_a_path_is_never_read_as_shell(tmp_path):
    """Not even where its place was misjudged, as in a here-document."""
    command = f"cat <<'X'\n{shell.mark(0)}\nX\ncat <<X\n{shell.mark(0)}\nX\n"
    script = shell.put(command, ["IN"])
    subprocess.run(
        ["/bin/bash", "-c", script],
        check=True,
        cwd=tmp_path,
        env={"IN": "`touch a`$(touch b);touch c\ntouch d"},
    )
    assert list(tmp_path.iterdir()) == []


def test_several_paths_keep_their_places():
    assert shell.put(f"a {shell.mark(1)} '{shell.mark(0)}'", ["X", "Y"]) == "a \"${Y}\" ''\"${X}\"''"


@pytest.mark.parametrize(
    ("path", "safe"), [("/data/set-1.csv", True), ("/a b", False), ("/a$b", False), ("/é", False)]
)
def test_only_unsafe_paths_are_quoted_at_all(path, safe):
    assert shell.is_safe(path) is safe
