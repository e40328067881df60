"""
A sweep's search: the values that each hyperparameter may have, how the next are chosen, when a trial ends early.

The expressions take azure-ai-ml's positional arguments. How values are drawn is ``drumline.plan.search.draw``'s to say,
and ``drumline.plan.search.policies`` explains the policies; an interval is one report of the primary metric.
Source: https://learn.microsoft.com/azure/machine-learning/reference-yaml-job-sweep#parameter-expressions
"""

from __future__ import annotations

import math
from contextlib import suppress

from drumline.contract.errors import SpecError
from drumline.spec.entity import Attributes
from drumline.spec.foreign_parts import ours
from drumline.spec.kinds.fields import Any, field
from drumline.spec.kinds.records import ByType, MapInto, Part, PartRecord
from drumline.spec.kinds.values import Flag, Integer, Kind, ListOf, MapOf, Number, OneOf, Text
from drumline.spec.parts.resources import snake
from drumline.spec.reading.source import Mapping

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drumline.spec.kinds.schemas import JsonSchema, Schemas
    from drumline.spec.kinds.values import Report
    from drumline.spec.reading.source import Node

_TEXT = Text()


class _ChoiceItem(Kind):
    """A value of a ``choice``: text, a number, a boolean, or nested search spaces by name."""

    word = "text, a number, a boolean or a mapping"

    def take(self, node: Node, path: str, report: Report) -> Any:
        if isinstance(node, Mapping):
            return _NESTED.check(node, path, report)
        return super().take(node, path, report)

    def convert(self, node: Node) -> Any:
        return node.value if isinstance(node.value, (str, int, float)) else None

    def json_schema(self, schemas: Schemas) -> JsonSchema:
        nested = schemas.share(_ChoiceItem, "nested search spaces", lambda: _NESTED.json_schema(schemas))
        return {"anyOf": [{"type": ["string", "number", "boolean"]}, nested]}


class _NestedSpace(Kind):
    word = "text, a number, a boolean or a search space"

    def take(self, node: Node, path: str, report: Report) -> Any:
        if isinstance(node, Mapping):
            return SPACE.check(node, path, report)
        return _ChoiceItem().check(node, path, report)

    def json_schema(self, schemas: Schemas) -> JsonSchema:
        return {"anyOf": [_ChoiceItem().json_schema(schemas), schemas.make(SPACE)]}


class _Values(ListOf):
    """The values of a choice; Python may give any iterable."""

    def adopt(self, value: Any) -> Any:
        return [_adopt_item(item) for item in value]


class ParameterExpression(Part):
    """The root; ``type`` is fixed by the class."""

    _place = "search_space"
    type: str = field(_TEXT, default="", init=False)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value if name == "values" else _plain(value))


class Choice(ParameterExpression):
    """
    One of ``values``: texts, numbers, booleans, or mappings that hold further hyperparameters by name.

    Any iterable will do, ``range(1, 5)`` for one.
    """

    type = "choice"
    values: Any = field(_Values(_ChoiceItem()), default=None, kw_only=False)


class _Between(ParameterExpression):
    min_value: float | None = field(Number(), default=None, kw_only=False)
    max_value: float | None = field(Number(), default=None, kw_only=False)


class Uniform(_Between):
    type = "uniform"


class LogUniform(_Between):
    """``min_value`` and ``max_value`` are the logarithms of the bounds."""

    type = "loguniform"


class QUniform(_Between):
    type = "quniform"
    q: float | None = field(Number(), default=None, kw_only=False)


class QLogUniform(_Between):
    """A LogUniform in steps of ``q``."""

    type = "qloguniform"
    q: float | None = field(Number(), default=None, kw_only=False)


class _Bell(ParameterExpression):
    mu: float | None = field(Number(), default=None, kw_only=False)
    sigma: float | None = field(Number(), default=None, kw_only=False)


class Normal(_Bell):
    type = "normal"


class LogNormal(_Bell):
    """``mu`` and ``sigma`` are those of the logarithm."""

    type = "lognormal"


class QNormal(_Bell):
    type = "qnormal"
    q: float | None = field(Number(), default=None, kw_only=False)


class QLogNormal(_Bell):
    type = "qlognormal"
    q: float | None = field(Number(), default=None, kw_only=False)


