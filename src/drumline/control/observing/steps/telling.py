"""The steps of a job as its descriptions have them."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from drumline.contract.outcome import fold
from drumline.contract.words import read_count
from drumline.control.jobs.lookup import read_spec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drumline.contract.folder import RunFolder
    from drumline.contract.outcome import Outcome
    from drumline.control.observing.steps.history import StepHistory

_TOTALS = ("max_steps", "steps", "num_steps", "total_steps", "train_steps", "max_train_steps")
"""Inputs that say how many steps a training makes, by names that are in use."""

_EPOCHS = ("num_train_epochs", "num_epochs", "n_epochs", "max_epochs", "train_epochs", "epochs")
"""Inputs that say how many passes over its data a training makes."""

_SHARE_OF_CORE = 0.1
_PAUSE_S, _PAUSE_STEPS = 120.0, 5
"""Without a step, after which what a job has made says nothing of its speed: clocks of machines may differ by some."""


def describe_steps(folder: RunFolder, outcome: Outcome) -> dict[str, Any] | None:
    """
    Describe the steps of the latest attempt that made any; where no hook has seen a step, what the job says itself, and
    the looks at its stacks. None: nothing is known.
    """
    if outcome.kind != "command":
        return None
    attempt = len(outcome.attempts)
    if may_have_steps(folder):
        from drumline.control.observing.steps.history import read_last_attempt

        history = read_last_attempt(folder.path, range(attempt + 1), is_recent=True)
        if history.ranks:
            return summarize_steps(folder, history, is_first=not outcome.attempts, is_over=outcome.is_final)
    return describe_without_hook(folder, attempt)


def describe_without_hook(folder: RunFolder, attempt: int) -> dict[str, Any] | None:
    """Describe the steps of an attempt, the latest one, in which no hook has seen a step; None: nothing is known."""
    from drumline.control.observing.steps.signs import describe_signs

    said = describe_signs(folder, attempt)
    if not may_have_steps(folder):
        return said
    from drumline.control.observing.steps.stack_shares import add_shares

    return add_shares(folder, attempt, said)


def summarize_steps(
    folder: RunFolder, history: StepHistory, *, is_first: bool, is_over: bool
) -> dict[str, Any] | None:
    """
    Return what ``summarize`` does, with the total that an input of the job says. ``is_first``: of the attempts. A job
    that is not over, and makes no steps, has no rate.
    """
    summary = history.summarize()
    if summary and not is_over:
        idle_s = time.time() - history.find_newest()
        if idle_s > max(_PAUSE_S, _PAUSE_STEPS * (summary["step_s"] or 0.0)):
            summary["rate"] = None
    # An attempt after another may have gone on from a checkpoint: an input says nothing of what was left to do.
    if summary and summary["total"] is None and is_first:
        name, total = find_total(read_spec(folder).get("inputs"), history.count_pass())
        if total and total >= summary["done"]:
            summary |= {"total": total, "total_source": f"input {name}"}
    return summary


def may_have_steps(folder: RunFolder) -> bool:
    """Return whether an agent has noted steps of the job, or looks at its stacks."""
    return os.path.isdir(os.path.dirname(folder.steps_path(0, 0)))


def find_total(inputs: Any, pass_steps: int = 0) -> tuple[str, int]:
    """
    Return the input that says how many steps there are, or how many passes of so many steps, and the number of steps;
    0: none does.

    >>> find_total({"lr": 0.1, "max_steps": {"type": "integer", "value": "200"}})
    ('max_steps', 200)
    >>> find_total({"epochs": 8}, pass_steps=11)
    ('epochs', 88)
    """
    given: Mapping[str, Any] = inputs if isinstance(inputs, dict) else {}
    for names, factor in ((_TOTALS, 1), (_EPOCHS, pass_steps)):
        for name in names:
            value = given.get(name)
            count = read_count(value.get("value") if isinstance(value, dict) else value)
            if count is not None and 0 < count * factor < 1 << 53:
                return name, count * factor
    return "", 0


class StepsLine:
    """The line about the steps of a job that runs, read again at most once in ``interval_s``."""

    def __init__(self, interval_s: float = 1.0) -> None:
        self._interval_s = interval_s
        self._next = 0.0
        self._text = ""

    def read(self, folder: RunFolder) -> str:
        """Return the line; empty: no rank has made a step."""
        began = time.monotonic()
        if began >= self._next:
            from drumline.control.observing.steps import words

            described = describe_steps(folder, fold(folder.read_events()))
            self._text = "; ".join(words.list_parts(described)) if described else ""
            took = time.monotonic() - began
            self._next = began + max(self._interval_s, took / _SHARE_OF_CORE)
        return self._text
