"""The user's ``run(mini_batch)`` over the files of an input: the parallel job, and the component."""

from __future__ import annotations

from copy import deepcopy

from drumline.contract.errors import SpecError
from drumline.spec import builder
from drumline.spec.entity import whole
from drumline.spec.jobs.calling import Calling
from drumline.spec.jobs.component import Component, declare_job, list_declarations
from drumline.spec.jobs.program import DRUMLINE, VARIABLES
from drumline.spec.keywords import refuse_unknown
from drumline.spec.kinds.fields import Declared, field
from drumline.spec.kinds.locations import Code
from drumline.spec.kinds.parts import Part, PartRecord
from drumline.spec.kinds.records import Record
from drumline.spec.kinds.values import Anything, Integer, ListOf, OneOf, Text, VersionText
from drumline.spec.parts.environment import EnvironmentKind, base_of, settle_environment, to_environment
from drumline.spec.parts.resources import LOOSE_RESOURCES, RESOURCES, JobResourceConfiguration, RetrySettings
from drumline.spec.paths import is_remote, resolve
from drumline.spec.reading.tree import Scalar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Self

    from drumline.spec.kinds.fields import MadeOf, OrEmpty
    from drumline.spec.kinds.report import Report
    from drumline.spec.reading.tree import Node

_TEXT = Text()


class RunFunction(Part):
    """
    The script that processes mini-batches, ``entry_script`` in ``code``: a Python file with ``init()`` and
    ``run(mini_batch)``.
    """

    _place = "task"
    type: str = field(_TEXT, default="run_function", init=False)
    code: Any = field(Code(), default=None)
    entry_script: str | None = field(_TEXT, "The script with init() and run(mini_batch).", default=None)
    program_arguments: str | None = field(_TEXT, default=None)
    model: str | None = field(None, default=None)
    append_row_to: str | None = field(_TEXT, default=None)
    environment: Any = field(EnvironmentKind(), default=None)

    @classmethod
    def _from_checked(cls, values: Mapping[str, Any]) -> Self:
        return super()._from_checked({**values, "environment": to_environment(values.get("environment"))})


class _Task(PartRecord):
    def adopt(self, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        kind = str(value.get("type") or "run_function").lower()
        if kind != "run_function":
            raise SpecError(f"task.type: {kind!r} is not supported", "type: run_function")
        return RunFunction(**{key: item for key, item in value.items() if key != "type"})


class SizeText(VersionText):
    """A whole number or text; a number with a fraction is cut, as an ``Integer`` is."""

    def adopt(self, value: Any) -> Any:
        return value

    def take(self, node: Node, path: str, report: Report) -> Any:
        if isinstance(node, Scalar) and isinstance(node.value, float):
            return str(whole(node.value))
        return super().take(node, path, report)


class ParallelSettings(Declared):
    """What a job and a component have alike; what the job says itself goes first."""

    task: MadeOf[RunFunction | None] = field(
        _Task(RunFunction, required=("entry_script",)),
        "The function that processes a mini-batch.",
        default=None,
    )
    mini_batch_size: str | int | None = field(
        SizeText(), "The number of files, or the size such as 10kb, of a mini-batch.", default=None
    )
    partition_keys: list[str] | None = field(ListOf(_TEXT), default=None)
    input_data: str | None = field(_TEXT, "The input that is split: ${{inputs.NAME}}.", default=None)
    retry_settings: MadeOf[RetrySettings | None] = field(
        PartRecord(RetrySettings), "How often a mini-batch is tried again, and its time limit.", default=None
    )
    logging_level: str | None = field(OneOf("DEBUG", "INFO", "WARNING", "WARN", fold=str.upper), default=None)
    max_concurrency_per_instance: int | None = field(
        Integer(), "The number of worker processes on each node.", default=None
    )
    error_threshold: int | None = field(
        Integer(), "The number of items that may fail; -1: any.", default=None
    )
    mini_batch_error_threshold: int | None = field(
        Integer(), "The number of mini-batches that may fail; -1: any.", default=None
    )
    resources: MadeOf[JobResourceConfiguration | None] = field(
        RESOURCES, "The number of nodes and what each of them has.", default=None
    )


SETTINGS = tuple(name for name in ParallelSettings._fields if name != "resources")


class Parallel(ParallelSettings, Calling):
    """
    A step of a pipeline, or a job by itself; azure-ai-ml's ``Parallel`` and ``ParallelJob`` in one.

    ``component``: a ParallelComponent, or what refers to one, whose settings hold where the job says none.
    """

    type = "parallel"
    _adopted = ("resources", "retry_settings")
    _input_example = "job(data=...)"
    environment_variables: OrEmpty[dict[str, Any]] = field(
        VARIABLES, "Environment variables of every rank.", factory=dict
    )
    component: Any = field(Anything(), default=None)
    drumline: OrEmpty[dict[str, Any]] = field(DRUMLINE, "Settings that only Drumline has.", factory=dict)

    def _settle_arguments(self, others: dict[str, Any]) -> None:
        super()._settle_arguments(others)
        self._become_node()

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


class ParallelComponent(ParallelSettings, Component):
    """A call with inputs gives a node of a pipeline."""

    type = "parallel"
    instance_count: int | None = field(None, default=None)

    def _settle_arguments(self, others: dict[str, Any]) -> None:
        super()._settle_arguments(others)
        count = self.__dict__.pop("instance_count")
        if count is not None and self.resources is None:
            self.resources = {"instance_count": count}

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


def _component_table(*, named: bool) -> Record:
    fields = list_declarations(ParallelComponent, named=named, resources=LOOSE_RESOURCES)
    required = ("task", "input_data")
    return Record(
        "a parallel component", fields, required=("name", *required) if named else required, unknown="drop"
    )


COMPONENT = _component_table(named=False)
NAMED_COMPONENT = _component_table(named=True)


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
