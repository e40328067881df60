"""Mappings whose keys are known: one record, or one of several by their ``type``."""

from __future__ import annotations

from drumline.spec.kinds.values import Kind, join, lower, quote_node
from drumline.spec.reading.tree import Mapping, Scalar, plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from drumline.spec.kinds.report import Report
    from drumline.spec.kinds.schemas import Schemas
    from drumline.spec.reading.tree import Node


class Record(Kind):
    """
    A mapping with known keys.

    ``ignored`` keys are read-only in azure-ai-ml: a dumped job may hold them, and they mean nothing
    when it is read.
    ``unknown`` says what becomes of other keys: an ``error``, ``keep`` them, or ``drop`` them.
    """

    word = "a mapping"

    def __init__(
        self,
        noun: str,
        fields: dict[str, Kind],
        *,
        required: tuple[str, ...] = (),
        ignored: tuple[str, ...] = (),
        unknown: str = "error",
        nullable: bool = False,
    ) -> None:
        super().__init__(nullable=nullable)
        self.noun = noun
        self.fields = fields
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

    def _unknown_key(self, key: Scalar, path: str, report: Report) -> None:
        from drumline.spec.hints import key_hint

        name = key.value if isinstance(key.value, str) else key.text
        hint = key_hint(name, path, tuple(self.fields))
        report.add(f"unknown key {name!r} in {path or self.noun}", key, join(path, name), hint)

    def json_schema(self, schemas: Schemas) -> dict[str, Any]:
        return schemas.share(self, self.noun, lambda: self._make_schema(schemas))

    def _make_schema(self, schemas: Schemas) -> dict[str, Any]:
        from drumline.spec.kinds.schemas import READ_ONLY

        properties = {
            key: schemas.describe(self.noun, key, schemas.make(kind)) for key, kind in self.fields.items()
        }
        properties |= {key: {"description": READ_ONLY} for key in sorted(self.ignored)}
        made: dict[str, Any] = {"type": "object", "properties": properties}
        if self.required:
            made["required"] = list(self.required)
        return made if self.unknown != "error" else {**made, "additionalProperties": False}


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
                f"missing key 'type' in {path}", node.key or node, join(path, "type"), self._list_known()
            )
            return None
        name = given.value if isinstance(given, Scalar) else None
        record = self.records.get(self.fold(name)) if isinstance(name, str) else None
        if record is None:
            hint = (self.hint(name) if self.hint and isinstance(name, str) else "") or self._list_known()
            report.add(f"{quote_node(given)} is not a type of {path}", given, join(path, "type"), hint)
            return None
        return record.check(node, path, report)

    def _list_known(self) -> str:
        return "one of " + ", ".join(repr(name) for name in self.records)

    def json_schema(self, schemas: Schemas) -> dict[str, Any]:
        noun = f"{next(iter(self.records.values())).noun} of a type"
        return schemas.share(self, noun, lambda: self._make_schema(schemas))

    def _make_schema(self, schemas: Schemas) -> dict[str, Any]:
        from drumline.spec.kinds.schemas import match_any_case, when_type

        names: dict[int, list[str]] = {}
        for name, record in self.records.items():
            names.setdefault(id(record), []).append(name)
        rules = [when_type(same, schemas.make(self.records[same[0]])) for same in names.values()]
        spelled = {"type": "string", "pattern": match_any_case(self.records)}
        given = {"anyOf": [{"enum": list(self.records)}, spelled]}
        return {"type": "object", "properties": {"type": given}, "required": ["type"], "allOf": rules}
