"""Mappings that become entities: those of files, checked once, and those of Python."""

from __future__ import annotations

from drumline.contract.errors import SpecError
from drumline.spec.entity import fill
from drumline.spec.foreign_parts import ours
from drumline.spec.hints import add_place
from drumline.spec.keywords import refuse_unknown
from drumline.spec.kinds.fields import Declared
from drumline.spec.kinds.records import ByType, Record, list_fields
from drumline.spec.kinds.report import Report
from drumline.spec.kinds.values import MapOf, refuse_wrong
from drumline.spec.reading.tree import wrap

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from drumline.spec.entity import Attributes
    from drumline.spec.kinds.values import Kind
    from drumline.spec.reading.tree import Node


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
