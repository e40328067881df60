"""
The policies by which a sweep gives up on a trial before its end, explained in ``drumline.plan.search.policies``.

An interval is one report of the primary metric by the trial.
Source: https://learn.microsoft.com/azure/machine-learning/how-to-tune-hyperparameters#early-termination
"""

from __future__ import annotations

from drumline.contract.errors import SpecError
from drumline.spec.entity import Entity
from drumline.spec.foreign_parts import ours

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class EarlyTerminationPolicy(Entity):
    """The root; ``type`` is fixed by the class. ``evaluation_interval`` 0 is read as 1."""

    _fields: tuple[str, ...] = ("type", "evaluation_interval", "delay_evaluation")
    _whole: tuple[str, ...] = ("evaluation_interval", "delay_evaluation")
    type = ""

    def __init__(self, *, delay_evaluation: int = 0, evaluation_interval: int = 0) -> None:
        self.delay_evaluation = delay_evaluation
        self.evaluation_interval = evaluation_interval


class BanditPolicy(EarlyTerminationPolicy):
    """One of ``slack_factor``, a ratio, and ``slack_amount``, a distance, is above 0."""

    _fields = (*EarlyTerminationPolicy._fields, "slack_factor", "slack_amount")
    type = "bandit"

    def __init__(
        self,
        *,
        delay_evaluation: int = 0,
        evaluation_interval: int = 0,
        slack_amount: float = 0,
        slack_factor: float = 0,
    ) -> None:
        super().__init__(delay_evaluation=delay_evaluation, evaluation_interval=evaluation_interval)
        self.slack_amount = slack_amount
        self.slack_factor = slack_factor


class MedianStoppingPolicy(EarlyTerminationPolicy):
    type = "median_stopping"

    def __init__(self, *, delay_evaluation: int = 0, evaluation_interval: int = 1) -> None:
        super().__init__(delay_evaluation=delay_evaluation, evaluation_interval=evaluation_interval)


class TruncationSelectionPolicy(EarlyTerminationPolicy):
    """Ends the worst part of the trials. ``truncation_percentage``: 1 to 99."""

    _fields = (*EarlyTerminationPolicy._fields, "truncation_percentage", "exclude_finished_jobs")
    _whole = (*EarlyTerminationPolicy._whole, "truncation_percentage")
    type = "truncation_selection"

    def __init__(
        self,
        *,
        delay_evaluation: int = 0,
        evaluation_interval: int = 0,
        truncation_percentage: int = 0,
        exclude_finished_jobs: bool | None = None,
    ) -> None:
        super().__init__(delay_evaluation=delay_evaluation, evaluation_interval=evaluation_interval)
        self.truncation_percentage = truncation_percentage
        self.exclude_finished_jobs = exclude_finished_jobs


CLASSES: dict[str, type[EarlyTerminationPolicy]] = {
    kind.type: kind for kind in (BanditPolicy, MedianStoppingPolicy, TruncationSelectionPolicy)
}


def to_policy(value: Any) -> EarlyTerminationPolicy | None:
    """Return a policy from a dictionary, or from a name in whatever case. Raises SpecError for neither."""
    value = ours(value)
    if value is None or isinstance(value, EarlyTerminationPolicy):
        return value
    from drumline.spec.schema.command import snake

    name = value.get("type") if isinstance(value, dict) else value
    kind = CLASSES.get(name.lower()) or CLASSES.get(snake(name)) if isinstance(name, str) else None
    if kind is None:
        what = f"early_termination: unknown policy {name!r}"
        raise SpecError(what, "one of " + ", ".join(map(repr, CLASSES)))
    given = value if isinstance(value, dict) else {}
    try:
        return kind(**{key: item for key, item in given.items() if key != "type" and item is not None})
    except TypeError:
        unknown = next(key for key in given if key not in kind._fields)
        known = ", ".join(kind._fields[1:])
        raise SpecError(
            f"early_termination: a {kind.type} policy has no {unknown!r}", f"it has {known}"
        ) from None
