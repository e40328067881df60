"""The common base of all parts of a job: named fields, equality by them, and a short repr."""

from __future__ import annotations

import sys

from drumline.contract.errors import SpecError, hide_passwords
from drumline.contract.words import DIRECTION_MARKS

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator
    from inspect import Parameter, Signature
    from typing import IO, Any


def read_signature(function: Callable[..., Any]) -> Signature:
    """Return a function's signature; Python 3.14 evaluates annotations here, some of which only type checkers know."""
    import inspect

    if sys.version_info >= (3, 14):
        from annotationlib import Format

        return inspect.signature(function, annotation_format=Format.FORWARDREF)
    return inspect.signature(function)


class ConstructorSignature:
    """The parameters of a class and, in the place of ``**kwargs``, of its bases; for help and editors."""

    def __get__(self, instance: object, entity: type[Any]) -> Any:
        if instance is not None:
            raise AttributeError("__signature__")  # That of an object that can be called is its call's.
        from inspect import Parameter, Signature

        found: dict[str, Parameter] = {}
        for base in entity.__mro__[:-1]:
            own = self.list_parameters(base, entity)
            for parameter in own:
                found.setdefault(
                    "**" if parameter.kind is Parameter.VAR_KEYWORD else parameter.name, parameter
                )
            if own and own[-1].kind is not Parameter.VAR_KEYWORD:
                break
        return Signature(sorted(found.values(), key=lambda parameter: parameter.kind))

    def list_parameters(self, base: type[Any], entity: type[Any]) -> list[Parameter]:
        """Return those of the constructor that ``base``, the class or a base of it, has itself."""
        constructor = vars(base).get("__init__")
        return list(read_signature(constructor).parameters.values())[1:] if constructor else []


class Entity:
    """
    A plain object with the fields named in ``_fields``; mutable, checked as a whole by
    ``validate``.
    """

    __signature__ = ConstructorSignature()

    _fields: tuple[str, ...] = ()
    _hidden: tuple[str, ...] = ()
    """Fields that files do not have."""
    _keeps_empty = False
    """Whether an empty mapping in it says something."""
    _is_asked_for = True
    """Whether files have it at all."""

    def _values(self) -> dict[str, Any]:
        """Return the fields that are set, under the keys of YAML."""
        values = {name: getattr(self, name, None) for name in self._fields}
        return {name: value for name, value in values.items() if value is not None}

    def _plain(self) -> Any:
        """Return it as JSON can hold it, with the keys of YAML and without what is not set."""
        fields = {key: plain(item) for key, item in self._values().items() if key not in self._hidden}
        return {
            key: item
            for key, item in fields.items()
            if item != {} or self._keeps_empty or key == "environment"
        }

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, type(self)) or type(other) is not type(self):
            return NotImplemented
        return bool(self._values() == other._values())

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in self._values().items())
        return hide_passwords(f"{type(self).__name__}({fields})")


class Keyed(Entity):
    """An entity whose fields are items too, as azure-ai-ml's: ``output["path"]``."""

    def __getitem__(self, name: str) -> Any:
        if name not in self._fields:
            raise KeyError(name)
        return getattr(self, name)

    def __setitem__(self, name: str, value: Any) -> None:
        setattr(self, name, value)

    def __contains__(self, name: object) -> bool:
        return name in self._fields

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def get(self, name: str, default: Any = None) -> Any:
        return getattr(self, name) if name in self._fields else default


class Written(Entity):
    """An entity that is a file of its own: ``dump`` writes it, and ``str()`` is that without passwords."""

    def _file(self) -> dict[str, Any]:
        """Return the keys of YAML, local paths in full, without what is not set; JSON can hold it."""
        values = {key: plain(value) for key, value in self._values().items()}
        return {key: value for key, value in values.items() if value not in ({}, [])}

    def dump(self, dest: str | os.PathLike[str] | IO[str], **kwargs: Any) -> None:
        """Write it as YAML that loads back; over what is there, unless ``overwrite=False``. Raises OSError."""
        if hasattr(dest, "write"):
            dest.write(write_yaml(self._file()))
            return
        with open(dest, "w" if kwargs.get("overwrite", True) else "x", encoding="utf-8") as file:
            file.write(write_yaml(self._file()))

    def __str__(self) -> str:
        return hide_passwords(write_yaml(self._file()))


def to_dict(entity: Written) -> dict[str, Any]:
    """Return the keys of YAML, local paths in full, without what is not set; JSON can hold it."""
    return entity._file()


def write_yaml(values: dict[str, Any]) -> str:
    """
    Return YAML that loads back to these values, with text of several lines as a block, as people write commands.

    Marks that turn the direction of writing are escaped: the text is for people too.
    """
    import re

    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

    def represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
        style = '"' if re.search(DIRECTION_MARKS, text) else "|" if "\n" in text else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Dumper.add_representer(str, represent_text)
    text = yaml.dump(values, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=10_000)
    return re.sub(DIRECTION_MARKS, lambda mark: f"\\u{ord(mark[0]):04x}", text)


def plain(value: Any) -> Any:
    """Return a value as JSON can hold it: entities as mappings with the keys of YAML, the rest as it is or as text."""
    if isinstance(value, Entity):
        return value._plain()
    if isinstance(value, dict):
        asked_for = {key: item for key, item in value.items() if getattr(item, "_is_asked_for", True)}
        return {str(key): plain(item) for key, item in asked_for.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if value is None or isinstance(value, (str, int, float)):
        return value
    return str(value)


class Attributes(dict[str, "Any"]):
    """A mapping whose items are attributes too: ``job.inputs["lr"]`` and ``job.inputs.lr``."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            known = ", ".join(map(repr, self)) or "none"
            raise AttributeError(f"no {name!r} here; known: {known}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __repr__(self) -> str:
        return hide_passwords(super().__repr__())

    def __delattr__(self, name: str) -> None:
        try:
            del self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __deepcopy__(self, memo: dict[int, Any]) -> Attributes:
        from copy import deepcopy

        copied = type(self)()
        for name, value in self.items():
            dict.__setitem__(copied, name, deepcopy(value, memo))
        return copied


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


def text_path(value: Any) -> Any:
    """Return a path-like object as text; anything else as it is."""
    return value.__fspath__() if hasattr(value, "__fspath__") else value


def whole(value: Any) -> Any:
    """Return the whole number that text or a float stands for; anything else as it is."""
    if isinstance(value, (str, float)):
        try:
            return int(value)
        except (ValueError, OverflowError):
            return value
    return value
