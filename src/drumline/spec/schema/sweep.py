"""The tables of a sweep job."""

from __future__ import annotations

from drumline.spec import fields
from drumline.spec.kinds.locations import check_file
from drumline.spec.kinds.records import ByType, Record
from drumline.spec.kinds.values import (
    Flag,
    Integer,
    Kind,
    ListOf,
    MapOf,
    Number,
    OneOf,
    Text,
    quote_node,
    to_kinds,
)
from drumline.spec.reading.tree import Mapping, Scalar
from drumline.spec.schema.command import (
    BASE,
    DRUMLINE,
    PROGRAM,
    QUEUE_SETTINGS,
    READ_ONLY,
    RESOURCES,
    snake,
)
from drumline.spec.schema.io import INPUTS, OUTPUTS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from drumline.spec.kinds.report import Report
    from drumline.spec.kinds.schemas import Schemas
    from drumline.spec.reading.tree import Node


class _ChoiceItem(Kind):
    """A value of a ``choice``: text, a number, a boolean, or nested search spaces by name."""

    word = "text, a number, a boolean or a mapping"

    def take(self, node: Node, path: str, report: Report) -> Any:
        if isinstance(node, Mapping):
            return _NESTED.check(node, path, report)
        value = node.value if isinstance(node, Scalar) else None
        if isinstance(value, (str, int, float)):
            return value
        self.refuse(node, path, report)
        return None

    def json_schema(self, schemas: Schemas) -> dict[str, Any]:
        nested = schemas.share(_ChoiceItem, "nested search spaces", lambda: _NESTED.json_schema(schemas))
        return {"anyOf": [{"type": ["string", "number", "boolean"]}, nested]}


class _NestedSpace(Kind):
    word = "text, a number, a boolean or a search space"

    def take(self, node: Node, path: str, report: Report) -> Any:
        if isinstance(node, Mapping):
            return SPACE.check(node, path, report)
        return _ChoiceItem().check(node, path, report)

    def json_schema(self, schemas: Schemas) -> dict[str, Any]:
        return {"anyOf": [_ChoiceItem().json_schema(schemas), schemas.make(SPACE)]}


_NESTED = MapOf(_NestedSpace())


class _NumberOrText(Kind):
    word = "a number"

    def take(self, node: Node, path: str, report: Report) -> Any:
        value = node.value if isinstance(node, Scalar) else None
        if isinstance(value, (str, int, float)) and not isinstance(value, bool):
            return value
        self.refuse(node, path, report)
        return None

    def json_schema(self, schemas: Schemas) -> dict[str, Any]:
        return {"type": ["number", "string"]}


def _spaces() -> dict[str, Record]:
    records = {"choice": Record("search space", {"type": Text(), "values": ListOf(_ChoiceItem())})}
    by_numbers: dict[tuple[str, ...], Record] = {}
    for name, declared in fields.SEARCH_SPACES.items():
        numbers = tuple(declared)
        if numbers not in by_numbers:
            kinds: dict[str, Kind] = {"type": Text(), **to_kinds(declared)}
            by_numbers[numbers] = Record("search space", kinds, required=numbers)
        records[name] = by_numbers[numbers]
    return records


SPACE = ByType(_spaces())

_INTEGER = Integer()
_WAIT: dict[str, Kind] = {
    "type": Text(),
    "evaluation_interval": Integer(nullable=True),
    "delay_evaluation": Integer(nullable=True),
}
_SLACK: dict[str, Kind] = {
    "slack_factor": Number(nullable=True),
    "slack_amount": Number(nullable=True),
}
_TRUNCATION = Record(
    "early_termination",
    {**_WAIT, "truncation_percentage": _INTEGER, "exclude_finished_jobs": Flag()},
    required=("truncation_percentage",),
)
EARLY_TERMINATION = ByType(
    {
        "bandit": Record("early_termination", {**_WAIT, **_SLACK}),
        "median_stopping": Record("early_termination", _WAIT),
        "truncation_selection": _TRUNCATION,
    },
    fold=snake,
)

_RANDOM: dict[str, Kind] = {
    "type": Text(),
    "seed": _INTEGER,
    "rule": OneOf("random", "sobol"),
    "logbase": _NumberOrText(),
}
_ALGORITHMS = {
    "random": Record("sampling_algorithm", _RANDOM),
    "grid": Record("sampling_algorithm", {"type": Text()}),
    "bayesian": Record("sampling_algorithm", {"type": Text()}),
}


_ALGORITHM = ByType(_ALGORITHMS)
_ALGORITHM_NAME = OneOf(*_ALGORITHMS)


class SamplingAlgorithmKind(Kind):
    """A sampling algorithm: its name, or a mapping with its name as ``type``."""

    def take(self, node: Node, path: str, report: Report) -> Any:
        if isinstance(node, Mapping):
            return _ALGORITHM.check(node, path, report)
        return _ALGORITHM_NAME.check(node, path, report)

    def json_schema(self, schemas: Schemas) -> dict[str, Any]:
        return {"anyOf": [_ALGORITHM_NAME.json_schema(schemas), schemas.make(_ALGORITHM)]}


class TrialKind(Kind):
    """The program of every trial: written out, or a component by reference."""

    word = "a mapping with 'command'"

    def take(self, node: Node, path: str, report: Report) -> Any:
        if isinstance(node, Mapping):
            return TRIAL.check(node, path, report)
        value = node.value if isinstance(node, Scalar) else None
        if isinstance(value, str) and value.startswith("azureml:"):
            return value
        if isinstance(value, str) and value.startswith("file:"):
            from drumline.spec.schema.component import COMPONENT

            check_file(value, COMPONENT, node, path, report)
            return value
        report.add(f"{path} must be {self.word}, got {quote_node(node)}", node, path)
        return None

    def json_schema(self, schemas: Schemas) -> dict[str, Any]:
        named = {"type": "string", "pattern": "^(azureml:|file:)"}
        return {"anyOf": [named, schemas.make(TRIAL)]}


TRIAL = Record(
    "trial",
    {**PROGRAM, "additional_includes": ListOf(Text()), "drumline": DRUMLINE},
    required=("command",),
    ignored=("$schema",),
)
LIMITS = Record("limits", to_kinds(fields.SWEEP_LIMITS), required=("max_total_trials",))
OBJECTIVE = Record(
    "objective",
    {"goal": OneOf("minimize", "maximize"), "primary_metric": Text()},
    required=("goal", "primary_metric"),
)
SEARCH: dict[str, Kind] = {
    "sampling_algorithm": SamplingAlgorithmKind(),
    "search_space": MapOf(SPACE),
    "objective": OBJECTIVE,
    "early_termination": EARLY_TERMINATION,
    "limits": LIMITS,
    "queue_settings": QUEUE_SETTINGS,
    "resources": RESOURCES,
}
"""What a sweep job and a sweep node of a pipeline share."""

SWEEP_JOB = Record(
    "a sweep job",
    {
        "type": OneOf("sweep", fold=str),
        **BASE,
        **SEARCH,
        "trial": TrialKind(),
        "inputs": INPUTS,
        "outputs": OUTPUTS,
        "parent_job_name": Text(),
    },
    required=("trial", "objective", "limits"),
    ignored=READ_ONLY,
)
