"""``drumline plan`` of a pipeline: its steps in an order in which they can run, and what each would run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from drumline.contract.hiding import hide_in
from drumline.contract.words import format_count
from drumline.control.terminal import clean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from drumline.contract.plan import Plan
    from drumline.control.submission.pipeline import PlannedStep


def describe_steps(steps: Iterable[PlannedStep]) -> list[dict[str, Any]]:
    """Return the steps for JSON and YAML."""
    return [
        {
            "step": looked.step.name,
            "type": looked.step.job.type,
            "needs": list(looked.step.needs),
            **({"plan": hide_in(json.loads(looked.plan.to_json()))} if looked.plan is not None else {}),
            **({"steps": describe_steps(looked.steps)} if looked.steps else {}),
        }
        for looked in steps
    ]


def format_steps(steps: tuple[PlannedStep, ...], head: Callable[[Plan], str]) -> str:
    """Format the steps as text. ``head`` formats the first lines of a command's plan."""
    text = f"pipeline of {format_count(len(steps), 'step')}\n"
    return text + "".join(_format_step(looked, head) for looked in steps)


def _format_step(looked: PlannedStep, head: Callable[[Plan], str]) -> str:
    step = looked.step
    after = f", after {', '.join(step.needs)}" if step.needs else ""
    text = f"step {clean(step.name)}{clean(after)}\n"
    if looked.plan is not None:
        inner = head(looked.plan)
    elif looked.steps:
        inner = format_steps(looked.steps, head)
    else:
        inner = f"{step.job.type}\n"
    return text + "".join(f"  {line}\n" for line in inner.splitlines())
