"""A command: one command line, run as one process per rank. The job, and the component."""

from __future__ import annotations

import re
from copy import deepcopy

from drumline.contract.errors import SpecError
from drumline.spec import builder
from drumline.spec.hints import refuse_unknown
from drumline.spec.jobs.component import Component, declare_job, make_tables
from drumline.spec.jobs.job import DRUMLINE, READ_ONLY, VARIABLES, Calling, RankProgram
from drumline.spec.kinds.fields import Any, OrEmpty, field
from drumline.spec.kinds.records import Record, list_fields
from drumline.spec.kinds.values import (
    Anything,
    ListOf,
    MapOf,
    OneOf,
    Text,
    join,
)
from drumline.spec.parts.environment import base_of, settle_environment
from drumline.spec.parts.resources import (
    LIMITS,
    LOOSE_DISTRIBUTION,
    LOOSE_RESOURCES,
    RESOURCES,
    CommandJobLimits,
    JobResourceConfiguration,
    QueueSettings,
)
from drumline.spec.paths import is_remote, resolve
from drumline.spec.reading.source import Mapping, Scalar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drumline.spec.jobs.sweep import SweepJob
    from drumline.spec.kinds.fields import Field
    from drumline.spec.kinds.values import Kind, Report
    from drumline.spec.reading.source import Node


_TEXT = Text()
_BOUND = r"\$\{\{\s*(inputs|outputs|search_space)\.([\w.-]+)\s*\}\}"
_COMPONENT_FIELDS = ("command", "code", "environment", "distribution", "resources", "queue_settings")


class CommandComponent(RankProgram, Component):
    """One command line. A call with inputs gives a node of a pipeline, which can be submitted alone too."""

    type = "command"
    additional_includes: OrEmpty[list[str]] = field(
        ListOf(_TEXT), "Further files and folders that are copied beside the code.", factory=list
    )
    properties: OrEmpty[dict[str, Any]] = field(MapOf(Anything()), factory=dict)
    instance_count: int | None = field(None, default=None)

    def _settle_arguments(self, others: dict[str, Any]) -> None:
        super()._settle_arguments(others)
        count = self.__dict__.pop("instance_count")
        if count is not None:
            if self.resources is not None:
                raise SpecError("resources and instance_count exclude each other", "keep one")
            self.resources = {"instance_count": count}

    def __call__(self, *args: Any, **kwargs: Any) -> Command:
        """Return a job of this component. Raises SpecError for an input that is not declared."""
        return Command(component=self, inputs=self._bind_arguments(args, kwargs))

    def _settle(self, values: dict[str, Any]) -> None:
        given = self.environment or None
        settle_environment(values, given, self, absolute=True, base=base_of(given, self))
        if isinstance(values.get("code"), str) and not is_remote(values["code"]):
            values["code"] = resolve(self, values["code"])
        if self.additional_includes:
            values["additional_includes"] = [resolve(self, path) for path in self.additional_includes]


class Command(RankProgram, Calling):
    """
    A job as YAML or ``command()`` describes it; azure-ai-ml's ``Command`` and ``CommandJob`` in
    one.

    Setting ``distribution``, ``resources``, ``limits``, ``environment``... to a dictionary turns it
    into the object.
    """

    type = "command"
    _adopted = ("distribution", "resources")
    _input_example = "job(lr=0.1)"
    environment_variables: OrEmpty[dict[str, Any]] = field(
        VARIABLES, "Environment variables of every rank.", factory=dict
    )
    limits: Any = field(LIMITS, "Limits of time and number.", default=None)
    component: Any = field(Anything(), default=None)
    drumline: OrEmpty[dict[str, Any]] = field(DRUMLINE, "Settings that only Drumline has.", factory=dict)
    """
    Our own settings: ``grace``, the seconds between asking ranks to end and killing them;
    ``hang_after``, the seconds without a sign of life after which a job hangs (0: never), and
    ``hang_action``, what is done then, "report", "end" or "restart"; ``max_restarts``, how often all ranks
    are started again when one fails, and ``restart_on``, for which failures only;
    ``once``, whether the command runs on node 0 alone; ``mpi``, "launcher" or "environment";
    ``mount``, whether inputs that are elsewhere are mounted: "auto", "always" or "never";
    ``warm``, whether ranks are forked from an interpreter that has their imports: "auto", "on" or "off";
    ``chief`` and ``evaluator``, whether TensorFlow has these tasks too;
    ``secrets``, the names of variables whose values are taken at submission, and stored nowhere;
    ``notify``, whom to tell of its end and troubles.
    """

    def _implied_component(self) -> CommandComponent:
        own = {name: deepcopy(getattr(self, name)) for name in _COMPONENT_FIELDS}
        with builder.building(None):
            return CommandComponent(**declare_job(self), **own, properties=self.properties)

    @property
    def parameters(self) -> dict[str, str]:
        """Return azure-ai-ml's MLflow parameters of a stored job; none here."""
        return {}

    def set_resources(
        self,
        *,
        instance_type: str | list[str] | None = None,
        instance_count: int | None = None,
        locations: list[str] | None = None,
        properties: dict[str, Any] | None = None,
        docker_args: str | list[str] | None = None,
        shm_size: str | None = None,
        **kwargs: Any,
    ) -> None:
        """Set those given, and leave the others as they are. Raises SpecError for a keyword that is not known."""
        given = {**locals(), **kwargs}
        refuse_unknown(kwargs, JobResourceConfiguration._fields, "resources")
        given = {name: given[name] for name in JobResourceConfiguration._fields if name in given}
        self._set_given("resources", JobResourceConfiguration, given)

    def set_limits(self, *, timeout: int, **kwargs: Any) -> None:
        """Set the limits. ``timeout``: seconds. Raises SpecError for an unknown keyword."""
        refuse_unknown(kwargs, CommandJobLimits._fields, "limits")
        self._set_given("limits", CommandJobLimits, {"timeout": timeout})

    def set_queue_settings(
        self, *, job_tier: str | None = None, priority: str | None = None, **kwargs: Any
    ) -> None:
        refuse_unknown(kwargs, QueueSettings._fields, "queue_settings")
        self._set_given("queue_settings", QueueSettings, {"job_tier": job_tier, "priority": priority})

    def sweep(  # noqa: PLR0913 - azure-ai-ml's signature
        self,
        *,
        primary_metric: str,
        goal: str,
        sampling_algorithm: Any = "random",
        compute: str | None = None,
        max_concurrent_trials: int | None = None,
        max_total_trials: int | None = None,
        timeout: int | None = None,
        trial_timeout: int | None = None,
        early_termination_policy: Any = None,
        search_space: dict[str, Any] | None = None,
        identity: Any = None,
        queue_settings: Any = None,
        job_tier: str | None = None,
        priority: str | None = None,
        **kwargs: Any,
    ) -> SweepJob:
        """
        Return a sweep over those inputs that are parameter expressions, such as ``Uniform(0.01, 0.9)``.

        timeout, trial_timeout: seconds. Raises SpecError.
        """
        given = {name: value for name, value in locals().items() if name not in ("self", "kwargs")}
        from drumline.spec.jobs.sweep import sweep_of

        refuse_unknown(kwargs, tuple(given), "sweep")
        return sweep_of(self, **given)


