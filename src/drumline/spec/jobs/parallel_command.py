"""A parallel job becomes a command job, whose command is the manager of its mini-batches."""

from __future__ import annotations

import os
import re
import shlex
from copy import deepcopy

from drumline.contract.errors import Problem, SpecError
from drumline.spec import builder
from drumline.spec.entity import whole
from drumline.spec.paths import is_remote, resolve

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from drumline.spec.jobs.command import Command
    from drumline.spec.jobs.parallel import Parallel, RunFunction

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
    from drumline.spec.jobs.command import Command

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
