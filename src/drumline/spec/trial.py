"""What every trial of a sweep runs: a program written out, a command job, or a component."""

from __future__ import annotations

import os
import re
from copy import deepcopy

from drumline.contract.errors import SpecError
from drumline.spec.component import CommandComponent
from drumline.spec.distribution import to_distribution
from drumline.spec.entity import Entity, text_path
from drumline.spec.environment import to_environment
from drumline.spec.resources import to_queue_settings, to_resources

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from drumline.spec.command import Command
    from drumline.spec.steps import Lookup
    from drumline.spec.sweep import SweepJob

_OF_COMPONENTS = ("name", "version", "inputs", "outputs", "is_deterministic")
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
        """The folder that relative paths resolve against."""
        return self._base_path or os.getcwd()


_CONVERTERS: dict[str, Any] = {
    "code": text_path,
    "environment": to_environment,
    "resources": to_resources,
    "distribution": to_distribution,
    "queue_settings": to_queue_settings,
}


def to_trial(value: Any) -> Any:
    """
    Text refers to a component: ``azureml:...``, or a file of one. A mapping with ``inputs`` or ``name`` is a
    component too. Raises SpecError for what no trial can be made of.
    """
    from drumline.spec.command import Command

    if value is None or isinstance(value, (str, ParameterizedCommand, CommandComponent, Command)):
        return value
    if not isinstance(value, dict):
        what = f"trial cannot be of type {type(value).__name__!r}"
        raise SpecError(what, "give command(...), a component or a mapping with 'command'")
    given = {key: item for key, item in value.items() if key not in ("type", "$schema")}
    if any(key in given for key in _OF_COMPONENTS):
        return CommandComponent(**given)
    unknown = next((key for key in given if key not in ParameterizedCommand._fields), None)
    if unknown is not None:
        raise SpecError(f"trial has no {unknown!r}", "it has " + ", ".join(ParameterizedCommand._fields))
    return ParameterizedCommand(**given)


def as_written(sweep: SweepJob) -> ParameterizedCommand | str | None:
    """The program of the trials; text where it is a component that somebody has to read or look up."""
    trial = sweep.trial
    if trial is None or isinstance(trial, str):
        return trial
    if isinstance(trial, ParameterizedCommand):
        return trial
    return program_of(trial, sweep)


def settled(values: dict[str, Any], sweep: SweepJob, *, absolute: bool) -> None:
    """In ``values``, the sweep as plain data, the trial gets what ``dump.to_dict`` gives a command job."""
    from drumline.spec.dump import settle
    from drumline.spec.paths import resolve

    program = as_written(sweep)
    if isinstance(program, str) and absolute and not program.startswith("azureml:"):
        values["trial"] = "file:" + resolve(sweep, program)
    if not isinstance(program, ParameterizedCommand):
        return
    is_elsewhere = bool(program._base_path) and program._base_path != sweep._base_path
    program = _based(program, sweep._base_path)
    settle(values["trial"], program, absolute=absolute or is_elsewhere)
    if program.additional_includes and (absolute or is_elsewhere):
        paths = [resolve(program, path) for path in program.additional_includes]
        values["trial"]["additional_includes"] = paths


def _based(program: ParameterizedCommand, base_path: str) -> ParameterizedCommand:
    """A copy whose paths resolve against a folder of its own."""
    program = deepcopy(program)
    program._base_path = program._base_path or base_path
    environment = program.environment
    if environment is not None and not isinstance(environment, str) and not environment._base_path:
        environment._base_path = program._base_path
    return program


def resolved(sweep: SweepJob, lookup: Lookup) -> ParameterizedCommand:
    """
    The program of the trials, with its own base path. ``lookup``: finds a registered component.

    Raises SpecError for a trial that is not there or not a command, NotFoundError.
    """
    trial = sweep.trial
    if isinstance(trial, str):
        trial = _component(trial, sweep.base_path, lookup)
    if trial is None:
        raise SpecError("the sweep has no trial", "set trial=command(...)")
    program = trial if isinstance(trial, ParameterizedCommand) else program_of(trial, sweep)
    return _based(program, sweep._base_path)


def _component(text: str, base_path: str, lookup: Lookup) -> CommandComponent:
    if text.startswith("azureml:"):
        found = lookup(text)
    else:
        from drumline.spec.load import load_component

        found = load_component(os.path.join(base_path, text.removeprefix("file:")), named=False)
    if not isinstance(found, CommandComponent):
        raise SpecError(f"trial: {text!r} is not a command component", "a pipeline cannot be a trial")
    return found


def program_of(source: Command | CommandComponent, sweep: SweepJob | None = None) -> ParameterizedCommand:
    """A copy of what a job or component runs, in which ``${{inputs.x}}`` is a hyperparameter where the sweep has it."""
    if getattr(source, "called", None) is not None:
        from drumline.spec.steps import filled_in

        source = filled_in(source, no_lookup)  # type: ignore[arg-type, assignment]
    given = {
        name: deepcopy(getattr(source, name))
        for name in ParameterizedCommand._fields
        if getattr(source, name, None) is not None
    }
    given["additional_includes"] = given.get("additional_includes") or getattr(source, "_includes", None)
    program = _based(ParameterizedCommand(**given), source._base_path)
    program.command = with_space(str(program.command or ""), sweep.search_space if sweep else ())
    return program


def no_lookup(reference: str) -> Any:
    raise SpecError(
        f"trial: {reference!r} is looked up when the sweep is submitted",
        f"give it as it is: SweepJob(trial={reference!r}, search_space=...)",
    )


def with_space(command: str, names: Iterable[str]) -> str:
    """
    The command with those of its inputs as hyperparameters.

    >>> with_space("a ${{inputs.lr}} ${{inputs.lrs}}", ["lr"])
    'a ${{search_space.lr}} ${{inputs.lrs}}'
    """
    known = set(names)

    def renamed(match: re.Match[str]) -> str:
        return f"{{{match[1]}search_space.{match[2]}{match[3]}}}" if match[2] in known else match[0]

    return re.sub(r"\{(\s*)inputs\.([\w.-]+)(\s*)\}", renamed, command)