class Randint(ParameterExpression):
    """A whole number from 0, below ``upper``."""

    type = "randint"
    upper: int | None = field(Integer(), default=None, kw_only=False)


EXPRESSIONS: dict[str, type[ParameterExpression]] = {
    kind.type: kind
    for kind in (
        Choice,
        Uniform,
        LogUniform,
        QUniform,
        QLogUniform,
        Normal,
        LogNormal,
        QNormal,
        QLogNormal,
        Randint,
    )
}


SPACE = ByType(
    {
        name: PartRecord(kind, required=() if kind is Choice else kind._fields[1:])
        for name, kind in EXPRESSIONS.items()
    }
)
_NESTED = MapOf(_NestedSpace())


class SearchSpace(Attributes):
    """The expressions by hyperparameter; a dictionary that is put in becomes a ParameterExpression."""

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, to_expression(name, value))


SPACES = MapInto(SPACE, SearchSpace)


def to_expression(name: str, value: Any) -> ParameterExpression:
    """Return a search space from a mapping. Raises SpecError if it is none."""
    value = ours(value)
    if isinstance(value, ParameterExpression):
        return value
    if not isinstance(value, dict):
        what = f"search_space.{name} cannot be of type {type(value).__name__!r}"
        raise SpecError(what, "give Choice([...]), Uniform(...) or {'type': 'uniform', ...}")
    kind = EXPRESSIONS.get(str(value.get("type")).lower())
    if kind is None:
        what = f"search_space.{name}: {value.get('type')!r} is not a type of search space"
        raise SpecError(what, "one of " + ", ".join(map(repr, EXPRESSIONS)))
    return kind(**{key: item for key, item in value.items() if key != "type"})


def parse_value(text: str) -> Any:
    """
    Return a value of a command line as a number where it is a finite one, else as text without blanks around it.

    >>> [parse_value(text) for text in ("8", " 1e-3", "nan", "adam ")]
    [8, 0.001, 'nan', 'adam']
    """
    text = text.strip()
    for kind in (int, float):
        with suppress(ValueError):
            number = kind(text)
            return number if math.isfinite(number) else text
    return text


def _plain(value: Any) -> Any:
    """Return a number of numpy as one of Python."""
    return value.item() if hasattr(value, "item") else value


def _adopt_item(value: Any) -> Any:
    """Return a value of a choice; the mappings in a mapping are further search spaces."""
    if not isinstance(value, dict):
        return _plain(value)
    inside = {name: ours(inner) for name, inner in value.items()}
    return {
        name: to_expression(name, inner) if isinstance(inner, (dict, ParameterExpression)) else inner
        for name, inner in inside.items()
    }


class EarlyTerminationPolicy(Part):
    """The root; ``type`` is fixed by the class. ``evaluation_interval`` 0 is read as 1."""

    _place = "early_termination"
    type: str = field(_TEXT, default="", init=False)
    evaluation_interval: int = field(Integer(nullable=True), default=0)
    delay_evaluation: int = field(Integer(nullable=True), default=0)


class BanditPolicy(EarlyTerminationPolicy):
    """One of ``slack_factor``, a ratio, and ``slack_amount``, a distance, is above 0."""

    type = "bandit"
    slack_factor: float = field(Number(nullable=True), default=0)
    slack_amount: float = field(Number(nullable=True), default=0)


class MedianStoppingPolicy(EarlyTerminationPolicy):
    type = "median_stopping"
    evaluation_interval: int = field(Integer(nullable=True), default=1)


class TruncationSelectionPolicy(EarlyTerminationPolicy):
    """Ends the worst part of the trials. ``truncation_percentage``: 1 to 99."""

    type = "truncation_selection"
    truncation_percentage: int = field(Integer(), default=0)
    exclude_finished_jobs: bool | None = field(Flag(), default=None)


POLICIES: dict[str, type[EarlyTerminationPolicy]] = {
    kind.type: kind for kind in (BanditPolicy, MedianStoppingPolicy, TruncationSelectionPolicy)
}


class _PolicyKind(ByType):
    """A policy; Python may give its name alone, in whatever case."""

    def adopt(self, value: Any) -> Any:
        value = ours(value)
        if isinstance(value, EarlyTerminationPolicy):
            return value
        given = value if isinstance(value, dict) else {"type": value}
        name = given.get("type")
        kind = POLICIES.get(name.lower()) or POLICIES.get(snake(name)) if isinstance(name, str) else None
        if kind is None:
            known = "one of " + ", ".join(map(repr, POLICIES))
            raise SpecError(f"early_termination: unknown policy {name!r}", known)
        return kind(**{key: item for key, item in given.items() if key != "type" and item is not None})


