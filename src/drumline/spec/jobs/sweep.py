"""A sweep job: many trials of one command over a search space; and the program of a trial."""

from __future__ import annotations

import re
from copy import deepcopy

from drumline.contract.errors import SpecError
from drumline.spec import builder
from drumline.spec.entity_types import component_class, component_table
from drumline.spec.hints import refuse_unknown
from drumline.spec.jobs.component import Component, component_of, declare_inputs, fill_command, find_component
from drumline.spec.jobs.job import DRUMLINE, READ_ONLY, VARIABLES, Job, RankProgram, settle
from drumline.spec.kinds.fields import Any, Declared, Located, MadeOf, OrEmpty, field
from drumline.spec.kinds.locations import check_file
from drumline.spec.kinds.records import Record, list_fields
from drumline.spec.kinds.values import JSON_REFERENCE, Kind, ListOf, OneOf, Text, quote_node
from drumline.spec.parts.environment import give_folder
from drumline.spec.parts.resources import QUEUE_SETTINGS, RESOURCES, QueueSettings
from drumline.spec.parts.search import (
    EARLY_TERMINATION,
    OBJECTIVE,
    SAMPLING_ALGORITHM,
    SPACES,
    SWEEP_LIMITS,
    Objective,
    ParameterExpression,
    SearchSpace,
    SweepJobLimits,
)
from drumline.spec.paths import resolve
from drumline.spec.reading.source import Mapping

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from drumline.spec.jobs.component import Lookup
    from drumline.spec.kinds.values import Report
    from drumline.spec.reading.source import Node


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
    json_choices = (JSON_REFERENCE, TRIAL)

    def adopt(self, value: Any) -> Any:
        return to_trial(value)

    def take(self, node: Node, path: str, report: Report) -> Any:
        if isinstance(node, Mapping):
            return TRIAL.check(node, path, report)
        value = node.value
        if isinstance(value, str) and value.startswith("azureml:"):
            return value
        if isinstance(value, str) and value.startswith("file:"):
            check_file(value, component_table("command", named=False), node, path, report)
            return value
        report.add(f"{path} must be {self.word}, got {quote_node(node)}", node, path)
        return None


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
    give_folder(program.environment, program._base_path)
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


class SweepSearch(Declared):
    """What a sweep job and a sweep node of a pipeline share."""

    trial: Any = field(TrialKind(), "The program of each trial.", default=None)
    search_space: MadeOf[SearchSpace] = field(
        SPACES, "The parameters to search, each with its distribution.", factory=SearchSpace
    )
    objective: Any = field(OBJECTIVE, "The metric to optimize.", default=None)
    sampling_algorithm: Any = field(SAMPLING_ALGORITHM, "How the next parameters are chosen.", default=None)
    early_termination: Any = field(
        EARLY_TERMINATION, "When a trial that lags behind is stopped.", default=None
    )
    limits: Any = field(SWEEP_LIMITS, "Limits of time and number.", default=None)
    resources: Any = field(RESOURCES, "The number of nodes and what each of them has.", default=None)
    queue_settings: Any = field(QUEUE_SETTINGS, "The priority of the job.", default=None)


class SweepJob(SweepSearch, Job):
    """
    Setting ``trial``, ``objective``, ``limits``, ``search_space``... to a dictionary turns it into the object.

    What a sweep lacks it takes from a ``trial`` that is a command job: compute, inputs, outputs, the limit on time.
    """

    type = "sweep"

    def _settle_arguments(self, others: dict[str, Any]) -> None:
        super()._settle_arguments(others)
        self._take_after(self.trial)
        builder.register(self)

    def set_limits(
        self,
        *,
        max_concurrent_trials: int | None = None,
        max_total_trials: int | None = None,
        timeout: int | None = None,
        trial_timeout: int | None = None,
    ) -> None:
        """Set those given, and leave the others as they are. Times are in seconds."""
        given = {name: value for name, value in locals().items() if name != "self"}
        self._set_given("limits", SweepJobLimits, given)

    def set_objective(self, *, goal: str | None = None, primary_metric: str | None = None) -> None:
        """Set those given, and leave the others as they are."""
        before = self.objective or Objective(None)
        self.objective = Objective(goal or before.goal, primary_metric or before.primary_metric)

    def _take_after(self, trial: Any) -> None:
        """Take what the sweep lacks from a trial that is a command job; a component has no values to give."""
        if not isinstance(trial, Job):
            return
        builder.withdraw(trial)
        job: Any = trial
        self.compute = self.compute or job.compute
        self._base_path = self._base_path or job._base_path
        given, space = split_search_space(job.inputs)
        self.inputs = self.inputs or deepcopy(given)
        self.outputs = self.outputs or deepcopy(job.outputs)
        for name, expression in space.items():
            self.search_space.setdefault(name, deepcopy(expression))
        timeout = job.limits.timeout if job.limits else None
        if timeout is not None and (self.limits is None or self.limits.trial_timeout is None):
            self.set_limits(trial_timeout=timeout)

    def _values(self) -> dict[str, Any]:
        values = super()._values()
        if "trial" in values:
            values["trial"] = self._program()
        return values

    def _program(self) -> ParameterizedCommand | str | None:
        """Return the program of the trials; text where it is a component that somebody has to read or look up."""
        if self.trial is None or isinstance(self.trial, (str, ParameterizedCommand)):
            return self.trial
        return copy_program(self.trial, self.search_space)

    def _settle(self, values: dict[str, Any], *, absolute: bool) -> None:
        super()._settle(values, absolute=absolute)
        program = self._program()
        if isinstance(program, str) and absolute and not program.startswith("azureml:"):
            values["trial"] = "file:" + resolve(self, program)
        if not isinstance(program, ParameterizedCommand):
            return
        is_elsewhere = bool(program._base_path) and program._base_path != self._base_path
        program = with_base_path(program, self._base_path)
        settle(values["trial"], program, absolute=absolute or is_elsewhere)
        if program.additional_includes and (absolute or is_elsewhere):
            paths = [resolve(program, path) for path in program.additional_includes]
            values["trial"]["additional_includes"] = paths


