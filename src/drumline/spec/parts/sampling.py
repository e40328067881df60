"""The algorithms by which a sweep chooses the hyperparameters of its next trial."""

from __future__ import annotations

from drumline.contract.errors import SpecError
from drumline.spec.entity import Entity
from drumline.spec.foreign_parts import ours
from drumline.spec.keywords import refuse_unknown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class SamplingAlgorithm(Entity):
    """The root; ``type`` is fixed by the class."""

    _fields: tuple[str, ...] = ("type",)
    type = ""

    def __init__(self, **kwargs: Any) -> None:
        refuse_unknown(kwargs, self._fields, "sampling_algorithm")


class RandomSamplingAlgorithm(SamplingAlgorithm):
    """
    An algorithm that chooses at random.

    ``rule``: ``random`` or ``sobol``, which fills the space more evenly. ``logbase``: of the log forms of the search
    space, a positive number or ``e``.
    """

    _fields = ("type", "rule", "seed", "logbase")
    _whole = ("seed",)
    _folded = ("rule",)
    type = "random"

    def __init__(
        self,
        *,
        rule: str | None = None,
        seed: int | None = None,
        logbase: float | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.rule = rule
        self.seed = seed
        self.logbase = logbase


class GridSamplingAlgorithm(SamplingAlgorithm):
    """Every combination once; for choices alone."""

    type = "grid"


class BayesianSamplingAlgorithm(SamplingAlgorithm):
    """An algorithm that chooses by the results of earlier trials."""

    type = "bayesian"


CLASSES: dict[str, type[SamplingAlgorithm]] = {
    kind.type: kind for kind in (RandomSamplingAlgorithm, GridSamplingAlgorithm, BayesianSamplingAlgorithm)
}


def to_sampling(value: Any) -> SamplingAlgorithm | str | None:
    """Return an algorithm; text stays text, in lower case. Raises SpecError if there is no such algorithm."""
    value = ours(value)
    if value is None or isinstance(value, SamplingAlgorithm):
        return value
    name = value.get("type") if isinstance(value, dict) else value
    kind = CLASSES.get(name.lower()) if isinstance(name, str) else None
    if kind is None:
        what = f"sampling_algorithm: unknown algorithm {name!r}"
        raise SpecError(what, "one of " + ", ".join(map(repr, CLASSES)))
    if isinstance(value, dict):
        return kind(**{key: item for key, item in value.items() if key != "type"})
    return str(value).lower()