CommandJob = Command
_FIELDS = list_fields(Command, type=OneOf("command", fold=str), resources=RESOURCES)
del _FIELDS["component"]
COMMAND_JOB = Record("a command job", _FIELDS, required=("command",), ignored=(*READ_ONLY, "parameters"))
PYTHON_COMMAND_JOB = Record(
    "a command job",
    {**_FIELDS, "resources": Command._declarations["resources"]},
    required=("command",),
    ignored=(*READ_ONLY, "parameters"),
)


class CommandComponentRecord(Record):
    """A command with declared inputs and outputs; one in a file of its own, to be registered, has a name."""

    def __init__(self, noun: str, fields: dict[str, Kind | Field], **more: Any) -> None:
        super().__init__(noun, {key: held for key, held in fields.items() if key != "properties"}, **more)

    def take(self, node: Node, path: str, report: Report) -> Any:
        before = report.count
        values = super().take(node, path, report)
        if isinstance(node, Mapping) and report.count == before:
            self._check_bindings(node, values, path, report)
        return values

    def _check_bindings(self, node: Mapping, values: dict[str, Any], path: str, report: Report) -> None:
        command = node.get("command")
        if not isinstance(command, Scalar):
            return
        for group, name in dict.fromkeys(re.findall(_BOUND, str(command.value))):
            owner = name.removesuffix(".path")
            if owner not in (values.get(group) or {}):
                here = join(path, "command")
                what = f"{here} refers to ${{{{{group}.{name}}}}}, which is not declared"
                hint = f"write ${{{{inputs.{name}}}}}, and declare it: a sweep gives its trials a value each"
                report.add(what, command, here, hint if group == "search_space" else "")


COMPONENT, NAMED_COMPONENT = make_tables(
    "a component",
    CommandComponent,
    "command",
    make=CommandComponentRecord,
    distribution=LOOSE_DISTRIBUTION,
    resources=LOOSE_RESOURCES,
)
_FLAT = (
    ("resources", JobResourceConfiguration),
    ("limits", CommandJobLimits),
    ("queue_settings", QueueSettings),
)
"""The parts of a job whose fields ``command()`` takes as keywords."""


def command(  # noqa: PLR0913 - azure-ai-ml's signature
    *,
    name: str | None = None,
    description: str | None = None,
    tags: dict[str, str] | None = None,
    properties: dict[str, str] | None = None,
    display_name: str | None = None,
    command: str | None = None,
    experiment_name: str | None = None,
    environment: Any = None,
    environment_variables: dict[str, Any] | None = None,
    distribution: Any = None,
    compute: str | None = None,
    inputs: dict[str, Any] | None = None,
    outputs: dict[str, Any] | None = None,
    instance_count: int | None = None,
    instance_type: str | list[str] | None = None,
    locations: list[str] | None = None,
    docker_args: str | list[str] | None = None,
    shm_size: str | None = None,
    timeout: int | None = None,
    code: Any = None,
    identity: Any = None,
    is_deterministic: bool = True,
    services: dict[str, Any] | None = None,
    job_tier: str | None = None,
    priority: str | None = None,
    parent_job_name: str | None = None,
    resources: Any = None,
    limits: Any = None,
    queue_settings: Any = None,
    component: Any = None,
    drumline: dict[str, Any] | None = None,
    **kwargs: Any,
) -> Command:
    """
    Make a command job from flat keywords.

    timeout: seconds. A whole ``resources=``, ``limits=`` or ``queue_settings=`` gives way to the flat ones.
    ``drumline``: our own settings, as in a job file. Raises SpecError for an unknown keyword or a wrong type.
    """
    given = {name: value for name, value in locals().items() if name != "kwargs"}
    flat = {
        name: given.pop(name)
        for _, part in _FLAT
        for name in part._fields
        if name in given and name != "properties"
    }
    job = Command(**given, **kwargs)
    for attribute, part in _FLAT:
        chosen = {name: flat[name] for name in part._fields if flat.get(name) is not None}
        if chosen:
            job._set_given(attribute, part, chosen)
    return job
