"""What a job has of the environment of a notebook's kernel."""

import json
import os
import subprocess
import sys

from drumline.linux.notebook_environment import restore_environment

KERNEL = """
import os, subprocess, sys
os.environ.update({"PAGER": "cat", "FORCE_COLOR": "1", "TERM": "xterm-color", "MINE": "yes"})
asks = "import json; from drumline.linux.notebook_environment import restore_environment as r; print(json.dumps(r()))"
subprocess.run(["sh", "-c", '"$0" -c "$1"; true', sys.executable, asks], check=True)
"""


def test_a_command_of_a_cell_has_the_environment_with_which_the_kernel_began():
    env = {
        **os.environ,
        "PAGER": "more",
        "TERM": "vt100",
        "JPY_PARENT_PID": str(os.getpid()),
        "JPY_SESSION_NAME": "x",
    }
    env.pop("FORCE_COLOR", None)
    done = subprocess.run([sys.executable, "-c", KERNEL], env=env, capture_output=True, text=True, check=True)
    seen = json.loads(done.stdout)
    assert {name for name in seen if name.startswith("JPY_")} == set()
    assert (seen["PAGER"], seen["TERM"], seen["MINE"]) == ("more", "vt100", "yes")
    assert "FORCE_COLOR" not in seen


def test_a_command_whose_kernel_is_gone_has_nothing_that_a_kernel_sets(monkeypatch):
    monkeypatch.setenv("JPY_PARENT_PID", "4194305")
    monkeypatch.setenv("PAGER", "cat")
    monkeypatch.setenv("FORCE_COLOR", "3")
    seen = restore_environment()
    assert "PAGER" not in seen
    assert "JPY_PARENT_PID" not in seen
    assert seen["FORCE_COLOR"] == "3"
