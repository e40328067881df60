"""Programs that the system does not start, and why."""

import os
from pathlib import Path

import pytest

from drumline.node.agent import processes

ENV = {"PATH": os.environ["PATH"]}


def start(tmp_path, *argv, env=None, cwd=""):
    process = processes.start_process(
        argv, env={**ENV, **(env or {})}, cwd=cwd or str(tmp_path), cores=(), log=str(tmp_path / "log")
    )
    os.waitpid(process.pid, 0)
    return process.error()


def test_a_variable_or_command_that_is_too_long_is_named(tmp_path):
    said = start(tmp_path, "bash", "-c", "true", env={"FILES": "a.png " * 33_000})
    assert said == (
        "could not start 'bash': Argument list too long: the variable FILES has 193 KiB, the most for one is 128 KiB"
    )
    assert "the command has 195 KiB" in start(tmp_path, "bash", "-c", "x" * 200_000)
    many = {f"V{number}": "x" * 100_000 for number in range(200)}
    assert "MiB together; the longest is the variable V" in start(tmp_path, "bash", "-c", "true", env=many)


@pytest.mark.parametrize(
    ("first", "said"),
    [
        ("#!/bin/bash\r\n", "No such file or directory; the script has Windows line ends (CRLF)"),
        ("#!/no/such/shell\n", "No such file or directory: its interpreter '/no/such/shell'"),
    ],
)
def test_a_script_whose_interpreter_is_not_there(tmp_path, first, said):
    script = Path(tmp_path, "start.sh")
    script.write_bytes(first.encode())
    script.chmod(0o755)
    assert said in start(tmp_path, "./start.sh")
    assert start(tmp_path, "./none.sh") == "could not start './none.sh': No such file or directory"


def test_whatever_keeps_a_program_from_starting_is_told(tmp_path):
    assert "could not start 'true': TypeError(" in start(tmp_path, "true", env={"A": 1})
    assert "could not start 'true': embedded null byte" in start(tmp_path, "true", env={"A": "\0"})
    odd = os.fsdecode(b"/not/there/\xff")
    assert "No such file or directory: /not/there/\\udcff" in start(tmp_path, "true", cwd=odd)
