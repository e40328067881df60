"""A program that runs as a rank would, below the hook alone."""

import os
import subprocess
import sys
import tempfile
import textwrap
import time
from typing import Any

import pytest

from drumline.node import hook_folder
from drumline.node.diagnostics import failures


@pytest.fixture
def rank(tmp_path):
    """Run a program as a rank's agent would; its process, and what the agent makes of its failure."""

    def run(text, *arguments, env=None, options=(), command=None):
        (tmp_path / "train.py").write_text(textwrap.dedent(text))
        notes = str(tmp_path / "notes.jsonl")
        command = command or [sys.executable, *options, "train.py", *arguments]
        # A killed program leaves its temporary files. tmp_path is too long for the path of a socket.
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
            variables = {**os.environ, "TMPDIR": scratch, **(env or {})}
            hook_folder.add_hook(variables, notes)
            since = time.monotonic()
            done: Any = subprocess.Popen(
                command,
                cwd=tmp_path,
                env=variables,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            done.out = done.communicate()[0]
        done.told = failures.read_failure(
            notes, done.pid, done.returncode, str(tmp_path), since, time.monotonic()
        )
        done.failure = done.told.failure
        return done

    return run
