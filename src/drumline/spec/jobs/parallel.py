"""The user's ``run(mini_batch)`` over the files of an input: the parallel job, and the component."""

from __future__ import annotations

from copy import deepcopy

from drumline.contract.errors import SpecError
from drumline.spec import builder
from drumline.spec.entity import Entity, text_path
from drumline.spec.jobs.calling import Calling
from drumline.spec.jobs.component import Component, declare_job
from drumline.spec.jobs.job import to_services
from drumline.spec.keywords import refuse_unknown
from drumline.spec.kinds.parts import adopter
from drumline.spec.parts.environment import base_of, settle_environment, to_environment
from drumline.spec.parts.io import Inputs, Outputs, fill
from drumline.spec.parts.resources import IDENTITY, PYTHON_RESOURCES, JobResourceConfiguration, RetrySettings
from drumline.spec.paths import is_remote, resolve

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SETTINGS = (
    "task",
    "mini_batch_size",
    "partition_keys",
    "input_data",
    "retry_settings",
    "logging_level",
    "max_concurrency_per_instance",
    "error_threshold",
    "mini_batch_error_threshold",
)
"""What a job and a component have alike; what the job says itself goes first."""


class RunFunction(Entity):
    """
    The script that processes mini-batches, ``entry_script`` in ``code``: a Python file with ``init()`` and
    ``run(mini_batch)``.
    """

    _fields = (
        "type",
        "code",
        "entry_script",
        "program_arguments",
        "model",
        "append_row_to",
        "environment",
    )

    def __init__(
        self,
        *,
        code: Any = None,
        entry_script: str | None = None,
        program_arguments: str | None = None,
        model: str | None = None,
        append_row_to: str | None = None,
        environment: Any = None,
        **kwargs: Any,
    ) -> None:
        refuse_unknown(kwargs, self._fields, "task")
        self.type = "run_function"
        self.code = text_path(code)
        self.entry_script = entry_script
        self.program_arguments = program_arguments
        self.model = model
        self.append_row_to = append_row_to
        self.environment = to_environment(environment)


