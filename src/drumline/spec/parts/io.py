"""Inputs and outputs of a job."""

from __future__ import annotations

import math

from drumline.contract.errors import SpecError
from drumline.spec.entity import Attributes, Keyed, text_path
from drumline.spec.foreign_parts import ours
from drumline.spec.kinds.values import PRIMITIVES
from drumline.spec.parts.bindings import PATTERN, Binding, NodeOutput

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_INPUT_KINDS = "Input, a mapping, text, a number or a boolean"


class Input(Keyed):
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
    _of_data = ("type", "path", "mode", "path_on_compute", "datastore")

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
        is_primitive = self.type in PRIMITIVES
        if is_primitive:
            for name in ("path", "mode", "datastore"):
                value = getattr(self, name)
                if value is not None:
                    raise SpecError(f"an input of type {self.type!r} has no {name!r}, got {value!r}")
        elif self.default is not None:
            raise SpecError(f"an input of type {self.type!r} has no default", "give it a `path`")

    def _plain(self) -> dict[str, Any]:
        values = self._values()
        return (
            values
            if self.type in PRIMITIVES
            else {key: values[key] for key in self._of_data if key in values}
        )


class Output(Keyed):
    """Data that a job writes; with a ``name``, registered as a data asset once the job is done."""

    _fields = ("type", "path", "mode", "name", "version", "description")
    _folded = ("type", "mode")
    _hidden = ("description",)
    _keeps_empty = True

    def __init__(
        self,
        *,
        type: str | None = "uri_folder",
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

    def _plain(self) -> Any:
        values = self._values()
        is_bound = values.keys() == {"path"} and PATTERN.search(str(self.path))
        return self.path if is_bound else super()._plain()


class Inputs(Attributes):
    """The inputs of a job; a dictionary that is put in becomes an ``Input``."""

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, to_input(name, value))


class Outputs(Attributes):
    """The outputs of a job; ``None`` and dictionaries become an ``Output``."""

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, to_output(name, value))


def fits_primitive(primitive: str, value: Any) -> bool:
    """Return whether a literal can be ``string``, ``integer``, ``number`` or ``boolean``; text can, such as ``"4"``."""
    text = str(value)
    try:
        if primitive == "integer":
            return not isinstance(value, bool) and float(text) == int(float(text))
        if primitive == "number":
            return not isinstance(value, bool) and math.isfinite(float(text))
    except (ValueError, OverflowError):
        return False
    return primitive != "boolean" or text.lower() in ("true", "false", "0", "1", "yes", "no")


def to_input(name: str, value: Any) -> Any:
    """Return an ``Input`` or a literal. Raises SpecError for what cannot be an input."""
    from enum import Enum

    value = value.value if isinstance(value, Enum) else ours(value)
    if isinstance(value, dict):
        return value["value"] if value.keys() == {"value"} else Input(**value)
    if isinstance(value, (Input, str, int, float)):
        return value
    if isinstance(value, Binding):
        return value
    if isinstance(value, Output):
        return _from_output(value)
    from drumline.spec.parts.search import ParameterExpression

    if isinstance(value, ParameterExpression):
        return value  # Until ``sweep`` moves it to the search space.
    kind = type(value).__name__
    raise SpecError(f"input {name!r} cannot be of type {kind!r}", f"give {_INPUT_KINDS}")


def _from_output(value: Output) -> Any:
    """
    Return the source of an output: a node of the pipeline in the making, else an earlier job, as in Azure's samples.
    """
    from drumline.spec import builder

    current = builder.current()
    found = current.owner_of(value) if current else None
    if found:
        return NodeOutput(*found, str(value.type or ""))
    return Input(type=value.type or "uri_folder", path=value.path)


def to_output(name: str, value: Any) -> Output:
    """Return an ``Output``. Raises SpecError for what cannot be one."""
    value = ours(value)
    if value is None:
        return Output()
    if isinstance(value, Output):
        return value
    if isinstance(value, dict):
        return Output(**value)
    if isinstance(value, str) and PATTERN.search(value):
        return Output(type=None, path=value)  # Of a node, bound to an output of its pipeline.
    kind = type(value).__name__
    raise SpecError(f"output {name!r} cannot be of type {kind!r}", "give Output(...) or a mapping")


def fill(target: Attributes, values: dict[str, Any] | None) -> Any:
    """Put values into a mapping of inputs or outputs. Raises SpecError unless they are a mapping from names."""
    if values is not None and not (
        isinstance(values, dict) and all(isinstance(name, str) for name in values)
    ):
        kind = type(target).__name__.lower()
        raise SpecError(
            f"{kind} cannot be of type {type(values).__name__!r}", f"give a mapping: {kind}={{'x': ...}}"
        )
    for name, value in (values or {}).items():
        target[name] = value
    return target
