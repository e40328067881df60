"""A job as it is stored, as the entity that scripts know."""

from __future__ import annotations

import os
from typing import Any

from drumline.spec.command import Command

_GIVEN = (
    "name", "display_name", "experiment_name", "description", "tags", "properties", "command", "code",
    "environment", "environment_variables", "compute", "inputs", "outputs", "distribution", "resources",
    "limits", "queue_settings", "identity", "parent_job_name", "drumline",
)  # fmt: skip


class CreationContext:
    """Who submitted the job, and when (RFC 3339, UTC)."""

    def __init__(self, created_at: str | None, created_by: str) -> None:
        self.created_at = created_at
        self.created_by = created_by
        self.created_by_type = "User"


def from_description(described: dict[str, Any]) -> Command:
    """``outputs.<name>.path`` is a local path that the next job can take as an input."""
    job = Command(**{key: described[key] for key in _GIVEN if described.get(key) is not None})
    folder = described["run_folder"]
    job.id = described["id"]
    job.status = described["status"]
    job.studio_url = described["services"]["Studio"]["endpoint"]
    context = described["creation_context"]
    job.creation_context = CreationContext(context["created_at"], context["created_by"])
    job._base_path = folder
    logs = os.path.join(folder, "user_logs")
    job.log_files = {f"user_logs/{name}": os.path.join(logs, name) for name in sorted(os.listdir(logs))}
    _fill_outputs(job, folder)
    return job


def _fill_outputs(job: Command, folder: str) -> None:
    from drumline.spec.io import Output
    from drumline.spec.paths import is_remote

    if "default" not in job.outputs:
        job.outputs["default"] = Output(type="uri_folder")
    for name, output in job.outputs.items():
        if not output.path or is_remote(output.path):
            inside = "outputs" if name == "default" else os.path.join("named-outputs", name)
            output.path = os.path.join(folder, inside)
