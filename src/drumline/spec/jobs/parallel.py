"""The user's ``run(mini_batch)`` over the files of an input: the parallel job, the component, and the command job
that a parallel job becomes."""

from __future__ import annotations

import os
import re
import shlex
from copy import deepcopy

from drumline.contract.errors import Problem, SpecError
from drumline.spec import builder
from drumline.spec.entity import whole
from drumline.spec.hints import refuse_unknown
from drumline.spec.jobs.command import Command
from drumline.spec.jobs.component import Component, declare_job, make_tables
from drumline.spec.jobs.job import DRUMLINE, VARIABLES, Calling
from drumline.spec.kinds.fields import Any, Declared, MadeOf, OrEmpty, field
from drumline.spec.kinds.locations import Code
from drumline.spec.kinds.records import Part, PartRecord
from drumline.spec.kinds.values import Anything, Integer, ListOf, OneOf, Text, VersionText
from drumline.spec.parts.environment import (
    EnvironmentKind,
    base_of,
    give_folder,
    settle_environment,
    to_environment,
)
from drumline.spec.parts.resources import LOOSE_RESOURCES, RESOURCES, JobResourceConfiguration, RetrySettings
from drumline.spec.paths import is_remote, resolve

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    from drumline.spec.reading.source import Node


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

    def convert(self, node: Node) -> Any:
        return str(whole(node.value)) if isinstance(node.value, float) else super().convert(node)


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


COMPONENT, NAMED_COMPONENT = make_tables(
    "a parallel component", ParallelComponent, "task", "input_data", resources=LOOSE_RESOURCES
)


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


PROGRAM = "DRUMLINE_PARALLEL_PROGRAM"
_KEPT = (
    "name", "display_name", "experiment_name", "description", "compute", "inputs", "outputs", "resources",
    "environment_variables", "identity", "services", "parent_job_name",
)  # fmt: skip
_PRIVATE = (
    "_base_path", "_source", "_node_name", "_comment", "_declared", "_defaults", "_component_name", "_is_deterministic",
    "_top_job", "_root", "_snapshots", "_warnings",
)  # fmt: skip
_BOUND = re.compile(r"\$\{\{\s*(inputs|outputs)\.([\w-]+)(?:\.path)?\s*\}\}")
_PREDEFINED = ("error_threshold", "allowed_failed_percent")
"""Arguments of the script that are settings of the job. Source: Azure's predefined arguments for parallel jobs."""

TABLES, FOLDER = "tables (mltable) are not split here", "a uri_folder, whose files are the items"
"""What is wrong with a table as ``input_data``, and what to give instead."""

_LEVELS = ("DEBUG", "INFO", "WARNING")
_MAX_RETRIES, _TIMEOUT_S, _BATCH_SIZE = 2, 60, 1
"""Source: https://learn.microsoft.com/azure/machine-learning/reference-yaml-job-parallel"""


def to_command(job: Parallel) -> Command:
    """
    Return the command job of a parallel job whose component is filled in.

    Its settings of mini-batches are ``drumline.parallel`` of the command job.

    Raises SpecError with every problem.
    """
    task: Any = job.task
    settings = _ManagerSettings(job).all()
    with builder.building(None):
        made = Command(
            command=f'exec python "${PROGRAM}"',
            code=task.code,
            environment=deepcopy(task.environment),
            drumline={"warm": "off", **job.drumline, "parallel": settings},
        )
    for name in _KEPT:
        object.__setattr__(made, name, getattr(job, name))
    give_folder(made.environment, job.base_path)
    made.tags, made.properties = dict(job.tags), dict(job.properties)
    for name in _PRIVATE:
        object.__setattr__(made, name, getattr(job, name))
    return made


