"""
The base of all groups of ``MLClient``'s methods, which run in their client's workspace.

A group is a subclass, and needs nothing more::

    class DataOperations(Operations):
        def get(self, name: str, version: str | None = None, label: str | None = None) -> Data: ...

``MLClient.__init__`` creates it (``self.data = DataOperations()``). Each of its public methods then runs in the
workspace in which the object was created, even if another one is current when it is called:
``contract.folder.home()`` is right in everything that it calls. An iterator that a method returns takes each of its
steps there too, however late. Objects that a method returns for later use, such as pollers, subclass ``Operations``.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterator
from functools import partial
from types import FunctionType
from typing import TYPE_CHECKING, Any, cast

from drumline.azure import NotSupportedError
from drumline.contract import folder
from drumline.contract.folder import chosen_workspace
from drumline.control.jobs.job_folders import EDITABLE
from drumline.control.terminal import clean
from drumline.spec import builder
from drumline.spec.foreign import translate_object
from drumline.spec.jobs.command import Command
from drumline.spec.jobs.job import to_dict
from drumline.spec.jobs.pipeline import PipelineJob
from drumline.spec.jobs.sweep import SweepJob
from drumline.spec.parts.services import FoundService
from drumline.spec.registered.assets import CreationContext

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Self

    from drumline.spec.jobs.job import Job


_OTHER_METHODS = """
begin_diagnose begin_provision_network begin_restart begin_start begin_stop begin_sync_keys enable_sso get_keys
list_materialization_status list_usage
"""
"""Methods of azure-ai-ml's groups that Drumline lacks."""


class Operations:
    _workspace: str | None
    """As ``folder.workspace`` takes it."""

    def __new__(cls, *args: object, **kwargs: object) -> Self:
        made = super().__new__(cls)
        made._workspace = folder.chosen_workspace()
        return made

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name in _OTHER_METHODS.split():
                raise NotSupportedError(name)
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name, value in list(vars(cls).items()):
            if isinstance(value, FunctionType) and not name.startswith("_"):
                setattr(cls, name, _bind_to_workspace(value))


def _bind_to_workspace(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def run(self: Operations, *args: Any, **kwargs: Any) -> Any:
        # Objects of azure-ai-ml are taken wherever ours are.
        args, kwargs = (
            tuple(map(translate_object, args)),
            {name: translate_object(value) for name, value in kwargs.items()},
        )
        with folder.workspace(self._workspace):
            result = method(self, *args, **kwargs)
        if isinstance(result, Iterator) and not isinstance(result, Operations):
            return _iterate_in(result, self._workspace)
        return result

    return run


def _iterate_in(iterator: Iterator[Any], workspace: str | None) -> Iterator[Any]:
    while True:
        with folder.workspace(workspace):
            try:
                step = next(iterator)
            except StopIteration:
                return
        yield step


def print_warnings(warnings: Iterable[str]) -> None:
    """Print each to standard error, as azure-ai-ml does."""
    for warning in warnings:
        print(f"warning: {clean(warning)}", file=sys.stderr)


# Stored jobs as entities.

_COMMAND_FIELDS = (
    "name", "display_name", "experiment_name", "description", "tags", "properties", "command", "code",
    "environment", "environment_variables", "compute", "inputs", "outputs", "distribution", "resources",
    "limits", "queue_settings", "identity", "parent_job_name", "drumline",
)  # fmt: skip


def from_description(described: dict[str, Any]) -> Command:
    """Build the job's entity, whose ``outputs.<name>.path``, ``azureml://jobs/...``, can be an input as it stands."""
    folder = described["run_folder"]
    with builder.building(None):  # Not a step of a pipeline whose function is running.
        job: Any = _build_job(described, folder)
    job._page = partial(_render_page, described["name"], chosen_workspace())
    job.id = described["id"]
    job._stored_as = described["name"]
    job.status = described["status"]
    job.studio_url = described["services"]["Studio"]["endpoint"]
    job.services = {
        name: FoundService(**{key: one.get(key) for key in ("endpoint", "type", "status")})
        for name, one in described["services"].items()
    }
    context = described["creation_context"]
    job.creation_context = CreationContext(context["created_at"], context["created_by"])
    job._base_path = folder
    logs = os.path.join(folder, "user_logs")
    listed = sorted(os.listdir(logs)) if os.path.isdir(logs) else ()  # They may be pruned.
    job.log_files = {f"user_logs/{name}": os.path.join(logs, name) for name in listed}
    return cast("Command", job)


def _render_page(name: str, workspace: str | None) -> str | None:
    from drumline.sdk.notebook.notebook_page import render_current

    return render_current(name, workspace)


def fixed_part(job: Job) -> dict[str, Any]:
    """Return the fields that cannot change after submission, as YAML has them."""
    from copy import deepcopy

    return deepcopy({key: value for key, value in to_dict(job).items() if key not in (*EDITABLE, "services")})


def _build_job(described: dict[str, Any], folder: str) -> Any:
    """Build the entity, a sweep's with ``trials`` and ``best_trial``, a pipeline's with ``steps``."""
    kind: Any = Command
    facts: tuple[str, ...] = ()
    if described["type"] == "pipeline":
        kind, facts = PipelineJob, ("steps",)
    elif described["type"] == "sweep":
        kind, facts = SweepJob, ("trials", "best_trial")
    known = _COMMAND_FIELDS if kind is Command else kind._fields
    given = {key: described[key] for key in known if described.get(key) is not None and key != "type"}
    job = kind(**given, base_path=folder)
    for fact in facts:
        setattr(job, fact, described.get(fact))
    if described.get("best_trial"):
        # Where scripts for Azure look for it.
        job.properties["best_child_run_id"] = described["best_trial"]["trial"]
    return job
