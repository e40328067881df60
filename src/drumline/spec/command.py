"""A command job: one command line, run as one process per rank."""

from __future__ import annotations

from drumline.contract.errors import SpecError
from drumline.spec.calling import Calling
from drumline.spec.distribution import to_distribution
from drumline.spec.entity import text_path
from drumline.spec.environment import to_environment
from drumline.spec.identity import to_identity
from drumline.spec.io import Inputs, Outputs, fill
from drumline.spec.job import to_services
from drumline.spec.keywords import refuse_unknown
from drumline.spec.resources import (
    CommandJobLimits,
    JobResourceConfiguration,
    QueueSettings,
    to_limits,
    to_queue_settings,
    to_resources,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from drumline.spec.sweep import SweepJob


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
        ``chief`` and ``evaluator``, whether TensorFlow has these tasks too.
        """
        self._become_node()

    @staticmethod
    def _converters() -> dict[str, Any]:
        return _CONVERTERS

    @property
    def parameters(self) -> dict[str, str]:
        """azure-ai-ml's MLflow parameters of a stored job; none here."""
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
        refuse_unknown(kwargs, JobResourceConfiguration._fields, "resources")
        given = {
            **kwargs,
            "instance_type": instance_type,
            "instance_count": instance_count,
            "locations": locations,
            "properties": properties,
            "docker_args": docker_args,
            "shm_size": shm_size,
        }
        self._set_given("resources", JobResourceConfiguration, given)

    def set_limits(self, *, timeout: int, **kwargs: Any) -> None:
        """timeout: seconds. Raises SpecError for a keyword that is not known."""
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
    ) -> SweepJob:
        """
        A sweep over those inputs that are parameter expressions, such as ``Uniform(0.01, 0.9)``.

        timeout, trial_timeout: seconds. Raises SpecError.
        """
        from drumline.spec.sweep import sweep_of

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
    """Raises SpecError for what is none."""
    if not isinstance(value or {}, dict):
        kind = type(value).__name__
        raise SpecError(f"environment_variables cannot be of type {kind!r}", "give a mapping of names")
    return dict(value or {})


_CONVERTERS: dict[str, Any] = {
    "code": text_path,
    "environment": to_environment,
    "inputs": lambda value: fill(Inputs(), value),
    "outputs": lambda value: fill(Outputs(), value),
    "distribution": to_distribution,
    "resources": to_resources,
    "limits": to_limits,
    "queue_settings": to_queue_settings,
    "identity": to_identity,
    "services": to_services,
}

CommandJob = Command


def command(
    *,
    instance_count: int | None = None,
    instance_type: str | list[str] | None = None,
    locations: list[str] | None = None,
    docker_args: str | list[str] | None = None,
    shm_size: str | None = None,
    timeout: int | None = None,
    job_tier: str | None = None,
    priority: str | None = None,
    **kwargs: Any,
) -> Command:
    """
    Make a command job from flat keywords; those of ``Command`` are taken too.

    timeout: seconds. A whole ``resources=``, ``limits=`` or ``queue_settings=`` gives way to the flat ones.
    Raises SpecError for a keyword that is not known.
    """
    job = Command(**kwargs)
    flat = (instance_count, instance_type, locations, docker_args, shm_size)
    if any(value is not None for value in flat):
        job.set_resources(
            instance_count=instance_count,
            instance_type=instance_type,
            locations=locations,
            docker_args=docker_args,
            shm_size=shm_size,
        )
    if timeout is not None:
        job.set_limits(timeout=timeout)
    if job_tier is not None or priority is not None:
        job.set_queue_settings(job_tier=job_tier, priority=priority)
    return job