EARLY_TERMINATION = _PolicyKind(
    {
        name: PartRecord(
            kind,
            required=("truncation_percentage",) if kind is TruncationSelectionPolicy else (),
            more={"type": _TEXT},
        )
        for name, kind in POLICIES.items()
    },
    fold=snake,
)


class SamplingAlgorithm(Part):
    """The root; ``type`` is fixed by the class."""

    _place = "sampling_algorithm"
    type: str = field(_TEXT, default="", init=False)


class _NumberOrText(Kind):
    word = "a number"
    json_types = ("number", "string")

    def convert(self, node: Node) -> Any:
        is_one = isinstance(node.value, (str, int, float)) and not isinstance(node.value, bool)
        return node.value if is_one else None


class RandomSamplingAlgorithm(SamplingAlgorithm):
    """
    An algorithm that chooses at random.

    ``rule``: ``random`` or ``sobol``, which fills the space more evenly. ``logbase``: of the log forms of the search
    space, a positive number or ``e``.
    """

    type = "random"
    rule: str | None = field(OneOf("random", "sobol"), default=None)
    seed: int | None = field(Integer(), default=None)
    logbase: float | str | None = field(_NumberOrText(), default=None)


class GridSamplingAlgorithm(SamplingAlgorithm):
    """Every combination once; for choices alone."""

    type = "grid"


class BayesianSamplingAlgorithm(SamplingAlgorithm):
    """An algorithm that chooses by the results of earlier trials."""

    type = "bayesian"


ALGORITHMS: dict[str, type[SamplingAlgorithm]] = {
    kind.type: kind for kind in (RandomSamplingAlgorithm, GridSamplingAlgorithm, BayesianSamplingAlgorithm)
}


class SamplingAlgorithmKind(Kind):
    """A sampling algorithm: its name, or a mapping with its name as ``type``."""

    def __init__(self) -> None:
        super().__init__()
        self.by_type = ByType({name: PartRecord(kind) for name, kind in ALGORITHMS.items()})
        self.name = OneOf(*ALGORITHMS)
        self.json_choices = (self.name, self.by_type)

    def adopt(self, value: Any) -> Any:
        value = ours(value)
        if isinstance(value, SamplingAlgorithm):
            return value
        name = value.get("type") if isinstance(value, dict) else value
        kind = ALGORITHMS.get(name.lower()) if isinstance(name, str) else None
        if kind is None:
            known = "one of " + ", ".join(map(repr, ALGORITHMS))
            raise SpecError(f"sampling_algorithm: unknown algorithm {name!r}", known)
        if isinstance(value, dict):
            return kind(**{key: item for key, item in value.items() if key != "type"})
        return str(value).lower()

    def take(self, node: Node, path: str, report: Report) -> Any:
        return (self.by_type if isinstance(node, Mapping) else self.name).check(node, path, report)


class Objective(Part):
    """The goal of a sweep. ``goal``: ``minimize`` or ``maximize``, in any case, of the metric that the trials log."""

    _place = "objective"
    goal: str | None = field(
        OneOf("minimize", "maximize"),
        "Whether the metric shall be large or small.",
        default=None,
        kw_only=False,
    )
    primary_metric: str | None = field(
        _TEXT, "The metric's name, as the program logs it.", default=None, kw_only=False
    )


class SweepJobLimits(Part):
    """The limits of a sweep. ``timeout`` and ``trial_timeout`` are in seconds."""

    _place = "limits"
    _checks_values = True
    max_total_trials: int | None = field(Integer(), "The number of trials.", default=None)
    max_concurrent_trials: int | None = field(
        Integer(), "The number of trials that run at once.", default=None
    )
    timeout: int | None = field(Integer(), "The time limit in seconds.", default=None)
    trial_timeout: int | str | None = field(
        Integer(), "The time limit of each trial in seconds.", default=None
    )


SAMPLING_ALGORITHM = SamplingAlgorithmKind()
SWEEP_LIMITS = PartRecord(SweepJobLimits, required=("max_total_trials",))
OBJECTIVE = PartRecord(Objective, required=("goal", "primary_metric"))
