"""Interactive services next to a job: ssh, JupyterLab, TensorBoard, VS Code."""

from __future__ import annotations

from drumline.contract.errors import SpecError
from drumline.spec.entity import Attributes, Keyed
from drumline.spec.foreign_parts import ours
from drumline.spec.kinds.fields import Any, Field, field
from drumline.spec.kinds.records import MapInto, Part, Record, list_fields
from drumline.spec.kinds.values import Anything, Integer, Kind, MapOf, Text, join
from drumline.spec.reading.source import Mapping, Scalar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container

    from drumline.spec.kinds.schemas import JsonSchema, Schemas
    from drumline.spec.kinds.values import Report
    from drumline.spec.reading.source import Node

_TEXT = Text()


class JobService(Keyed, Part):
    """
    ``nodes`` is ``all``, or None for the first node; ``endpoint`` and ``status`` are set once it
    runs.
    """

    type: str | None = field(_TEXT, default=None)
    nodes: str | None = field(_TEXT, default=None)
    port: int | None = field(Integer(), "The port.", default=None)
    properties: dict[str, Any] | None = field(MapOf(Anything()), default=None)
    endpoint: str | None = field(None, default=None)
    status: str | None = field(None, default=None)

    def _settle_arguments(self, others: dict[str, Any]) -> None:
        if self.nodes not in (None, "all"):
            raise SpecError(f"nodes of a service must be 'all' or None, got {self.nodes!r}")


class SshJobService(JobService):
    type: str | None = field(_TEXT, default="ssh", init=False)
    ssh_public_keys: str | None = field(_TEXT, default=None)


class TensorBoardJobService(JobService):
    type: str | None = field(_TEXT, default="tensor_board", init=False)
    log_dir: str | None = field(_TEXT, default=None)


class JupyterLabJobService(JobService):
    type: str | None = field(_TEXT, default="jupyter_lab", init=False)


class VsCodeJobService(JobService):
    type: str | None = field(_TEXT, default="vs_code", init=False)


class FoundService(JobService):
    """
    The address of a part of a submitted job, such as its page. It asks for nothing: no file has it, and a job
    that is submitted again starts nothing for it.
    """

    _fields = ()
    _is_asked_for = False


_CLASSES: dict[str, type[JobService]] = {
    "jupyter_lab": JupyterLabJobService,
    "ssh": SshJobService,
    "tensor_board": TensorBoardJobService,
    "vs_code": VsCodeJobService,
}
_IGNORED = ("$schema", "endpoint", "status", "error_message")


class ServiceKind(Kind):
    """
    An interactive service next to the job; a type that is not known is accepted and not started.
    """

    word = "a mapping"

    def take(self, node: Node, path: str, report: Report) -> Any:
        if not isinstance(node, Mapping):
            self.refuse(node, path, report)
            return None
        before = report.count
        given = node.get("type")
        kind = _choose_class(given.value if isinstance(given, Scalar) else given, node.entries)
        record = Record("service", list_service_fields(kind), ignored=_IGNORED)
        values = record.check(node, path, report)
        nodes = values.get("nodes")
        if nodes is not None and nodes != "all":
            where = node.get("nodes") or node
            hint = "leave `nodes` out for the first node only"
            report.add(f"{path}.nodes must be 'all', got {nodes!r}", where, join(path, "nodes"), hint)
        return values if report.count > before else kind._from_checked(values)

    def json_schema(self, schemas: Schemas) -> JsonSchema:
        return schemas.share(self, "service", lambda: _make_service(schemas))


def list_service_fields(kind: type[JobService]) -> dict[str, Kind | Field]:
    return {**list_fields(kind), "type": _TEXT}


def _make_service(schemas: Schemas) -> JsonSchema:
    """Make the schema of a service of any type."""
    fields = {key: one for kind in _CLASSES.values() for key, one in list_service_fields(kind).items()}
    properties = Record("service", fields, ignored=_IGNORED)._make_schema(schemas)["properties"]
    properties["nodes"] = {"const": "all"}
    properties["type"] = {"type": "string", "examples": list(_CLASSES)}
    return {"type": "object", "properties": properties, "additionalProperties": False}


class Services(Attributes):
    """The services of a job by name; a dictionary that is put in becomes a ``JobService``."""

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, to_service(name, value))


def asked_for(services: dict[str, JobService] | None) -> dict[str, JobService]:
    """Return those that a job asks for, without those that were found."""
    return {name: one for name, one in (services or {}).items() if one._is_asked_for}


def to_service(name: str, value: Any) -> JobService:
    value = ours(value)
    if isinstance(value, JobService):
        return value
    if not isinstance(value, dict):
        kind = type(value).__name__
        raise SpecError(f"service {name!r} cannot be of type {kind!r}", "give SshJobService(...)")
    return _choose_class(value.get("type"), value)(**value)


def _choose_class(kind: Any, keys: Container[str]) -> type[JobService]:
    """Return the class of a service, by its type or by a key that only it has."""
    if kind is None:
        kind = "ssh" if "ssh_public_keys" in keys else "tensor_board" if "log_dir" in keys else ""
    return _CLASSES.get(str(kind).lower(), JobService)


SERVICES = MapInto(ServiceKind(), Services)
