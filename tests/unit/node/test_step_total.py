"""How many steps a training makes in all, as its own program says."""

import os
import runpy
import sys
import types
import weakref

import pytest

from drumline.node import hook_folder


@pytest.fixture
def finder():
    return runpy.run_path(os.path.join(hook_folder.HOOK, "step_total.py"))["TotalFinder"]()


def call_from(module, self, function, name="step"):
    """Call a function from a method of that module."""
    names = {"__name__": module}
    exec(f"def {name}(self, function):\n    return function()\n", names)
    return names[name](self, function)


def test_a_trainer_of_transformers_knows_its_steps_and_those_before(finder):
    trainer = types.SimpleNamespace(state=types.SimpleNamespace(max_steps=500, global_step=203))
    found = call_from("transformers.trainer", trainer, lambda: finder.find(4))
    assert found == (500, 200, "Transformers")
    trainer.state.max_steps = -1
    assert call_from("transformers.trainer", trainer, lambda: finder.find(4)) is None


def test_a_second_trainer_of_a_process_adds_its_steps_to_those_of_the_first(finder):
    trainer = types.SimpleNamespace(state=types.SimpleNamespace(max_steps=200, global_step=23))
    # 40 steps of the first one, 24 of this one, of which the newest is not counted by it yet.
    found = call_from("transformers.trainer", trainer, lambda: finder.find(64))
    assert found == (240, 0, "Transformers")


HOLDING = """
def {name}(self, function, batches):
    {held} = batches.pop()
    given = function()
    del {held}
    return given, sys._getframe()
"""


def call_holding(module, self, function, name, held, batches):
    """Call a function from a method with a batch in a variable of that name; return what it gave, and the frame."""
    names = {"__name__": module, "sys": sys}
    exec(HOLDING.format(name=name, held=held), names)
    return names[name](self, function, batches)


class Batch:
    """A thing that can be referred to weakly."""


@pytest.mark.parametrize(
    ("module", "outer", "inner", "held"),
    [
        ("transformers.trainer", "train", "_inner_training_loop", "inputs"),
        ("transformers.trainer", "train", "_run_epoch", "batch_samples"),
        ("lightning.pytorch.loops.fit_loop", "run", "advance", "batch"),
    ],
)
def test_a_batch_is_freed_when_its_trainer_frees_it(finder, module, outer, inner, held):
    state = types.SimpleNamespace(max_steps=500, global_step=3)
    trainer = types.SimpleNamespace(
        state=state, max_steps=500, max_epochs=None, num_training_batches=7, global_step=3
    )
    self = types.SimpleNamespace(state=state, trainer=trainer)
    batch = Batch()
    freed = weakref.ref(batch)
    batches = [batch]
    del batch

    def ask():
        return call_holding(module, self, lambda: finder.find(4), inner, held, batches)

    # The frame goes on, as that of a loop does.
    found, _frame = call_from(module, self, ask, outer)
    assert (found[0], freed()) == (500, None)


def test_a_trainer_whose_only_frame_holds_a_batch_is_not_asked(finder):
    trainer = types.SimpleNamespace(state=types.SimpleNamespace(max_steps=500, global_step=3))
    found, _ = call_holding("transformers.trainer", trainer, lambda: finder.find(4), "train", "inputs", [5])
    assert found is None


def test_an_engine_of_deepspeed_knows_its_step_and_its_schedules_end(finder):
    engine = types.SimpleNamespace(global_steps=203, lr_scheduler=types.SimpleNamespace(total_num_steps=500))

    def call(function):
        return call_from("deepspeed.runtime.engine", engine, function, "_take_model_step")

    assert call(lambda: finder.find(4)) == (500, 200, "DeepSpeed's schedule")
    assert call(finder.find_engine_step) == (id(engine), 203)
    assert finder.find_engine_step() is None
    # What stands above it knows better.
    trainer = types.SimpleNamespace(state=types.SimpleNamespace(max_steps=400, global_step=203))
    found = call_from("transformers.trainer", trainer, lambda: call(lambda: finder.find(4)))
    assert found == (400, 200, "Transformers")
    engine.lr_scheduler = types.SimpleNamespace()
    assert call(lambda: finder.find(4)) is None


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


@pytest.mark.parametrize(
    ("more", "total"),
    [
        ({}, 40),
        ({"lightning_module": types.SimpleNamespace(automatic_optimization=False)}, None),
        ({"callbacks": [types.SimpleNamespace(scheduling={0: 1, 4: 2})]}, None),
        ({"callbacks": [types.SimpleNamespace(scheduling={0: 2}), object()]}, 40),
        ({"strategy": types.SimpleNamespace(handles_gradient_accumulation=True)}, None),
    ],
)
def test_a_trainer_of_lightning_whose_steps_cannot_be_foreseen_says_nothing(finder, more, total):
    trainer = types.SimpleNamespace(
        max_steps=-1, max_epochs=10, num_training_batches=7, accumulate_grad_batches=2, global_step=1, **more
    )
    loop = types.SimpleNamespace(trainer=trainer)
    found = call_from("lightning.pytorch.loops.optimization.automatic", loop, lambda: finder.find(2))
    assert found == (total and (total, 0, "Lightning"))


def give_batches(finder, sampler, count, number, steps_per_batch=1.0):
    """Make a pass over a loader; return the number of steps that were made after it."""
    for place in range(1, count + 1):
        finder.note_batch(types.SimpleNamespace(_index_sampler=sampler, _num_yielded=place), number)
        if steps_per_batch and place * steps_per_batch % 1 == 0:
            number += 1
            finder.note_step()
    return number


def test_a_pass_is_known_when_the_next_one_begins(finder):
    training, validation = list(range(12)), list(range(3))
    number = 0
    for epoch in range(3):
        assert finder.pass_steps == (6 if epoch > 1 else 0)
        number = give_batches(finder, training, 12, number, 0.5)
        if epoch != 1:
            give_batches(finder, validation, 3, number, 0.0)
    assert (number, finder.pass_steps) == (18, 6)
    # This pass ends early, so the number of steps is not known any more.
    number = give_batches(finder, training, 4, number, 0.5)
    give_batches(finder, training, 1, number)
    assert finder.pass_steps == 0


class Bar:
    def __init__(self, total, n=0, pos=0):
        self.total, self.n, self.pos = total, n, pos


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


@pytest.mark.parametrize(("bar", "batches"), [(Bar(200, 64), 200), (Bar(200, 64, pos=-1), 3)])
def test_a_bar_of_an_epoch_is_not_taken_for_the_whole(finder, bars, bar, batches):
    bars += [Bar(3), bar]
    give_batches(finder, list(range(batches)), 1, 0)
    finder.find(64)
    bar.n = 128
    assert finder.find(128) is None


def test_a_bar_of_each_epoch_is_taken_back(finder, bars):
    bars.append(Bar(200, 64))
    finder.find(64)
    bars[0].n = 128
    assert finder.find(128) == (200, 0, "a bar of tqdm")
    bars[0].n = 56
    assert finder.find(256) == (0, 0, "")
    # What was wrong once is not believed later.
    bars[0].n = 156
    assert finder.find(356) == (0, 0, "")


def test_a_program_without_either_says_nothing(finder):
    assert finder.find(4) is None
