"""The waits of DeepSpeed's autotuner, in a package that has its names."""

import os
import subprocess
import sys

import pytest

from drumline.node import hook_folder

ASK = "from deepspeed.autotuning import scheduler; print(scheduler.TIMEOUT, scheduler.wait())"


@pytest.fixture
def ask(tmp_path):
    """What a Python says that finds our hook, and then a scheduler with this text."""

    def run(text, before="", **variables):
        folder = tmp_path / "deepspeed" / "autotuning"
        folder.mkdir(parents=True, exist_ok=True)
        for name in (folder.parent, folder):
            (name / "__init__.py").touch()
        (folder / "scheduler.py").write_text(text)
        path = os.pathsep.join((hook_folder.HOOK, str(tmp_path)))
        done = subprocess.run(
            [sys.executable, "-c", before + ASK],
            env={"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", **variables},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.split()

    return run


def test_the_waits_are_short_below_the_stand_in_alone(ask):
    text = "TIMEOUT = 5\ndef wait(): return TIMEOUT\n"
    assert ask(text) == ["5", "5"]
    assert ask(text, DRUMLINE_AUTOTUNING="1") == ["0.1", "0.1"]


def test_a_program_may_look_for_the_module_before_it_imports_it(ask):
    before = "import importlib.util, sys; importlib.util.find_spec('deepspeed.autotuning.scheduler'); "
    assert ask("TIMEOUT = 5\ndef wait(): return TIMEOUT\n", before, DRUMLINE_AUTOTUNING="1") == ["0.1", "0.1"]


def test_a_scheduler_that_is_otherwise_is_left_alone(ask):
    text = "TIMEOUT = 'long'\ndef wait(): return 7\n"
    assert ask(text, DRUMLINE_AUTOTUNING="1") == ["long", "7"]
