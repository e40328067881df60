"""Mappings whose keys are known: one record, or one of several by their ``type``; and those that become entities."""

from __future__ import annotations

from drumline.contract.errors import SpecError
from drumline.spec.entity import fill
from drumline.spec.foreign_parts import ours
from drumline.spec.hints import add_place, did_you_mean, key_hint, refuse_unknown
from drumline.spec.kinds.fields import Declared, Field
from drumline.spec.kinds.schemas import READ_ONLY, match_any_case, when_type
from drumline.spec.kinds.values import Kind, MapOf, OneOf, Report, join, lower, quote_node, refuse_wrong
from drumline.spec.reading.source import Mapping, Scalar, plain, problem_at, wrap

TYPE_CHECKING = False
if TYPE_CHECKING:
    import collections.abc
    from collections.abc import Callable, Collection, Container, Iterable
    from typing import Any

    from drumline.spec.entity import Attributes
    from drumline.spec.kinds.schemas import JsonSchema, Schemas
    from drumline.spec.reading.source import Node


class Record(Kind):
    """
    A mapping with known keys, each a kind or a declared field.

    ``ignored`` keys are read-only in azure-ai-ml: a dumped job may hold them, and they mean nothing
    when it is read.
    ``unknown`` says what becomes of other keys: an ``error``, ``keep`` them, or ``drop`` them.
    """

    word = "a mapping"

    def __init__(
        self,
        noun: str,
        fields: collections.abc.Mapping[str, Kind | Field],
        *,
        required: tuple[str, ...] = (),
        ignored: tuple[str, ...] = (),
        unknown: str = "error",
        nullable: bool = False,
    ) -> None:
        super().__init__(nullable=nullable)
        self.noun = noun
        self.declared = fields
        self.fields: dict[str, Kind] = {}
        self.texts: dict[str, str] = {}
        for key, declared in fields.items():
            kind = declared.kind if isinstance(declared, Field) else declared
            if kind is not None:
                self.fields[key] = kind
                self.texts[key] = declared.text if isinstance(declared, Field) else ""
        self.required = required
        self.ignored = frozenset(ignored)
        self.unknown = unknown

    def take(self, node: Node, path: str, report: Report) -> Any:
        if not isinstance(node, Mapping):
            self.refuse(node, path or self.noun, report)
            return None
        values: dict[str, Any] = {}
        for key, key_node, value in node:
            kind = self.fields.get(key) if isinstance(key, str) else None
            if kind is not None:
                values[key] = kind.check(value, join(path, key), report)
            elif key in self.ignored or self.unknown == "drop":
                continue
            elif self.unknown == "keep":
                values[str(key)] = plain(value)
            else:
                self._unknown_key(key_node, path, report)
        for key in self.required:
            if key not in node:
                what = f"missing key {key!r} in {path or self.noun}"
                report.add(what, node.key or node, join(path, key))
        return values

    def read(self, root: Node, report: Report) -> Any:
        """Return the values of a whole file. Raises SpecError with every problem of it."""
        values = self.check(root, "", report)
        if report.problems:
            raise SpecError(report.problems)
        return values

    def _unknown_key(self, key: Scalar, path: str, report: Report) -> None:
        name = key.value if isinstance(key.value, str) else key.text
        hint = key_hint(name, path, tuple(self.fields))
        report.add(f"unknown key {name!r} in {path or self.noun}", key, join(path, name), hint)

    def json_schema(self, schemas: Schemas) -> JsonSchema:
        return schemas.share(self, self.noun, lambda: self._make_schema(schemas))

    def _make_schema(self, schemas: Schemas) -> JsonSchema:
        properties = {
            key: schemas.describe(self.noun, key, schemas.make(kind), self.texts[key])
            for key, kind in self.fields.items()
        }
        properties |= {key: {"description": READ_ONLY} for key in sorted(self.ignored)}
        made: dict[str, Any] = {"type": "object", "properties": properties}
        if self.required:
            made["required"] = list(self.required)
        return made if self.unknown != "error" else {**made, "additionalProperties": False}


def list_fields(entity: type[Declared], **kinds: Kind) -> dict[str, Kind | Field]:
    """
    Return the fields of a class as a table takes them; where its type is fixed, it is the one that files may say.

    kinds: what some of the fields hold in this table, instead of what they declare.
    """
    fields: dict[str, Kind | Field] = dict(entity._declarations)
    declared = entity._declarations.get("type")
    if declared and not declared.init:
        kinds = {"type": OneOf(vars(entity)["type"]), **kinds}
    for name, kind in kinds.items():
        known = entity._declarations.get(name)
        fields[name] = Field(kind, known.text) if known else kind
    return fields


def list_required(entity: type[Declared]) -> tuple[str, ...]:
    """Return the fields that have no default."""
    return tuple(name for name, declared in entity._declarations.items() if declared.is_required)


def find_type(root: Mapping, noun: str, known: Collection[str], refused: Container[str] = ()) -> str:
    """
    Return the type that a file states, one of ``known``. Raises SpecError; ``refused``: types of Azure's alone.
    """
    node = root.get("type")
    if node is None:
        what, hint = f"missing key 'type' in a {noun}", _list_known(known)
        raise SpecError([problem_at(root, what, path="type", hint=hint)])
    kind = node.value.lower() if isinstance(node.value, str) else ""
    if kind in known:
        return kind
    what, hint = explain_type(kind, quote_node(node), noun, known, refused)
    raise SpecError([problem_at(node, what, path="type", hint=hint)])


