"""Jobs that feed each other: the pipeline job, and the component."""

from __future__ import annotations

from copy import deepcopy

from drumline.contract.errors import SpecError
from drumline.spec import builder
from drumline.spec.entity import Entity
from drumline.spec.foreign_parts import ours
from drumline.spec.jobs.component import Component
from drumline.spec.jobs.job import Job, to_dict, to_services
from drumline.spec.jobs.pipeline_nodes import to_nodes
from drumline.spec.kinds.parts import adopter
from drumline.spec.parts.io import Inputs, Outputs, fill
from drumline.spec.parts.resources import IDENTITY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class PipelineJobSettings(Entity):
    """The settings that the nodes of a pipeline fall back on; other settings are kept as they are."""

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

    def _plain(self) -> dict[str, Any]:
        """Return the settings as YAML has them: Python takes plain names, YAML does not."""
        values = self._values()
        for name in ("default_compute", "default_datastore"):
            value = values.get(name)
            if isinstance(value, str) and value != "serverless" and not value.startswith("azureml:"):
                values[name] = f"azureml:{value}"
        return values


class PipelineJob(Job):
    """
    ``jobs`` maps the name of each node to a ``Command``, ``SweepJob`` or ``PipelineJob``, which mappings with the
    keys of YAML become. ``component``: a PipelineComponent, or what refers to one, in their place.
    """

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
        "parent_job_name",
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
        parent_job_name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.jobs = to_nodes(jobs, self._base_path)
        self.component = component
        self.settings: PipelineJobSettings = settings if settings is not None else PipelineJobSettings()
        self.inputs: Inputs = inputs  # type: ignore[assignment]
        self.outputs: Outputs = outputs  # type: ignore[assignment]
        self.identity = identity
        self.parent_job_name = parent_job_name
        self._optional: frozenset[str] = frozenset()
        """Parameters of its function that were given as None."""
        self._prepared: list[dict[str, Any]] | None = None
        """Its steps as they were when the pipeline that it is a step of was submitted."""
        for name, output in getattr(component, "outputs", {}).items():
            if name not in self.outputs:
                self.outputs[name] = deepcopy(output)
        builder.register(self)

    def __call__(self, *args: Any, **kwargs: Any) -> PipelineJob:
        """Return a copy with some inputs replaced. Raises SpecError for an input that it does not have."""
        takes = dict.fromkeys((*self.inputs, *getattr(self.component, "inputs", ()), *sorted(self._optional)))
        unknown = next((name for name in kwargs if name not in takes), None)
        if args or unknown is not None:
            known = ", ".join(map(repr, takes)) or "none"
            raise SpecError(f"the pipeline has no input {unknown!r}", f"valid keywords: {known}")
        builder.withdraw(self)
        copied = deepcopy(self)
        copied.name = None
        fill(copied.inputs, kwargs)
        builder.register(copied)
        return copied

    def _settle(self, values: dict[str, Any], *, absolute: bool) -> None:
        if self.jobs:
            values["jobs"] = _plain_nodes(self.jobs, self.base_path, absolute=absolute)
        super()._settle(values, absolute=absolute)

    @staticmethod
    def _converters() -> dict[str, Any]:
        return _CONVERTERS


class PipelineComponent(Component):
    """A pipeline with declared inputs and outputs. ``jobs``: as of a PipelineJob."""

    type = "pipeline"
    _fields = (*Component._fields, "jobs")

    def __init__(self, *, jobs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.jobs: dict[str, Any] = to_nodes(jobs, self._base_path)

    def __call__(self, *args: Any, **kwargs: Any) -> PipelineJob:
        """Return a pipeline of this component. Raises SpecError for an input that is not declared."""
        return PipelineJob(component=self, inputs=self._bind_arguments(args, kwargs))

    def _settle(self, values: dict[str, Any]) -> None:
        values["jobs"] = _plain_nodes(self.jobs, self.base_path, absolute=True)


def _plain_nodes(jobs: dict[str, Any], base_path: str, *, absolute: bool) -> dict[str, Any]:
    """Return the nodes of a pipeline that lies in ``base_path``; one from another folder has absolute paths."""
    return {
        name: to_dict(node, absolute=absolute or node.base_path != base_path) for name, node in jobs.items()
    }


def _to_settings(value: Any) -> Any:
    value = ours(value)
    return PipelineJobSettings(**value) if isinstance(value, dict) else value


_CONVERTERS: dict[str, Any] = {
    "settings": _to_settings,
    "inputs": lambda value: fill(Inputs(), value),
    "outputs": lambda value: fill(Outputs(), value),
    "identity": adopter(IDENTITY),
    "services": to_services,
}
