"""What the hook puts into PyTorch to see its first process group: a module that has its names, and how it is left."""

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

GROUP = os.path.join(hook_folder.HOOK, "group.py")


@pytest.fixture
def ours():
    return runpy.run_path(GROUP)


class Group:
    """As PyTorch's."""


def like_pytorch(backend="gloo", config="cpu:gloo,cuda:nccl"):
    module: Any = types.ModuleType("torch.distributed.distributed_c10d")
    module.default = None

    def _update_default_pg(pg):
        module.default = pg

    module._update_default_pg = _update_default_pg
    module.get_backend = lambda: backend
    module.get_backend_config = lambda: config
    return module


def test_the_first_group_is_noted_and_the_module_is_as_it_was(ours):
    module, noted = like_pytorch(), []
    own = module._update_default_pg
    ours["note_group"](module, noted.append, pytest.fail)
    module._update_default_pg(None)
    assert noted == []
    group = Group()
    module._update_default_pg(group)
    assert (module.default, noted) == (group, ["gloo"])
    assert module._update_default_pg is own


def test_without_one_backend_there_is_the_list_of_them(ours):
    module, noted = like_pytorch("undefined"), []
    ours["note_group"](module, noted.append, pytest.fail)
    module._update_default_pg(pg=Group())
    assert noted == ["cpu:gloo,cuda:nccl"]


def test_what_cannot_be_noted_is_no_concern_of_the_program(ours):
    def fail(_backend):
        raise OSError("no room")

    module = like_pytorch()
    del module.get_backend
    ours["note_group"](module, fail, pytest.fail)
    group = Group()
    module._update_default_pg(group)
    assert module.default is group


def test_a_pytorch_without_that_name_is_left_alone(ours):
    module: Any = types.ModuleType("torch.distributed.distributed_c10d")
    before = dict(vars(module))
    ours["note_group"](module, print, pytest.fail)
    assert vars(module) == before


def test_a_process_that_was_forked_notes_for_itself_alone(ours):
    module, before, after = like_pytorch(), [], []
    own = module._update_default_pg
    ours["note_group"](module, before.append, pytest.fail)
    # As in a rank that was forked: the file is read anew there.
    runpy.run_path(GROUP)["note_group"](module, after.append, pytest.fail)
    module._update_default_pg(Group())
    assert (before, after) == ([], ["gloo"])
    assert module._update_default_pg is own


TORCH = "torch/distributed/distributed_c10d.py"
LIKE_TORCH = """
    default = None

    def _update_default_pg(pg):
        global default
        default = pg

    def get_backend():
        return "gloo"

    def init_process_group():
        _update_default_pg(object())
"""
PROGRAM = """
    import sys

    finders = list(sys.meta_path)
    from torch.distributed import distributed_c10d as c10d

    assert "exec_module" not in vars(c10d.__loader__)
    c10d.init_process_group()
    c10d.init_process_group()
    assert c10d._update_default_pg.__code__.co_filename == c10d.__file__
    assert len(finders) == len(sys.meta_path) + 1
"""


def test_the_hook_notes_it_in_the_file_of_the_rank(tmp_path):
    file = tmp_path / TORCH
    file.parent.mkdir(parents=True)
    for folder in (file.parent, file.parent.parent):
        (folder / "__init__.py").touch()
    file.write_text(textwrap.dedent(LIKE_TORCH))
    notes, since = str(tmp_path / "notes.jsonl"), time.monotonic()
    variables = {**os.environ, "PYTHONPATH": str(tmp_path)}
    hook_folder.add_hook(variables, notes)
    program = [sys.executable, "-c", textwrap.dedent(PROGRAM)]
    done = subprocess.run(program, env=variables, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    at, backend, _ = failures.find_first_group(failures.read_lines(notes), since, time.monotonic())
    assert (since < at, backend) == (True, "gloo")
    with open(notes) as opened:
        assert opened.read().count('"group"') == 1