def explain_type(
    kind: str, shown: str, noun: str, known: Iterable[str], refused: Container[str] = ()
) -> tuple[str, str]:
    """Return why that is no type of such a thing here, and which are."""
    what = (
        f"{noun}s of type {kind!r} are not supported"
        if kind in refused
        else f"{shown} is not a type of {noun}"
    )
    return what, did_you_mean(kind, known) or _list_known(known)


def _list_known(known: Iterable[str]) -> str:
    return "one of " + ", ".join(map(repr, known))


class ByType(Kind):
    """A mapping whose ``type`` key says which record it is."""

    word = "a mapping"

    def __init__(
        self,
        records: dict[str, Record],
        *,
        fold: Callable[[str], str] = lower,
        hint: Callable[[str], str] | None = None,
    ) -> None:
        super().__init__()
        self.records = records
        self.fold = fold
        self.hint = hint

    def take(self, node: Node, path: str, report: Report) -> Any:
        if not isinstance(node, Mapping):
            key, first = path.rpartition(".")[2], next(iter(self.records))
            example = f"write `type: {first}` on a line below `{key}:`"
            self.refuse(node, path, report, example)
            return None
        given = node.get("type")
        if given is None:
            report.add(
                f"missing key 'type' in {path}",
                node.key or node,
                join(path, "type"),
                _list_known(self.records),
            )
            return None
        name = given.value
        record = self.records.get(self.fold(name)) if isinstance(name, str) else None
        if record is None:
            hint = (self.hint(name) if self.hint and isinstance(name, str) else "") or _list_known(
                self.records
            )
            report.add(f"{quote_node(given)} is not a type of {path}", given, join(path, "type"), hint)
            return None
        return record.check(node, path, report)

    def json_schema(self, schemas: Schemas) -> JsonSchema:
        noun = f"{next(iter(self.records.values())).noun} of a type"
        return schemas.share(self, noun, lambda: self._make_schema(schemas))

    def _make_schema(self, schemas: Schemas) -> JsonSchema:
        names: dict[int, list[str]] = {}
        for name, record in self.records.items():
            names.setdefault(id(record), []).append(name)
        rules = [when_type(same, schemas.make(self.records[same[0]])) for same in names.values()]
        spelled = {"type": "string", "pattern": match_any_case(self.records)}
        given = {"anyOf": [{"enum": list(self.records)}, spelled]}
        return {"type": "object", "properties": {"type": given}, "required": ["type"], "allOf": rules}


class Part(Declared):
    """A part of a job, whose constructor refuses keywords that it does not know."""

    _place = ""
    """The key that holds it in a file."""
    _checks_values = False
    """Whether the constructor refuses values that its fields cannot hold, too."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls._place in ("resources", "distribution", "limits", "queue_settings"):
            add_place(cls._place, cls._fields)

    def _settle_arguments(self, others: dict[str, Any]) -> None:
        if str(others.get("type")).lower() == getattr(self, "type", ""):
            del others["type"]
        refuse_unknown(others, tuple(name for name in self._fields if name != "type"), self._place)
        if self._checks_values:
            refuse_wrong(self._values(), list_kinds(type(self)), self._place)


def list_kinds(entity: type[Declared]) -> dict[str, Kind]:
    return {name: declared.kind for name, declared in entity._declarations.items() if declared.kind}


class PartRecord(Record):
    """The table of an entity. ``more``: fields that files alone have, or have in another way."""

    def __init__(
        self,
        entity: type[Part],
        *,
        required: tuple[str, ...] = (),
        ignored: tuple[str, ...] = (),
        unknown: str = "error",
        more: dict[str, Kind] | None = None,
    ) -> None:
        fields = list_fields(entity, **(more or {}))
        super().__init__(entity._place, fields, required=required, ignored=ignored, unknown=unknown)
        self.entity = entity

    def take(self, node: Node, path: str, report: Report) -> Any:
        before = report.count
        values = super().take(node, path, report)
        return values if values is None or report.count > before else self.entity._from_checked(values)

    def adopt(self, value: Any) -> Any:
        """Make it of a mapping. Raises SpecError for what cannot be one."""
        value = ours(value)
        if isinstance(value, self.entity):
            return value
        if isinstance(value, Part) and value._place == self.noun:
            return self.entity(**value._values())
        if isinstance(value, dict):
            return self.entity(**value)
        what = f"{self.noun} cannot be of type {type(value).__name__!r}"
        raise SpecError(what, f"give {self.entity.__name__}(...)")


class MapInto(MapOf):
    """A mapping of names, kept in a class of its own, which converts what is put in."""

    def __init__(self, item: Kind, kept: type[Attributes]) -> None:
        super().__init__(item)
        self.kept = kept

    def adopt(self, value: Any) -> Any:
        return fill(self.kept(), value)


class PartByType(ByType):
    """The tables of entities of which ``type`` names the class."""

    def __init__(self, root: type[Part], records: dict[str, PartRecord], **more: Any) -> None:
        super().__init__(dict(records), **more)
        self.root = root

    def adopt(self, value: Any) -> Any:
        """Make it of a mapping, checked as one of a file is. Raises SpecError."""
        value = ours(value)
        if isinstance(value, self.root):
            return value
        place = self.root._place
        if not isinstance(value, dict):
            name, record = next(iter(self.records.items()))
            hint = f"give {{'type': {name!r}}} or {getattr(record, 'entity', self.root).__name__}(...)"
            raise SpecError(f"{place} cannot be of type {type(value).__name__!r}", hint)
        report = Report("")
        made = self.check(wrap(value), place, report)
        if report.count:
            raise SpecError(report.problems)
        return made
