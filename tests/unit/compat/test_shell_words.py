"""What the shell makes of v1's arguments."""

import json
import shlex
import subprocess
import sys

import pytest

from drumline.compat.script_run_config import line, word
from drumline.spec.placeholders import expand

SHOW = f"{shlex.quote(sys.executable)} -c 'import json, sys; print(json.dumps(sys.argv[1:]))' "


def seen(text, **env):
    """The arguments that a program gets, the way that a job's command goes."""
    command = expand(SHOW + text, {"inputs.x": "WRONG"})
    done = subprocess.run(["bash", "-c", command], env=env, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    "text",
    ["plain", "", "a b", "it's", 'a "b"', "`id`", "a\\b", "*", "a;b", "ä\n\t!", "{inputs.x}", "${{inputs.x}}",
     "$[[a ${{inputs.x}}]]", "{'a': [[1, 2]]}", "$(id)", "100$", "$5", "#no"],
)  # fmt: skip
def test_an_argument_arrives_as_it_is(text):
    assert seen(word(text)) == [text]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$RANK", "1"),
        ("--rank=${RANK}", "--rank=1"),
        ('$RANK "`$(id)`" {inputs.x} $[[ \\', '1 "`$(id)`" {inputs.x} $[[ \\'),
        ("$NOT_SET", ""),
    ],
)
def test_a_variable_is_the_ranks(text, expected):
    assert seen(word(text), RANK="1") == [expected]


def test_operators_of_a_list_are_the_shells():
    command = line(["echo", "a b", "&&", "echo", "$X", "2>&1", "|", "tr", "1", "2"])
    done = subprocess.run(["bash", "-c", command], env={"X": "1"}, capture_output=True, text=True)
    assert done.stdout == "a b\n2\n"
