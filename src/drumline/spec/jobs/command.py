"""A command: one command line, run as one process per rank. The job, and the component."""

from __future__ import annotations

from copy import deepcopy

from drumline.contract.errors import SpecError
from drumline.spec import builder
from drumline.spec.entity import text_path
from drumline.spec.jobs.calling import Calling
from drumline.spec.jobs.component import Component, declare_job
from drumline.spec.jobs.job import to_services
from drumline.spec.keywords import refuse_unknown
from drumline.spec.kinds.parts import adopter
from drumline.spec.parts.distribution import DISTRIBUTION
from drumline.spec.parts.environment import Environment, base_of, settle_environment, to_environment
from drumline.spec.parts.io import Inputs, Outputs, fill
from drumline.spec.parts.resources import (
    IDENTITY,
    LIMITS,
    PYTHON_RESOURCES,
    QUEUE_SETTINGS,
    CommandJobLimits,
    JobResourceConfiguration,
    QueueSettings,
)
from drumline.spec.paths import is_remote, resolve

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from drumline.spec.jobs.sweep import SweepJob


_COMPONENT_FIELDS = ("command", "code", "environment", "distribution", "resources", "queue_settings")


class CommandComponent(Component):
    """One command line. A call with inputs gives a node of a pipeline, which can be submitted alone too."""

    type = "command"
    _fields = (
        *Component._fields, "command", "code", "environment", "distribution", "resources", "queue_settings",
        "additional_includes", "properties",
    )  # fmt: skip

    def __init__(  # noqa: PLR0913 - azure-ai-ml's signature
        self,
        *,
        command: str | None = None,
        code: Any = None,
        environment: Any = None,
        distribution: Any = None,
        resources: Any = None,
        queue_settings: Any = None,
        instance_count: int | None = None,
        additional_includes: list[str] | None = None,
        properties: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.command = command
        self.code = text_path(code)
        self.environment: Environment | str | None = to_environment(environment)
        self.distribution = adopter(DISTRIBUTION)(distribution)
        self.resources = adopter(PYTHON_RESOURCES)(resources)
        if instance_count is not None:
            if resources is not None:
                raise SpecError("resources and instance_count exclude each other", "keep one")
            self.resources = adopter(PYTHON_RESOURCES)({"instance_count": instance_count})
        self.queue_settings = adopter(QUEUE_SETTINGS)(queue_settings)
        self.additional_includes = list(additional_includes or [])
        self.properties = dict(properties or {})

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


class Command(Calling):
    """
    A job as YAML or ``command()`` describes it; azure-ai-ml's ``Command`` and ``CommandJob`` in
    one.

    Setting ``distribution``, ``resources``, ``limits``, ``environment``... to a dictionary turns it
    into the object.
    """

    type = "command"
    _adopted = ("distribution", "resources")
    _input_example = "job(lr=0.1)"
    _fields = (
        "type",
        "name",
        "display_name",
        "experiment_name",
        "description",
        "tags",
        "properties",
        "command",
        "code",
        "environment",
        "environment_variables",
        "compute",
        "inputs",
        "outputs",
        "distribution",
        "resources",
        "limits",
        "queue_settings",
        "identity",
        "services",
        "component",
        "parent_job_name",
        "drumline",
    )

    def __init__(  # noqa: PLR0913
        self,
        *,
        command: str | None = None,
        code: Any = None,
        environment: Any = None,
        environment_variables: dict[str, Any] | None = None,
        inputs: dict[str, Any] | None = None,
        outputs: dict[str, Any] | None = None,
        distribution: Any = None,
        resources: Any = None,
        limits: Any = None,
        queue_settings: Any = None,
        identity: Any = None,
        component: Any = None,
        parent_job_name: str | None = None,
        drumline: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.component = component
        self._is_deterministic = bool(kwargs.get("is_deterministic", True))
        self.command = command
        self.code = code
        self.environment = environment
        self.environment_variables: dict[str, Any] = _mapping(environment_variables)
        self.inputs: Inputs = inputs  # type: ignore[assignment]
        self.outputs: Outputs = outputs  # type: ignore[assignment]
        self.distribution = distribution
        self.resources = resources
        self.limits = limits
        self.queue_settings = queue_settings
        self.identity = identity
        self.parent_job_name = parent_job_name
        self.drumline: dict[str, Any] = dict(drumline or {})
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
        self._become_node()

    @staticmethod
    def _converters() -> dict[str, Any]:
        return _CONVERTERS

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
        from drumline.spec.jobs.sweep import SWEEP_KEYWORDS, sweep_of

        refuse_unknown(kwargs, SWEEP_KEYWORDS, "sweep")
        return sweep_of(
            self,
            primary_metric=primary_metric,
            goal=goal,
            sampling_algorithm=sampling_algorithm,
            compute=compute,
            max_concurrent_trials=max_concurrent_trials,
            max_total_trials=max_total_trials,
            timeout=timeout,
            trial_timeout=trial_timeout,
            early_termination_policy=early_termination_policy,
            search_space=search_space,
            identity=identity,
            queue_settings=queue_settings,
            job_tier=job_tier,
            priority=priority,
        )


def _mapping(value: Any) -> dict[str, Any]:
    """Return a copy of a mapping. Raises SpecError for a value that is none."""
    if not isinstance(value or {}, dict):
        kind = type(value).__name__
        raise SpecError(f"environment_variables cannot be of type {kind!r}", "give a mapping of names")
    return dict(value or {})


_CONVERTERS: dict[str, Any] = {
    "code": text_path,
    "environment": to_environment,
    "inputs": lambda value: fill(Inputs(), value),
    "outputs": lambda value: fill(Outputs(), value),
    "distribution": adopter(DISTRIBUTION),
    "resources": adopter(PYTHON_RESOURCES),
    "limits": adopter(LIMITS),
    "queue_settings": adopter(QUEUE_SETTINGS),
    "identity": adopter(IDENTITY),
    "services": to_services,
}

CommandJob = Command
_FLAT = (
    ("resources", JobResourceConfiguration, JobResourceConfiguration._fields),
    ("limits", CommandJobLimits, CommandJobLimits._fields),
    ("queue_settings", QueueSettings, QueueSettings._fields),
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
        for _, _, declared in _FLAT
        for name in declared
        if name in given and name != "properties"
    }
    job = Command(**given, **kwargs)
    for attribute, make, declared in _FLAT:
        chosen = {name: flat[name] for name in declared if flat.get(name) is not None}
        if chosen:
            job._set_given(attribute, make, chosen)
    return job
