"""What jobs of every type have: names, notes, and where they were read from."""

from __future__ import annotations

import os

from drumline.spec.entity import Entity, text_path
from drumline.spec.keywords import refuse_unknown
from drumline.spec.services import Services

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from drumline.spec.nodes import Mapping


_KEPT = ("base_path", "is_deterministic", "id", "status", "creation_context", "log_files")
"""Keywords that azure-ai-ml knows and that say nothing here."""

_FLAT = (
    "instance_count",
    "instance_type",
    "shm_size",
    "docker_args",
    "locations",
    "timeout",
    "job_tier",
    "priority",
)
"""Keywords of ``command()`` that a job does not keep as they are."""


class Job(Entity):
    """
    ``status``, ``studio_url`` and the other read-only attributes are set by whoever stores the
    job.
    """

    type = ""

    def __init__(
        self,
        *,
        name: str | None = None,
        display_name: str | None = None,
        description: str | None = None,
        tags: dict[str, str] | None = None,
        properties: dict[str, str] | None = None,
        experiment_name: str | None = None,
        compute: str | None = None,
        services: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        self.name = name
        self.display_name = display_name
        self.description = description
        self.tags = dict(tags or {})
        self.properties = dict(properties or {})
        self.experiment_name = experiment_name
        self.compute = compute
        self.services = services
        self.id: str | None = None
        self.status: str | None = None
        self.studio_url: str | None = None
        self.log_files: dict[str, str] | None = None
        self.creation_context: Any = None
        self._source = ""
        self._base_path: str = text_path(kwargs.get("base_path") or "")
        refuse_unknown([name for name in kwargs if name not in _KEPT], (*Job._fields, *self._fields, *_FLAT))
        self._warnings: list[str] = []
        self._node_name: str = ""
        """Within a pipeline."""
        self._comment: str | None = None
        self._declared: dict[str, Any] = {}
        """The inputs of the component that it was made from, as ``steps.filled_in`` left them."""
        self._defaults: dict[str, Any] = {}
        """Of those inputs, what each is when nobody gives it."""
        self._component_name = ""
        self._includes: list[str] = []
        """Absolute paths that belong to its code besides ``code``."""
        self._is_deterministic = True
        self._snapshots: dict[str, str] = {}
        """Its code as it was taken before, by place: of a step of a pipeline, or a trial of a sweep."""
        self._top_job = ""
        """The job that it is part of in the end, such as the outermost pipeline; empty: it is that itself."""
        self._stored_as = ""
        """The name under which it was submitted or fetched; empty: neither."""
        self._stored_spec: dict[str, Any] | None = None
        """What was submitted; of a fetched job None, for the store has it."""
        self._root: Mapping | None = None
        """The job file as read, so that later problems still name its lines."""

    def __setattr__(self, name: str, value: Any) -> None:
        convert = self._converters().get(name)
        object.__setattr__(self, name, convert(value) if convert else value)

    @staticmethod
    def _converters() -> dict[str, Any]:
        """By attribute, what a value becomes when it is set."""
        return {"services": to_services}

    @property
    def base_path(self) -> str:
        """The folder that relative paths resolve against."""
        return self._base_path or os.getcwd()

    def __deepcopy__(self, memo: dict[int, Any]) -> Job:
        from copy import deepcopy

        copied = type(self).__new__(type(self))
        for name, value in self.__dict__.items():
            object.__setattr__(copied, name, value if name == "_root" else deepcopy(value, memo))
        return copied

    def dump(self, dest: Any, **kwargs: Any) -> None:
        """
        Write the job as YAML that loads back to the same job.

        dest: a path, which must not exist unless ``overwrite=True``, or an open file.
        """
        from drumline.spec.dump import write

        write(self, dest, overwrite=bool(kwargs.get("overwrite", True)))

    def __str__(self) -> str:
        from drumline.spec.dump import to_yaml

        return to_yaml(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(name={self.name!r})"


def ignored(name: str, known: tuple[str, ...]) -> str:
    """The warning for a keyword that azure-ai-ml drops in silence, which turns a typo into another job."""
    from drumline.spec.schema.hints import did_you_mean

    hint = did_you_mean(name, known)
    return f"{name}: not known, and ignored" + (f"; {hint}" if hint else "")


def to_services(value: dict[str, Any] | None) -> Services | None:
    if value is None:
        return None
    services = Services()
    for name, service in value.items():
        services[name] = service
    return services
