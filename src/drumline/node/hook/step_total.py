"""
What a program itself says of its steps: how many there are in all, and which calls of its optimizer make one.

A Trainer of Transformers or of Lightning, or an engine of DeepSpeed, that is on the stack while an optimizer steps, or
a bar of tqdm that counts steps. ``steps.py`` asks now and then. As careful as ``sitecustomize``: the standard library
alone, and where anything is otherwise, nothing is known.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Optional

_DEEPEST = 60
_MOST_BARS = 50
_FEWEST_STEPS = 20
_TRANSFORMERS, _LIGHTNING, _DEEPSPEED = "Transformers", "Lightning", "DeepSpeed's schedule"


class TotalFinder:
    """
    Finds the total. A bar counts steps if it went on by about as many as the optimizer, from one call to the next: bars
    are told of several steps at once. One that begins anew, as for each epoch, does not count the whole training.
    """

    def __init__(self) -> None:
        self._bars: dict[int, tuple[int, int]] = {}
        self._told = 0
        self._is_wrong = False
        """Whether there were more steps than a bar has said: one of each epoch, perhaps."""

        self.pass_steps = self._batches = 0
        """Steps of each whole pass over the training's data; batches of a pass, as the loader says; 0: not known."""

        self._begun: dict[int, int] = {}
        self._newest = self._trained = 0
        """The loaders of the newest batch, and of the newest that a step was made with."""

        self._has_differed = False

    def note_batch(self, batches: Any, number: int) -> bool:
        """
        Note that an iterator of a DataLoader has given a batch after so many steps. Return whether ``pass_steps`` may
        be new.
        """
        sampler = getattr(batches, "_index_sampler", None)
        self._newest = id(sampler)
        return getattr(batches, "_num_yielded", 0) == 1 and self._begin_pass(sampler, number)

    def _begin_pass(self, sampler: Any, number: int) -> bool:
        # A loader may be one batch ahead of the steps, so a pass is from one begin to the next.
        begun = self._begun.get(self._newest)
        self._begun[self._newest] = number
        if number == 0 or self._newest == self._trained:
            try:
                self._batches = len(sampler)
            except Exception:
                self._batches = 0
        if begun is None or self._newest != self._trained or number <= begun:
            return False
        self._has_differed = self._has_differed or self.pass_steps not in (0, number - begun)
        self.pass_steps = 0 if self._has_differed else number - begun
        return True

    def note_step(self) -> None:
        """Note that an optimizer has made a step with the newest batch."""
        self._trained = self._newest

    def find(self, number: int) -> Optional[tuple[int, int, str]]:
        """
        Return how many steps there are in all, how many of them were made before this process began, and who says
        so; None: not known; 0: what was said before is wrong. ``number``: of the step of this process that was made
        last.
        """
        found = _ask_trainer(number)
        return found if found is not None else self._ask_bars(number)

    def find_engine_step(self) -> Optional[tuple[int, int]]:
        """
        Return which engine of DeepSpeed makes which of its steps; None: there is none on the stack. An engine may call
        its optimizer several times in a step, for a part of the weights each.
        """
        for name, frame in _walk_stack():
            if name == "deepspeed.runtime.engine" and frame.f_code.co_name == "_take_model_step":
                engine = frame.f_locals["self"]
                return id(engine), engine.global_steps
        return None

    def _ask_bars(self, number: int) -> Optional[tuple[int, int, str]]:
        self._is_wrong = self._is_wrong or 0 < self._told < number
        if self._is_wrong:
            return (0, 0, "")
        kind = getattr(sys.modules.get("tqdm.std") or sys.modules.get("tqdm"), "tqdm", None)
        bars = list(getattr(kind, "_instances", ()))[:_MOST_BARS]
        before, self._bars = self._bars, {}
        for bar in bars:
            count, total = getattr(bar, "n", None), getattr(bar, "total", None)
            if not isinstance(count, int) or not isinstance(total, (int, float)) or not 1 < total < 1 << 53:
                continue
            self._bars[id(bar)] = (number, count)
            then = before.get(id(bar), (number, count))
            made, counted = number - then[0], count - then[1]
            if made < _FEWEST_STEPS or not 0.8 * made <= counted <= 1.2 * made:
                continue
            # Another bar that is drawn above this one may count epochs.
            place = abs(getattr(bar, "pos", 0))
            is_inside = any(abs(getattr(other, "pos", 0)) < place for other in bars)
            if total > self._batches and not is_inside and self._told in (0, total):
                self._told = int(total)
                # Of steps from before this process it says more than were made here.
                return self._told, count - number if count > 1.2 * number else 0, "a bar of tqdm"
        return None


