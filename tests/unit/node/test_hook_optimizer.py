"""What the hook puts into PyTorch to see its first optimizer: a module that has its names, and how it is left."""

import os
import runpy
import subprocess
import sys
import textwrap
import time
import types
from typing import Any

import pytest

from drumline.node import hook_folder
from drumline.node.diagnostics import failures

OPTIMIZER = os.path.join(hook_folder.HOOK, "group.py")
LIKE_TORCH = """
    class Optimizer:
        def __init__(self, params):
            self._patch_step_function()
            if not params:
                raise ValueError("optimizer got an empty parameter list")

        def _patch_step_function(self):
            self.is_patched = True

    class SGD(Optimizer):
        pass
"""
PROGRAM = """
    from torch.optim import optimizer

    own = optimizer.SGD([1])
    assert own.is_patched
    assert optimizer.SGD([1]).is_patched
    assert optimizer.Optimizer._patch_step_function.__code__.co_filename == optimizer.__file__
"""


@pytest.fixture
def ours():
    return runpy.run_path(OPTIMIZER)


def like_pytorch():
    module: Any = types.ModuleType("torch.optim.optimizer")
    exec(textwrap.dedent(LIKE_TORCH), vars(module))
    return module


def test_the_first_optimizer_is_noted_and_the_class_is_as_it_was(ours):
    module, noted = like_pytorch(), []
    own = module.Optimizer._patch_step_function
    ours["note_training"](module, lambda: noted.append(1))
    assert module.SGD([1]).is_patched
    assert module.SGD([1]).is_patched
    assert noted == [1]
    assert module.Optimizer._patch_step_function is own


def test_what_cannot_be_noted_is_no_concern_of_the_program(ours):
    def fail():
        raise OSError("no room")

    module = like_pytorch()
    ours["note_training"](module, fail)
    assert module.SGD([1]).is_patched
    with pytest.raises(ValueError, match="empty parameter list"):
        module.SGD([])


def test_a_pytorch_without_that_name_is_left_alone(ours):
    module: Any = types.ModuleType("torch.optim.optimizer")
    before = dict(vars(module))
    ours["note_training"](module, print)
    assert vars(module) == before


@pytest.mark.parametrize(("count", "is_noted"), [("4", True), ("1", False)])
def test_the_hook_notes_it_in_the_file_of_a_rank_of_several(tmp_path, count, is_noted):
    file = tmp_path / "torch" / "optim" / "optimizer.py"
    file.parent.mkdir(parents=True)
    for folder in (file.parent, file.parent.parent):
        (folder / "__init__.py").touch()
    file.write_text(textwrap.dedent(LIKE_TORCH))
    notes, since = str(tmp_path / "notes.jsonl"), time.monotonic()
    variables = {**os.environ, "PYTHONPATH": str(tmp_path), "WORLD_SIZE": count}
    hook_folder.add_hook(variables, notes)
    program = [sys.executable, "-c", textwrap.dedent(PROGRAM)]
    done = subprocess.run(program, env=variables, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert failures.has_training(failures.read_lines(notes), since, time.monotonic()) is is_noted
    assert not failures.has_training(failures.read_lines(notes), time.monotonic(), time.monotonic() + 1)