class _ManagerSettings:
    """The settings as ``node.parallel.manager`` takes them, but for what the nodes are."""

    def __init__(self, job: Parallel) -> None:
        self._job = job
        self._problems: list[Problem] = []

    def all(self) -> dict[str, Any]:
        job, task = self._job, self._task()
        retry = job.retry_settings
        arguments = str(task.program_arguments or "")
        self._check_names(arguments)
        said = self._find_predefined(arguments)
        most_items = job.error_threshold if job.error_threshold is not None else said["error_threshold"]
        output, below = self._output(task)
        settings = {
            "script": self._script(task),
            "arguments": arguments,
            "input": self._input(),
            "output": output,
            "below": below,
            "batch_size": self._batch_size(),
            "max_retries": self._count(
                "retry_settings.max_retries", retry and retry.max_retries, _MAX_RETRIES
            ),
            "timeout_s": self._count("retry_settings.timeout", retry and retry.timeout, _TIMEOUT_S, least=1),
            "most_batches": self._count(
                "mini_batch_error_threshold", job.mini_batch_error_threshold, -1, least=-1
            ),
            "most_items": self._count("error_threshold", most_items, -1, least=-1),
            "most_percent": self._count("allowed_failed_percent", said["allowed_failed_percent"], 100),
            "level": self._level(),
        }
        workers = job.max_concurrency_per_instance
        if workers is not None:
            settings["workers"] = self._count("max_concurrency_per_instance", workers, 1, least=1)
        if job.partition_keys:
            self._wrong(
                "partition_keys", "tables are not split here", "mini_batch_size, over the files of a folder"
            )
        if self._problems:
            raise SpecError(self._problems)
        return settings

    def _wrong(self, path: str, what: str, hint: str = "") -> None:
        self._problems.append(Problem(f"{path}: {what}", path=path, hint=hint))

    def _task(self) -> RunFunction:
        if self._job.task is None:
            raise SpecError([Problem("missing key 'task' in a parallel job", path="task")])
        return self._job.task

    def _script(self, task: RunFunction) -> str:
        if not task.entry_script:
            self._wrong("task.entry_script", "a parallel job needs a script with run(mini_batch)")
        elif task.code and not is_remote(task.code):
            code = resolve(self._job, task.code)
            # Code that is not there is told elsewhere; a file is the only one in its folder.
            script = os.path.join(code, task.entry_script)
            is_there = os.path.isfile(script) or (
                os.path.isfile(code) and os.path.basename(code) == os.path.normpath(task.entry_script)
            )
            if os.path.exists(code) and not is_there:
                self._wrong("task.entry_script", f"there is no {task.entry_script} in {code}")
        return str(task.entry_script)

    def _input(self) -> str:
        """Return the name of the input that is split."""
        found = _BOUND.fullmatch(str(self._job.input_data or "").strip())
        if found is None or found[1] != "inputs":
            self._wrong("input_data", f"{self._job.input_data!r} names no input", "${{inputs.NAME}}")
            return ""
        if found[2] not in self._list_names("inputs"):
            self._wrong("input_data", f"there is no input {found[2]!r}", self._hint("inputs"))
        given = self._job.inputs.get(found[2])
        declared = self._job._declared.get(found[2])
        replaced = self._job._replaced.get(found[2])
        kinds = {str(getattr(one, "type", None) or "").lower() for one in (given, declared, replaced)}
        if "mltable" in kinds:
            self._wrong("input_data", TABLES, FOLDER)
        return found[2]

    def _output(self, task: RunFunction) -> tuple[str | None, str]:
        if not task.append_row_to:
            return None, ""
        found = re.fullmatch(_BOUND.pattern + r"((?:/.*)?)", task.append_row_to.strip())
        if found is None or found[1] != "outputs":
            self._wrong("task.append_row_to", f"{task.append_row_to!r} names no output", "${{outputs.NAME}}")
            return None, ""
        if found[2] not in self._list_names("outputs"):
            self._wrong("task.append_row_to", f"there is no output {found[2]!r}", self._hint("outputs"))
        if ".." in found[3].split("/"):
            self._wrong("task.append_row_to", f"'..' leads out of the output in {task.append_row_to!r}")
        return found[2], found[3]

    def _check_names(self, arguments: str) -> None:
        """Check the names in the arguments; those that stand within ``$[[...]]`` may be missing."""
        try:
            shlex.split(arguments)
        except ValueError as error:
            self._wrong("task.program_arguments", str(error).lower())
        for group, name in _BOUND.findall(re.sub(r"\$\[\[.*?\]\]", "", arguments, flags=re.DOTALL)):
            if name not in self._list_names(group):
                what = f"${{{{{group}.{name}}}}} is not an {group[:-1]} of the job"
                self._wrong("task.program_arguments", what, self._hint(group))

    def _list_names(self, group: str) -> tuple[str, ...]:
        job = self._job
        return (*job.inputs, *job._declared) if group == "inputs" else tuple(job.outputs)

    def _hint(self, group: str) -> str:
        return "known: " + (", ".join(dict.fromkeys(self._list_names(group))) or "none")

    def _find_predefined(self, arguments: str) -> dict[str, str | None]:
        found = {}
        for name in _PREDEFINED:
            match = re.search(rf"(?:^|\s)--{name}[\s=]+(\S+)", arguments)
            found[name] = match[1] if match else None
        return found

    def _batch_size(self) -> int:
        size = self._job.mini_batch_size
        if re.fullmatch(r"\d+\s*[kKmMgG][bB]", str(size)):
            self._wrong("mini_batch_size", f"{size!r} is a size of a table", "a number of files")
            return 1
        return self._count("mini_batch_size", size, _BATCH_SIZE, least=1)

    def _count(self, path: str, value: Any, default: int, *, least: int = 0) -> int:
        """Return a count; text of one is one too, and a number with a fraction is cut, as in fields of the schema."""
        if value is None:
            return default
        count = whole(value)
        if not isinstance(count, int) or isinstance(count, bool):
            self._wrong(path, f"must be a whole number; got {value!r}")
            return default
        if count < least:
            self._wrong(path, f"{count} is below {least}")
        return count

    def _level(self) -> str:
        level = str(self._job.logging_level or "INFO").upper()
        level = {"WARN": "WARNING"}.get(level, level)
        if level not in _LEVELS:
            self._wrong(
                "logging_level", f"must be one of {', '.join(_LEVELS)}; got {self._job.logging_level!r}"
            )
        return level
