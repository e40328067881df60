"""Inputs and outputs of a job."""

from __future__ import annotations

from drumline.contract.errors import SpecError
from drumline.spec.entity import Attributes, Entity, text_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_PRIMITIVES = ("string", "integer", "number", "boolean")
_WORDS = "Input, a mapping, text, a number or a boolean"


class Input(Entity):
    """Data that a job reads, or the declaration of a component's parameter."""

    _fields = (
        "type",
        "path",
        "mode",
        "path_on_compute",
        "default",
        "optional",
        "min",
        "max",
        "enum",
        "description",
        "datastore",
    )
    _folded = ("type", "mode")

    def __init__(  # noqa: PLR0913
        self,
        *,
        type: str = "uri_folder",
        path: Any = None,
        mode: str | None = None,
        path_on_compute: str | None = None,
        default: str | float | bool | None = None,
        optional: bool | None = None,
        min: float | None = None,
        max: float | None = None,
        enum: Any = None,
        description: str | None = None,
        datastore: str | None = None,
        **kwargs: Any,
    ) -> None:
        self.type = type
        self.path = text_path(path)
        self.mode = mode
        self.path_on_compute = path_on_compute
        self.default = default
        self.optional = optional
        self.min = min
        self.max = max
        self.enum = enum
        self.description = description
        self.datastore = datastore
        self._check()

    def _check(self) -> None:
        is_primitive = self.type in _PRIMITIVES
        if is_primitive:
            for name in ("path", "mode", "datastore"):
                value = getattr(self, name)
                if value is not None:
                    raise SpecError(f"an input of type {self.type!r} has no {name!r}, got {value!r}")
        elif self.default is not None:
            raise SpecError(f"an input of type {self.type!r} has no default", "give it a `path`")


class Output(Entity):
    """Data that a job writes; with a ``name``, registered as a data asset once the job is done."""

    _fields = ("type", "path", "mode", "name", "version", "description")
    _folded = ("type", "mode")

    def __init__(
        self,
        *,
        type: str = "uri_folder",
        path: Any = None,
        mode: str | None = None,
        description: str | None = None,
        name: str | None = None,
        version: str | None = None,
        **kwargs: Any,
    ) -> None:
        self.type = type
        self.path = text_path(path)
        self.mode = mode
        self.description = description
        self.name = name
        self.version = version
        if version and not name:
            raise SpecError("an output with a version needs a name", "give `name=` as well")


class Inputs(Attributes):
    """The inputs of a job; a dictionary that is put in becomes an ``Input``."""

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, to_input(name, value))


class Outputs(Attributes):
    """The outputs of a job; ``None`` and dictionaries become an ``Output``."""

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, to_output(name, value))


def to_input(name: str, value: Any) -> Any:
    """An ``Input`` or a literal. Raises SpecError for what cannot be an input."""
    from enum import Enum

    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, dict):
        return value["value"] if value.keys() == {"value"} else Input(**value)
    if isinstance(value, (Input, str, int, float)):
        return value
    if isinstance(value, Output):  # the output of an earlier job, as azure-ai-ml's samples chain them
        return Input(type=value.type, path=value.path)
    kind = type(value).__name__
    raise SpecError(f"input {name!r} cannot be of type {kind!r}", f"give {_WORDS}")


def to_output(name: str, value: Any) -> Output:
    """An ``Output``. Raises SpecError for what cannot be one."""
    if value is None:
        return Output()
    if isinstance(value, Output):
        return value
    if isinstance(value, dict):
        return Output(**value)
    kind = type(value).__name__
    raise SpecError(f"output {name!r} cannot be of type {kind!r}", "give Output(...) or a mapping")


def fill(target: Attributes, values: dict[str, Any] | None) -> Any:
    for name, value in (values or {}).items():
        target[name] = value
    return target
