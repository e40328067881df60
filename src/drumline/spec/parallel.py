"""A parallel job: the user's ``run(mini_batch)`` over the files of one of its inputs."""

from __future__ import annotations

from drumline.contract.errors import SpecError
from drumline.spec.calling import Calling
from drumline.spec.entity import Entity, text_path
from drumline.spec.environment import to_environment
from drumline.spec.identity import to_identity
from drumline.spec.io import Inputs, Outputs, fill
from drumline.spec.job import to_services
from drumline.spec.keywords import refuse_unknown
from drumline.spec.resources import JobResourceConfiguration, to_resources

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
    """``entry_script`` in ``code``: a Python file with ``init()`` and ``run(mini_batch)``."""

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


class RetrySettings(Entity):
    """``max_retries`` of a mini-batch that has failed; ``timeout``: seconds for a call of ``run()``."""

    _fields = ("max_retries", "timeout")
    _whole = ("max_retries", "timeout")

    def __init__(self, *, max_retries: int | None = None, timeout: int | None = None, **kwargs: Any) -> None:
        refuse_unknown(kwargs, self._fields, "retry_settings")
        self.max_retries = max_retries
        self.timeout = timeout


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

    def set_resources(self, **given: Any) -> None:
        """``instance_count``, ``instance_type``, ``docker_args``, ``shm_size``, ...: set those given."""
        refuse_unknown(given, JobResourceConfiguration._fields, "resources")
        self._set_given("resources", JobResourceConfiguration, given)


ParallelJob = Parallel


def to_task(value: Any) -> Any:
    """Raises SpecError for a task of another type."""
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
    "resources": to_resources,
    "identity": to_identity,
    "services": to_services,
}


def parallel_run_function(
    *,
    instance_count: int | None = None,
    instance_type: str | None = None,
    docker_args: str | None = None,
    shm_size: str | None = None,
    **kwargs: Any,
) -> Parallel:
    """
    A parallel job from flat keywords, as azure-ai-ml's. An ``Input`` without a path is for a call to give.
    """
    made = Parallel(**kwargs)
    flat = {
        "instance_count": instance_count,
        "instance_type": instance_type,
        "docker_args": docker_args,
        "shm_size": shm_size,
    }
    if any(value is not None for value in flat.values()):
        made.set_resources(**flat)
    return made
