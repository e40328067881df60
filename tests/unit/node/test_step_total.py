"""How many steps a training makes in all, as its own program says."""

import os
import runpy
import sys
import types

import pytest

from drumline.node import hook_folder


@pytest.fixture
def finder():
    return runpy.run_path(os.path.join(hook_folder.HOOK, "step_total.py"))["TotalFinder"]()


def call_from(module, self, function):
    """Call a function from a method of that module."""
    source = "def step(self, function):\n    return function()\n"
    names = {"__name__": module}
    exec(source, names)
    return names["step"](self, function)


def test_a_trainer_of_transformers_knows_its_steps_and_those_before(finder):
    trainer = types.SimpleNamespace(state=types.SimpleNamespace(max_steps=500, global_step=203))
    found = call_from("transformers.trainer", trainer, lambda: finder.find(4))
    assert found == (500, 200, "Transformers")
    trainer.state.max_steps = -1
    assert call_from("transformers.trainer", trainer, lambda: finder.find(4)) is None


@pytest.mark.parametrize(
    ("limits", "total"),
    [((1000, 10, 7, 2), 40), ((30, 10, 7, 2), 30), ((-1, 10, float("inf"), 1), 0), ((-1, None, 7, 1), 0)],
)
def test_a_trainer_of_lightning_ends_at_the_first_of_its_limits(finder, limits, total):
    names = ("max_steps", "max_epochs", "num_training_batches", "accumulate_grad_batches")
    trainer = types.SimpleNamespace(**dict(zip(names, limits, strict=True)), global_step=1)
    loop = types.SimpleNamespace(trainer=trainer)
    found = call_from("lightning.pytorch.loops.optimization.automatic", loop, lambda: finder.find(2))
    assert found == ((total, 0, "Lightning") if total else None)


class Bar:
    def __init__(self, total, n=0):
        self.total, self.n = total, n


@pytest.fixture
def bars(monkeypatch):
    module = types.ModuleType("tqdm.std")
    listed: list[Bar] = []
    module.tqdm = types.SimpleNamespace(_instances=listed)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tqdm.std", module)
    return listed


def test_a_bar_that_goes_on_with_the_steps_counts_them(finder, bars):
    steps, epochs, files = Bar(5000), Bar(3), Bar(700, 650)
    bars += [epochs, files, steps]
    assert finder.find(16) is None
    # It is told of several steps at once.
    steps.n = 60
    assert finder.find(64) is None or finder.find(64)[0] == 5000
    steps.n = 124
    assert finder.find(128) == (5000, 0, "a bar of tqdm")


def test_a_bar_that_went_on_from_a_checkpoint_says_how_many_were_made(finder, bars):
    bars.append(Bar(5000, 2064))
    assert finder.find(64) is None
    bars[0].n = 2128
    assert finder.find(128) == (5000, 2000, "a bar of tqdm")


def test_a_bar_of_each_epoch_is_taken_back(finder, bars):
    bars.append(Bar(200, 64))
    finder.find(64)
    bars[0].n = 128
    assert finder.find(128) == (200, 0, "a bar of tqdm")
    bars[0].n = 56
    assert finder.find(256) == (0, 0, "")


def test_a_program_without_either_says_nothing(finder):
    assert finder.find(4) is None
