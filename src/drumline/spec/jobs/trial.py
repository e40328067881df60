"""The program that every trial of a sweep runs: written out, a command job, or a component."""

from __future__ import annotations

import os
import re
from copy import deepcopy

from drumline.contract.errors import SpecError
from drumline.spec.entity import Entity, text_path
from drumline.spec.entity_types import component_class
from drumline.spec.jobs.called_component import component_of, declare_inputs, fill_command
from drumline.spec.jobs.component import Component
from drumline.spec.jobs.job import Job
from drumline.spec.keywords import refuse_unknown
from drumline.spec.kinds.parts import adopter
from drumline.spec.parts.distribution import DISTRIBUTION
from drumline.spec.parts.environment import to_environment
from drumline.spec.parts.resources import PYTHON_RESOURCES, QUEUE_SETTINGS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any


_COMPONENT_KEYS = ("name", "version", "inputs", "outputs", "is_deterministic")
"""Keys by which a mapping is a component's."""


class ParameterizedCommand(Entity):
    """
    A command line with ``${{search_space.x}}`` in it, and what it needs; azure-ai-ml's name.

    Setting ``distribution``, ``resources``, ``environment``... to a dictionary turns it into the object.
    """

    _fields = (
        "command",
        "code",
        "environment",
        "environment_variables",
        "resources",
        "distribution",
        "queue_settings",
        "additional_includes",
        "drumline",
    )

    def __init__(
        self,
        command: str = "",
        *,
        code: Any = None,
        environment: Any = None,
        environment_variables: dict[str, Any] | None = None,
        resources: Any = None,
        distribution: Any = None,
        queue_settings: Any = None,
        **kwargs: Any,
    ) -> None:
        refuse_unknown(kwargs, (*self._fields, "base_path"), "trial")
        self.command = command
        self.code = code
        self.environment = environment
        self.environment_variables: dict[str, Any] = dict(environment_variables or {})
        self.resources = resources
        self.distribution = distribution
        self.queue_settings = queue_settings
        self.additional_includes: list[str] | None = kwargs.get("additional_includes") or None
        self.drumline: dict[str, Any] = dict(kwargs.get("drumline") or {})
        """As of a command job."""
        self._base_path: str = text_path(kwargs.get("base_path") or "")

    def __setattr__(self, name: str, value: Any) -> None:
        convert = _CONVERTERS.get(name)
        object.__setattr__(self, name, convert(value) if convert else value)

    @property
    def base_path(self) -> str:
        """Return the folder that relative paths resolve against."""
        return self._base_path or os.getcwd()


_CONVERTERS: dict[str, Any] = {
    "code": text_path,
    "environment": to_environment,
    "resources": adopter(PYTHON_RESOURCES),
    "distribution": adopter(DISTRIBUTION),
    "queue_settings": adopter(QUEUE_SETTINGS),
}


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
