"""The common base of all components: a name, a version, and declared inputs and outputs."""

from __future__ import annotations

import os
from copy import deepcopy

from drumline.contract.errors import SpecError
from drumline.spec.entity import Written, plain, text_path
from drumline.spec.foreign_parts import HINT, is_within_theirs
from drumline.spec.keywords import refuse_unknown
from drumline.spec.parts.io import Input, Output

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


_DECLARED = ("type", "mode", "optional", "default", "min", "max", "enum", "description")
_TYPES = ((bool, "boolean"), (int, "integer"), (float, "number"), (str, "string"))


class Component(Written):
    """
    The root. ``inputs`` and ``outputs`` declare: by name, an ``Input`` with type, default, optional, min, max, enum,
    and an ``Output`` with type and mode. ``id`` and ``creation_context`` are set by whoever stores the component.
    """

    type = ""
    _fields: tuple[str, ...] = (
        "name", "version", "type", "display_name", "description", "tags", "is_deterministic", "inputs", "outputs",
    )  # fmt: skip

    def __init__(
        self,
        *,
        name: str | None = None,
        version: str | None = None,
        description: str | None = None,
        tags: dict[str, str] | None = None,
        display_name: str | None = None,
        inputs: dict[str, Any] | None = None,
        outputs: dict[str, Any] | None = None,
        is_deterministic: bool = True,
        **kwargs: Any,
    ) -> None:
        self.name = name
        self.version = None if version is None else str(version)
        self.description = description
        self.tags = dict(tags or {})
        self.display_name = display_name
        self.inputs: dict[str, Input] = {key: to_declaration(value) for key, value in (inputs or {}).items()}
        self.outputs: dict[str, Output] = {key: _to_output(value) for key, value in (outputs or {}).items()}
        self.is_deterministic = is_deterministic
        self.id: str | None = None
        self.creation_context: Any = None
        refuse_unknown(kwargs, (*self._fields, "base_path", "id", "creation_context"), "the component")
        self._base_path: str = text_path(kwargs.get("base_path") or kwargs.get("_base_path") or "")
        self._source = ""

    @property
    def base_path(self) -> str:
        """Return the folder that relative paths resolve against."""
        return self._base_path or os.getcwd()

    def _plain(self) -> dict[str, Any]:
        return to_dict(self)

    @property
    def _label(self) -> str:
        return repr(self.name) if self.name else "the component"

    def _bind_arguments(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
        """Return the values that a call gives, by input. Raises SpecError for an input that is not declared."""
        if is_within_theirs():
            raise SpecError("a component of drumline cannot be called under azure.ai.ml's @pipeline", HINT)
        if len(arguments) > len(self.inputs):
            raise SpecError(f"{self._label} takes {len(self.inputs)} inputs, got {len(arguments)}")
        given = dict(zip(self.inputs, arguments, strict=False))
        for name, value in named.items():
            if name not in self.inputs:
                known = ", ".join(map(repr, self.inputs)) or "none"
                raise SpecError(f"{self._label} has no input {name!r}", f"valid keywords: {known}")
            if name in given:
                raise SpecError(f"{self._label} got its input {name!r} twice")
            given[name] = value
        return {name: value for name, value in given.items() if value is not None}

    def _file(self) -> dict[str, Any]:
        return to_dict(self)

    def _settle(self, values: dict[str, Any]) -> None:
        """Write local paths in full in ``values``, the component as plain data."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(name={self.name!r}, version={self.version!r})"


def to_declaration(value: Any) -> Input:
    """Return the declaration of an input. Raises SpecError if it is none."""
    if isinstance(value, Input):
        return value
    if isinstance(value, dict):
        plain = dict(value)
        default = plain.pop("default", None)
        made = Input(**plain)
        # A port may name its data; only the input of a job may not have a default.
        made.default = default
        return made
    raise SpecError(
        f"an input is declared by a mapping, not by a {type(value).__name__}", "x: {type: number}"
    )


def declare(value: Any) -> Input:
    """Return the declaration of what a job has as an input: a value is the default of its type."""
    if isinstance(value, Input):
        known = {name: getattr(value, name) for name in _DECLARED}
        default = known.pop("default")
        made = Input(**{name: item for name, item in known.items() if item is not None})
        made.default = default
        return made
    for kind, word in _TYPES:
        if isinstance(value, kind):
            return Input(type=word, default=value)
    return Input(type="string")  # A search space, or what a pipeline is yet to give.


def declare_job(job: Any) -> dict[str, Any]:
    """Return the arguments that the component has which a job would be, but for those of its type."""
    fields: dict[str, Any] = {
        name: deepcopy(getattr(job, name)) for name in ("name", "display_name", "description", "tags")
    }
    fields["inputs"] = {name: declare(value) for name, value in job.inputs.items()}
    fields["outputs"] = {
        name: Output(type=output.type, mode=output.mode) for name, output in job.outputs.items()
    }
    return {**fields, "is_deterministic": job._is_deterministic, "base_path": job._base_path}


def _to_output(value: Any) -> Output:
    if value is None:
        return Output()
    if isinstance(value, Output):
        return value
    if isinstance(value, dict):
        return Output(**value)
    raise SpecError(f"an output is declared by a mapping, not by a {type(value).__name__}")


def to_dict(component: Component) -> dict[str, Any]:
    """Return the component as a mapping with the keys of YAML, local paths in full."""
    values = {key: plain(value) for key, value in component._values().items()}
    values["inputs"] = {name: _plain_declaration(value) for name, value in component.inputs.items()}
    values = {key: value for key, value in values.items() if value not in ({}, [])}
    component._settle(values)
    return values


def _plain_declaration(value: Input) -> dict[str, Any]:
    """Return a declaration as plain data; an unset ``optional`` says no, and is left out."""
    fields = {key: plain(item) for key, item in value._values().items()}
    if not fields.get("optional"):
        fields.pop("optional", None)
    return fields