def _walk_stack() -> Iterator[tuple[str, Any]]:
    """Yield the module and the frame of each call, the innermost first."""
    frame: Any = sys._getframe(1)
    for _ in range(_DEEPEST):
        if frame is None:
            return
        yield str(frame.f_globals.get("__name__")), frame
        frame = frame.f_back


def _ask_trainer(number: int) -> Optional[tuple[int, int, str]]:
    """Ask the outermost of those that know: an engine may have a Trainer above it."""
    outermost: dict[str, Any] = {}
    for module, frame in _walk_stack():
        source = _name_source(module, frame)
        if source:
            outermost.pop(source, None)
            outermost[source] = frame
    found = None
    for source, frame in outermost.items():
        # Up to Python 3.12 a frame whose variables were read keeps what they were then, such as a batch on a GPU. The
        # outermost one of a Trainer has none.
        if "inputs" in frame.f_code.co_varnames:
            continue
        owner = frame.f_locals.get("self")
        if source == _DEEPSPEED:
            schedule = getattr(owner, "lr_scheduler", None)
            total, done = getattr(schedule, "total_num_steps", 0), owner.global_steps
        elif source == _LIGHTNING:
            trainer = getattr(owner, "trainer", None)
            total = 0 if trainer is None else _count_steps(trainer)
            done = getattr(trainer, "global_step", 0)
        else:
            state = getattr(owner, "state", None)
            total, done = getattr(state, "max_steps", 0), getattr(state, "global_step", 0)
        if isinstance(total, int) and total > 0:
            # They count a step when the optimizer is done with it. Steps of this process that it does not know are
            # those of another Trainer before it.
            others = number - int(done) - 1
            found = (total + max(0, others), max(0, -others), source)
    return found


def _name_source(module: str, frame: Any) -> str:
    """Return the words for who says the total, where a method of such a one is called; empty otherwise."""
    if module == "transformers.trainer":
        return _TRANSFORMERS
    if module.startswith(("lightning.pytorch.loops", "pytorch_lightning.loops")):
        return _LIGHTNING
    if module == "deepspeed.runtime.engine" and frame.f_code.co_name == "_take_model_step":
        return _DEEPSPEED
    return ""


def _count_steps(trainer: Any) -> int:
    """Return how many steps a Trainer of Lightning makes; 0: it does not say."""
    if not getattr(getattr(trainer, "lightning_module", None), "automatic_optimization", True):
        return 0  # Several optimizers, perhaps, of which it counts each step.
    limits = []
    if trainer.max_steps is not None and trainer.max_steps > 0:
        limits.append(trainer.max_steps)
    batches, epochs = trainer.num_training_batches, trainer.max_epochs
    if epochs is not None and epochs > 0 and 0 < batches < 1 << 53:
        together = max(1, trainer.accumulate_grad_batches)
        # It may accumulate the gradients of more batches later, or of fewer.
        callbacks = getattr(trainer, "callbacks", ())
        is_changing = any(len(getattr(callback, "scheduling", ())) > 1 for callback in callbacks)
        # Gradients of the last batches of an epoch may go into a step of the next one.
        strategy = getattr(trainer, "strategy", None)
        goes_on = getattr(strategy, "handles_gradient_accumulation", False)
        if is_changing or (batches % together and goes_on):
            return 0
        limits.append(epochs * -(-int(batches) // together))
    return min(limits) if limits else 0


def shorten_waits(scheduler: Any) -> None:
    """
    Have DeepSpeed's autotuner look more often whether an experiment has ended: it waits five seconds, twice.

    The waits are one number of its module, read anew for each of them, in DeepSpeed 0.5 to 0.19.
    """
    if isinstance(getattr(scheduler, "TIMEOUT", None), (int, float)):
        scheduler.TIMEOUT = 0.1
