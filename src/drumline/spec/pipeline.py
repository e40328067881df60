"""A pipeline job: jobs that feed each other. Read and checked, not yet run."""

from __future__ import annotations

from drumline.spec.entity import Entity
from drumline.spec.identity import to_identity
from drumline.spec.io import Inputs, Outputs, fill
from drumline.spec.job import Job, to_services

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class PipelineJobSettings(Entity):
    """What the nodes of a pipeline fall back on; other settings are kept as they are."""

    _fields: tuple[str, ...] = (
        "default_datastore",
        "default_compute",
        "continue_on_step_failure",
        "force_rerun",
    )

    def __init__(
        self,
        default_datastore: str | None = None,
        default_compute: str | None = None,
        continue_on_step_failure: bool | None = None,
        force_rerun: bool | None = None,
        **kwargs: Any,
    ) -> None:
        self.default_datastore = default_datastore
        self.default_compute = default_compute
        self.continue_on_step_failure = continue_on_step_failure
        self.force_rerun = force_rerun
        self.__dict__.update(kwargs)

    def _values(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if value is not None}


class PipelineJob(Job):
    """``jobs`` maps the name of each node to a mapping with the keys of YAML."""

    type = "pipeline"
    _fields = (
        "type",
        "name",
        "display_name",
        "experiment_name",
        "description",
        "tags",
        "properties",
        "compute",
        "settings",
        "inputs",
        "outputs",
        "jobs",
        "component",
        "identity",
        "services",
    )

    def __init__(
        self,
        *,
        jobs: dict[str, Any] | None = None,
        component: Any = None,
        settings: Any = None,
        inputs: dict[str, Any] | None = None,
        outputs: dict[str, Any] | None = None,
        identity: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.jobs = dict(jobs or {})
        self.component = component
        self.settings = settings
        self.inputs: Inputs = inputs  # type: ignore[assignment]
        self.outputs: Outputs = outputs  # type: ignore[assignment]
        self.identity = identity

    @staticmethod
    def _converters() -> dict[str, Any]:
        return _CONVERTERS


def _to_settings(value: Any) -> Any:
    return PipelineJobSettings(**value) if isinstance(value, dict) else value


_CONVERTERS: dict[str, Any] = {
    "settings": _to_settings,
    "inputs": lambda value: fill(Inputs(), value),
    "outputs": lambda value: fill(Outputs(), value),
    "identity": to_identity,
    "services": to_services,
}