Sweep = SweepJob


SWEEP_JOB = Record(
    "a sweep job",
    list_fields(SweepJob, type=OneOf("sweep", fold=str)),
    required=("trial", "objective", "limits"),
    ignored=READ_ONLY,
)


def split_search_space(inputs: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the inputs that have a value, and those that are hyperparameters."""
    space = {name: value for name, value in inputs.items() if isinstance(value, ParameterExpression)}
    return {name: value for name, value in inputs.items() if name not in space}, space


def resolve_trial(sweep: SweepJob, lookup: Lookup) -> ParameterizedCommand:
    """
    Return the program of the trials, with its own base path. ``lookup``: finds a registered component.

    Raises SpecError for a trial that is not there or not a command, NotFoundError.
    """
    trial = sweep.trial
    if isinstance(trial, str):
        trial = find_component(trial, sweep.base_path, lookup)
        if not is_command(trial):
            what = f"trial: {sweep.trial!r} is not a command component"
            raise SpecError(what, "a pipeline cannot be a trial")
    if trial is None:
        raise SpecError("the sweep has no trial", "set trial=command(...)")
    program = trial if isinstance(trial, ParameterizedCommand) else copy_program(trial, sweep.search_space)
    return with_base_path(program, sweep._base_path)


def sweep_of(  # noqa: PLR0913 - azure-ai-ml's signature
    job: Any,
    *,
    primary_metric: str,
    goal: str,
    sampling_algorithm: Any = "random",
    compute: str | None = None,
    early_termination_policy: Any = None,
    search_space: dict[str, Any] | None = None,
    identity: Any = None,
    queue_settings: Any = None,
    job_tier: str | None = None,
    priority: str | None = None,
    **limits: int | None,
) -> SweepJob:
    """
    Return the sweep of a job, as ``Command.sweep`` does; the job itself is left as it is.

    The job's inputs that are parameter expressions become the search space, and so does ``search_space``.

    limits: those of the sweep. Raises SpecError.
    """
    # With the defaults that its component declares.
    whole: Any = job if isinstance(job.called_component, str) else inline_component(job)
    inputs, space = split_search_space(dict(whole.inputs))
    space |= search_space or {}
    if job_tier is not None or priority is not None:
        queue_settings = QueueSettings(job_tier=job_tier, priority=priority)
    builder.withdraw(job)
    made = SweepJob(
        search_space=deepcopy(space),
        objective=Objective(goal, primary_metric),
        sampling_algorithm=sampling_algorithm,
        early_termination=early_termination_policy,
        compute=compute or job.compute,
        inputs={name: deepcopy(value) for name, value in inputs.items() if name not in space},
        outputs=deepcopy(job.outputs),
        queue_settings=queue_settings,
        identity=identity or deepcopy(job.identity),
        name=job.name,
        display_name=job.display_name,
        description=job.description,
        experiment_name=job.experiment_name,
        tags=dict(job.tags),
        properties=dict(job.properties),
        base_path=job._base_path,
    )
    made.trial = (
        job.called_component
        if isinstance(job.called_component, str)
        else copy_program(job, made.search_space)
    )
    limits["trial_timeout"] = limits.get("trial_timeout") or (job.limits.timeout if job.limits else None)
    made.set_limits(**limits)
    return made
