"""A job as it is stored, as the entity that scripts know."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, cast

from drumline.control.jobs import EDITABLE
from drumline.spec import builder
from drumline.spec.assets import CreationContext
from drumline.spec.command import Command
from drumline.spec.services import FoundService

if TYPE_CHECKING:
    from drumline.spec.job import Job

_GIVEN = (
    "name", "display_name", "experiment_name", "description", "tags", "properties", "command", "code",
    "environment", "environment_variables", "compute", "inputs", "outputs", "distribution", "resources",
    "limits", "queue_settings", "identity", "parent_job_name", "drumline",
)  # fmt: skip


def from_description(described: dict[str, Any]) -> Command:
    """``outputs.<name>.path`` is an input of the next job as it stands: ``azureml://jobs/<job>/outputs/<name>``."""
    folder = described["run_folder"]
    with builder.building(None):  # Of no pipeline whose function is running.
        job: Any = _of_kind(described, folder)
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
    job.log_files = {f"user_logs/{name}": os.path.join(logs, name) for name in sorted(os.listdir(logs))}
    return cast("Command", job)


def fixed_part(job: Job) -> dict[str, Any]:
    """Return what a submitted job keeps as it is, as YAML has it."""
    from copy import deepcopy

    from drumline.spec.dump import to_dict

    return deepcopy({key: value for key, value in to_dict(job).items() if key not in (*EDITABLE, "services")})


def _of_kind(described: dict[str, Any], folder: str) -> Any:
    """``trials`` and ``best_trial`` of a sweep, ``steps`` of a pipeline: as ``drumline job show`` has them."""
    kind: Any = Command
    facts: tuple[str, ...] = ()
    if described["type"] == "pipeline":
        from drumline.spec.pipeline import PipelineJob

        kind, facts = PipelineJob, ("steps",)
    elif described["type"] == "sweep":
        from drumline.spec.sweep import SweepJob

        kind, facts = SweepJob, ("trials", "best_trial")
    known = _GIVEN if kind is Command else kind._fields
    given = {key: described[key] for key in known if described.get(key) is not None and key != "type"}
    job = kind(**given, base_path=folder)
    for fact in facts:
        setattr(job, fact, described.get(fact))
    return job
