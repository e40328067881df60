"""
How many steps the training of this process makes in all, where its program says so: a Trainer of Transformers or of
Lightning that is on the stack while an optimizer steps, or a bar of tqdm that counts steps.

``steps.py`` asks now and then. As careful as ``sitecustomize``: the standard library alone, and where anything is
otherwise, nothing is known.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

_DEEPEST = 60
_MOST_BARS = 50
_FEWEST_STEPS = 20


class TotalFinder:
    """
    Finds the total. A bar counts steps if it went on by about as many as the optimizer, from one call to the next: bars
    are told of several steps at once. One that begins anew, as for each epoch, does not count the whole training.
    """

    def __init__(self) -> None:
        self._bars: dict[int, tuple[int, int]] = {}
        self._told = 0

    def find(self, number: int) -> Optional[tuple[int, int, str]]:
        """
        Return how many steps there are in all, how many of them were made before this process began, and who says
        so; None: not known; 0: what was said before is wrong. ``number``: of the step of this process that was made
        last.
        """
        found = _ask_trainer(number)
        return found if found is not None else self._ask_bars(number)

    def _ask_bars(self, number: int) -> Optional[tuple[int, int, str]]:
        kind = getattr(sys.modules.get("tqdm.std") or sys.modules.get("tqdm"), "tqdm", None)
        before, self._bars = self._bars, {}
        for bar in list(getattr(kind, "_instances", ()))[:_MOST_BARS]:
            count, total = getattr(bar, "n", None), getattr(bar, "total", None)
            if not isinstance(count, int) or not isinstance(total, (int, float)) or not 1 < total < 1 << 53:
                continue
            self._bars[id(bar)] = (number, count)
            then = before.get(id(bar), (number, count))
            made, counted = number - then[0], count - then[1]
            if made >= _FEWEST_STEPS and 0.8 * made <= counted <= 1.2 * made and self._told in (0, total):
                self._told = int(total)
                # Of steps from before this process it says more than were made here.
                return self._told, count - number if count > 1.2 * number else 0, "a bar of tqdm"
        is_wrong = self._told and number > self._told
        return (0, 0, "") if is_wrong else None


def _ask_trainer(number: int) -> Optional[tuple[int, int, str]]:
    frame: Any = sys._getframe(2)
    for _ in range(_DEEPEST):
        if frame is None:
            return None
        module = frame.f_globals.get("__name__", "")
        if module == "transformers.trainer":
            state = getattr(frame.f_locals.get("self"), "state", None)
            total, done = getattr(state, "max_steps", 0), getattr(state, "global_step", 0)
            # It counts a step when the optimizer is done with it.
            return (total, max(0, done + 1 - number), "Transformers") if total > 0 else None
        if module.startswith(("lightning.pytorch.loops", "pytorch_lightning.loops")):
            trainer = getattr(frame.f_locals.get("self"), "trainer", None)
            if trainer is not None:
                total = _count_steps(trainer)
                done = int(getattr(trainer, "global_step", 0))
                return (total, max(0, done + 1 - number), "Lightning") if total > 0 else None
        frame = frame.f_back
    return None


def _count_steps(trainer: Any) -> int:
    """Return how many steps a Trainer of Lightning makes; 0: it does not say."""
    limits = []
    if trainer.max_steps is not None and trainer.max_steps > 0:
        limits.append(trainer.max_steps)
    batches, epochs = trainer.num_training_batches, trainer.max_epochs
    if epochs is not None and epochs > 0 and 0 < batches < 1 << 53:
        limits.append(epochs * -(-int(batches) // max(1, trainer.accumulate_grad_batches)))
    return min(limits) if limits else 0
