"""The program that every trial of a sweep runs: written out, a command job, or a component."""

from __future__ import annotations

import re
from copy import deepcopy

from drumline.contract.errors import SpecError
from drumline.spec.entity_types import component_class, component_table
from drumline.spec.jobs.called_component import component_of, declare_inputs, fill_command
from drumline.spec.jobs.component import Component
from drumline.spec.jobs.job import Job
from drumline.spec.jobs.program import DRUMLINE, VARIABLES, RankProgram
from drumline.spec.keywords import refuse_unknown
from drumline.spec.kinds.fields import Located, field
from drumline.spec.kinds.locations import check_file
from drumline.spec.kinds.records import Record, list_fields
from drumline.spec.kinds.values import Kind, ListOf, Text, quote_node
from drumline.spec.parts.resources import RESOURCES
from drumline.spec.reading.tree import Mapping, Scalar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from drumline.spec.kinds.fields import OrEmpty
    from drumline.spec.kinds.report import Report
    from drumline.spec.kinds.schemas import Schemas
    from drumline.spec.reading.tree import Node

_TEXT = Text()
_COMPONENT_KEYS = ("name", "version", "inputs", "outputs", "is_deterministic")
"""Keys by which a mapping is a component's."""


class ParameterizedCommand(RankProgram, Located):
    """
    A command line with ``${{search_space.x}}`` in it, and what it needs; azure-ai-ml's name.

    Setting ``distribution``, ``resources``, ``environment``... to a dictionary turns it into the object.
    """

    command: str | None = field(_TEXT, "The shell command that every rank runs.", default="", kw_only=False)
    environment_variables: OrEmpty[dict[str, Any]] = field(
        VARIABLES, "Environment variables of every rank.", factory=dict
    )
    additional_includes: list[str] | None = field(
        ListOf(_TEXT), "Further files and folders that are copied beside the code.", default=None
    )
    drumline: OrEmpty[dict[str, Any]] = field(DRUMLINE, "Settings that only Drumline has.", factory=dict)
    """As of a command job."""

    def _settle_arguments(self, others: dict[str, Any]) -> None:
        refuse_unknown(others, self._fields, "trial")
        super()._settle_arguments({})
        self.additional_includes = self.additional_includes or None


TRIAL = Record(
    "trial",
    list_fields(ParameterizedCommand, resources=RESOURCES),
    required=("command",),
    ignored=("$schema",),
)


class TrialKind(Kind):
    """The program of every trial: written out, or a component by reference."""

    word = "a mapping with 'command'"

    def adopt(self, value: Any) -> Any:
        return to_trial(value)

    def take(self, node: Node, path: str, report: Report) -> Any:
        if isinstance(node, Mapping):
            return TRIAL.check(node, path, report)
        value = node.value if isinstance(node, Scalar) else None
        if isinstance(value, str) and value.startswith("azureml:"):
            return value
        if isinstance(value, str) and value.startswith("file:"):
            check_file(value, component_table("command", named=False), node, path, report)
            return value
        report.add(f"{path} must be {self.word}, got {quote_node(node)}", node, path)
        return None

    def json_schema(self, schemas: Schemas) -> dict[str, Any]:
        named = {"type": "string", "pattern": "^(azureml:|file:)"}
        return {"anyOf": [named, schemas.make(TRIAL)]}


def is_command(value: Any) -> bool:
    """Return whether it is a command job or a command component, which both know sweeps, and sweeps them."""
    return isinstance(value, (Job, Component)) and value.type == "command"


def to_trial(value: Any) -> Any:
    """
    Convert a value to a trial. Raises SpecError for what no trial can be made of.

    Text refers to a component: ``azureml:...``, or a file of one. A mapping with ``inputs`` or ``name`` is a component
    too.
    """
    if value is None or isinstance(value, (str, ParameterizedCommand)) or is_command(value):
        return value
    if not isinstance(value, dict):
        what = f"trial cannot be of type {type(value).__name__!r}"
        raise SpecError(what, "give command(...), a component or a mapping with 'command'")
    given = {key: item for key, item in value.items() if key not in ("type", "$schema")}
    if any(key in given for key in _COMPONENT_KEYS):
        return component_class("command")(**given)
    unknown = next((key for key in given if key not in ParameterizedCommand._fields), None)
    if unknown is not None:
        raise SpecError(f"trial has no {unknown!r}", "it has " + ", ".join(ParameterizedCommand._fields))
    return ParameterizedCommand(**given)


def with_base_path(program: ParameterizedCommand, base_path: str) -> ParameterizedCommand:
    """Return a copy whose paths resolve against its own folder."""
    program = deepcopy(program)
    program._base_path = program._base_path or base_path
    environment = program.environment
    if environment is not None and not isinstance(environment, str) and not environment._base_path:
        environment._base_path = program._base_path
    return program


def copy_program(source: Job | Component, search_space: Iterable[str] = ()) -> ParameterizedCommand:
    """Copy what a command runs; its ``${{inputs.x}}`` becomes a hyperparameter where the search space has it."""
    if isinstance(source, Job):
        source = inline_component(source)
    given = {
        name: deepcopy(getattr(source, name))
        for name in ParameterizedCommand._fields
        if getattr(source, name, None) is not None
    }
    given["additional_includes"] = given.get("additional_includes") or getattr(source, "_includes", None)
    program = with_base_path(ParameterizedCommand(**given), source._base_path)
    program.command = bind_search_space(str(program.command or ""), search_space)
    return program


def inline_component(job: Job) -> Job:
    """Copy a command job that needs no component. Raises SpecError for one that is registered, or not a command's."""
    component = component_of(job, _refuse_lookup)
    if component is None:
        return job
    job = deepcopy(job)
    if component.type == "command":
        fill_command(job, component)
    else:
        declare_inputs(job, component)
    return job


def _refuse_lookup(reference: str) -> Any:
    raise SpecError(
        f"trial: {reference!r} is looked up when the sweep is submitted",
        f"give it as it is: SweepJob(trial={reference!r}, search_space=...)",
    )


def bind_search_space(command: str, names: Iterable[str]) -> str:
    """
    Return the command with those of its inputs as hyperparameters.

    >>> bind_search_space("a ${{inputs.lr}} ${{inputs.lrs}}", ["lr"])
    'a ${{search_space.lr}} ${{inputs.lrs}}'
    """
    known = set(names)

    def rename(match: re.Match[str]) -> str:
        return f"{{{match[1]}search_space.{match[2]}{match[3]}}}" if match[2] in known else match[0]

    return re.sub(r"\{(\s*)inputs\.([\w.-]+)(\s*)\}", rename, command)