class Parallel(Calling):
    """
    A step of a pipeline, or a job by itself; azure-ai-ml's ``Parallel`` and ``ParallelJob`` in one.

    ``component``: a ParallelComponent, or what refers to one, whose settings hold where the job says none.
    """

    type = "parallel"
    _adopted = ("resources", "retry_settings")
    _input_example = "job(data=...)"
    _fields = (
        "type",
        "name",
        "display_name",
        "experiment_name",
        "description",
        "tags",
        "properties",
        "compute",
        "inputs",
        "outputs",
        *SETTINGS,
        "resources",
        "environment_variables",
        "identity",
        "services",
        "component",
        "parent_job_name",
        "drumline",
    )

    def __init__(  # noqa: PLR0913 - azure-ai-ml's signature
        self,
        *,
        task: Any = None,
        mini_batch_size: str | int | None = None,
        partition_keys: list[str] | None = None,
        input_data: str | None = None,
        retry_settings: Any = None,
        logging_level: str | None = None,
        max_concurrency_per_instance: int | None = None,
        error_threshold: int | None = None,
        mini_batch_error_threshold: int | None = None,
        inputs: dict[str, Any] | None = None,
        outputs: dict[str, Any] | None = None,
        resources: Any = None,
        environment_variables: dict[str, Any] | None = None,
        identity: Any = None,
        component: Any = None,
        parent_job_name: str | None = None,
        drumline: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.component = component
        self.task: RunFunction | None = task
        self.mini_batch_size = mini_batch_size
        self.partition_keys = partition_keys
        self.input_data = input_data
        self.retry_settings: RetrySettings | None = retry_settings
        self.logging_level = logging_level
        self.max_concurrency_per_instance = max_concurrency_per_instance
        self.error_threshold = error_threshold
        self.mini_batch_error_threshold = mini_batch_error_threshold
        self.inputs: Inputs = inputs  # type: ignore[assignment]
        self.outputs: Outputs = outputs  # type: ignore[assignment]
        self.resources: JobResourceConfiguration | None = resources
        self.environment_variables = dict(environment_variables or {})
        self.identity = identity
        self.parent_job_name = parent_job_name
        self.drumline = dict(drumline or {})
        self._is_deterministic = bool(kwargs.get("is_deterministic", True))
        self._become_node()

    @staticmethod
    def _converters() -> dict[str, Any]:
        return _CONVERTERS

    def _implied_component(self) -> ParallelComponent:
        own = {name: deepcopy(getattr(self, name)) for name in (*SETTINGS, "resources")}
        with builder.building(None):
            return ParallelComponent(**declare_job(self), **own)

    def _settle(self, values: dict[str, Any], *, absolute: bool) -> None:
        super()._settle(values, absolute=absolute)
        _settle_task(values, self, absolute=absolute)

    def set_resources(self, **given: Any) -> None:
        """Set those given of ``instance_count``, ``instance_type``, ``docker_args``, ``shm_size`` and the like."""
        refuse_unknown(given, JobResourceConfiguration._fields, "resources")
        self._set_given("resources", JobResourceConfiguration, given)


ParallelJob = Parallel


class ParallelComponent(Component):
    """A call with inputs gives a node of a pipeline."""

    type = "parallel"
    _fields = (*Component._fields, *SETTINGS, "resources")

    def __init__(
        self,
        *,
        task: Any = None,
        retry_settings: Any = None,
        resources: Any = None,
        instance_count: int | None = None,
        **kwargs: Any,
    ) -> None:
        given = {name: kwargs.pop(name, None) for name in SETTINGS if name not in ("task", "retry_settings")}
        super().__init__(**kwargs)
        self.mini_batch_size: str | int | None = None
        self.partition_keys: list[str] | None = None
        self.input_data: str | None = None
        self.logging_level: str | None = None
        self.max_concurrency_per_instance: int | None = None
        self.error_threshold: int | None = None
        self.mini_batch_error_threshold: int | None = None
        for name, value in given.items():
            setattr(self, name, value)
        self.task: RunFunction | None = to_task(task)
        self.retry_settings: RetrySettings | None = to_retry_settings(retry_settings)
        flat = None if instance_count is None else {"instance_count": instance_count}
        self.resources = adopter(PYTHON_RESOURCES)(flat if resources is None else resources)

    def __call__(self, *args: Any, **kwargs: Any) -> Parallel:
        """Return a job of this component. Raises SpecError for an input that is not declared."""
        return Parallel(component=self, inputs=self._bind_arguments(args, kwargs))

    def _settle(self, values: dict[str, Any]) -> None:
        _settle_task(values, self, absolute=True)


def _settle_task(values: dict[str, Any], owner: Parallel | ParallelComponent, *, absolute: bool) -> None:
    """Write the environment and code of a task as a file has them."""
    task, written = owner.task, values.get("task")
    if task is None or not isinstance(written, dict):
        return
    base = base_of(task.environment, owner)
    settle_environment(written, task.environment, owner, absolute=absolute, base=base)
    if absolute and isinstance(written.get("code"), str) and not is_remote(written["code"]):
        written["code"] = resolve(owner, written["code"])


def to_task(value: Any) -> Any:
    """Return a task from a mapping. Raises SpecError for a task of another type."""
    if not isinstance(value, dict):
        return value
    kind = str(value.get("type") or "run_function").lower()
    if kind != "run_function":
        raise SpecError(f"task.type: {kind!r} is not supported", "type: run_function")
    return RunFunction(**{key: item for key, item in value.items() if key != "type"})


def to_retry_settings(value: Any) -> Any:
    return RetrySettings(**value) if isinstance(value, dict) else value


_CONVERTERS: dict[str, Any] = {
    "task": to_task,
    "retry_settings": to_retry_settings,
    "inputs": lambda value: fill(Inputs(), value),
    "outputs": lambda value: fill(Outputs(), value),
    "resources": adopter(PYTHON_RESOURCES),
    "identity": adopter(IDENTITY),
    "services": to_services,
}


def parallel_run_function(  # noqa: PLR0913 - azure-ai-ml's signature
    *,
    name: str | None = None,
    description: str | None = None,
    tags: dict[str, str] | None = None,
    properties: dict[str, str] | None = None,
    display_name: str | None = None,
    experiment_name: str | None = None,
    compute: str | None = None,
    retry_settings: Any = None,
    environment_variables: dict[str, Any] | None = None,
    logging_level: str | None = None,
    max_concurrency_per_instance: int | None = None,
    error_threshold: int | None = None,
    mini_batch_error_threshold: int | None = None,
    task: Any = None,
    mini_batch_size: str | int | None = None,
    partition_keys: list[str] | None = None,
    input_data: str | None = None,
    inputs: dict[str, Any] | None = None,
    outputs: dict[str, Any] | None = None,
    instance_count: int | None = None,
    instance_type: str | None = None,
    docker_args: str | None = None,
    shm_size: str | None = None,
    identity: Any = None,
    is_deterministic: bool = True,
    resources: Any = None,
    component: Any = None,
    services: dict[str, Any] | None = None,
    parent_job_name: str | None = None,
    drumline: dict[str, Any] | None = None,
    **kwargs: Any,
) -> Parallel:
    """
    Make a parallel job from flat keywords. An ``Input`` without a path is for a call to give.

    Raises SpecError for an unknown keyword or a value of another type.
    """
    given = {name: value for name, value in locals().items() if name != "kwargs"}
    flat = {name: given.pop(name) for name in ("instance_count", "instance_type", "docker_args", "shm_size")}
    made = Parallel(**given, **kwargs)
    if any(value is not None for value in flat.values()):
        made.set_resources(**flat)
    return made
