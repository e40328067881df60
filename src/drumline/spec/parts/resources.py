"""The resources of a job's nodes, how long the job may run, and how it is queued."""

from __future__ import annotations

from drumline.contract.errors import SpecError
from drumline.spec import fields
from drumline.spec.entity import Entity, Keyed
from drumline.spec.fields import list_choices, list_whole
from drumline.spec.foreign_parts import ours
from drumline.spec.keywords import refuse_unknown
from drumline.spec.kinds.values import refuse_wrong

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class ResourceConfiguration(Keyed):
    _fields: tuple[str, ...] = ("instance_count", "instance_type", "properties")
    _whole = list_whole(fields.RESOURCES)

    def __init__(
        self,
        *,
        instance_count: int | None = None,
        instance_type: Any = None,
        properties: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        refuse_unknown(kwargs, self._fields, "resources")
        self.instance_count = instance_count
        self.instance_type = instance_type
        self.properties = properties
        refuse_wrong(self._values(), fields.PYTHON_RESOURCES, "resources")


class JobResourceConfiguration(ResourceConfiguration):
    """The resources of a job. ``instance_count`` is the number of nodes; ``shm_size`` is text such as ``2g``."""

    _fields = tuple(fields.RESOURCES)
    _declared = fields.PYTHON_RESOURCES

    def __init__(
        self,
        *,
        locations: list[str] | None = None,
        instance_count: int | None = None,
        instance_type: Any = None,
        properties: dict[str, Any] | None = None,
        docker_args: str | list[str] | None = None,
        shm_size: str | None = None,
        max_instance_count: int | None = None,
        **kwargs: Any,
    ) -> None:
        refuse_unknown(kwargs, self._fields, "resources")
        super().__init__(instance_count=instance_count, instance_type=instance_type, properties=properties)
        self.locations = locations
        self.docker_args = docker_args
        self.shm_size = shm_size
        self.max_instance_count = max_instance_count
        refuse_wrong(self._values(), fields.PYTHON_RESOURCES, "resources")


class CommandJobLimits(Entity):
    """The limits of a command job. ``timeout`` is in seconds."""

    _fields = tuple(fields.LIMITS)
    _declared = fields.LIMITS
    _whole = list_whole(fields.LIMITS)

    def __init__(self, *, timeout: int | str | None = None, **kwargs: Any) -> None:
        refuse_unknown(kwargs, self._fields, "limits")
        self.timeout = timeout
        refuse_wrong(self._values(), fields.LIMITS, "limits")


class QueueSettings(Entity):
    _fields = tuple(fields.QUEUE_SETTINGS)
    _folded = list_choices(fields.QUEUE_SETTINGS)

    def __init__(self, *, job_tier: str | None = None, priority: str | None = None, **kwargs: Any) -> None:
        refuse_unknown(kwargs, self._fields, "queue_settings")
        self.job_tier = job_tier
        self.priority = priority


def to_resources(value: Any) -> JobResourceConfiguration | None:
    """Return a ``JobResourceConfiguration`` from a dictionary or a plain ``ResourceConfiguration``."""
    value = ours(value)
    if value is None or isinstance(value, JobResourceConfiguration):
        return value
    if isinstance(value, ResourceConfiguration):
        return JobResourceConfiguration(**value._values())
    if isinstance(value, dict):
        return JobResourceConfiguration(**value)
    raise _not_a("resources", value, "JobResourceConfiguration")


def to_limits(value: Any) -> CommandJobLimits | None:
    value = ours(value)
    if value is None or isinstance(value, CommandJobLimits):
        return value
    if isinstance(value, dict):
        return CommandJobLimits(**value)
    raise _not_a("limits", value, "CommandJobLimits")


def to_queue_settings(value: Any) -> QueueSettings | None:
    value = ours(value)
    if value is None or isinstance(value, QueueSettings):
        return value
    if isinstance(value, dict):
        return QueueSettings(**value)
    raise _not_a("queue_settings", value, "QueueSettings")


def _not_a(name: str, value: object, word: str) -> SpecError:
    return SpecError(f"{name} cannot be of type {type(value).__name__!r}", f"give {word}(...)")
