"""Interactive services next to a job: ssh, JupyterLab, TensorBoard, VS Code."""

from __future__ import annotations

from drumline.contract.errors import SpecError
from drumline.spec import fields
from drumline.spec.entity import Attributes, Keyed
from drumline.spec.fields import list_whole
from drumline.spec.foreign_parts import ours

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class JobService(Keyed):
    """
    ``nodes`` is ``all``, or None for the first node; ``endpoint`` and ``status`` are set once it
    runs.
    """

    _fields: tuple[str, ...] = tuple(fields.SERVICE)
    _whole = list_whole(fields.SERVICE)
    _type: str | None = None

    def __init__(
        self,
        *,
        endpoint: str | None = None,
        type: str | None = None,
        nodes: str | None = None,
        status: str | None = None,
        port: int | None = None,
        properties: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if nodes not in (None, "all"):
            raise SpecError(f"nodes of a service must be 'all' or None, got {nodes!r}")
        self.endpoint = endpoint
        self.type = self._type or type
        self.nodes = nodes
        self.status = status
        self.port = port
        self.properties = properties


class SshJobService(JobService):
    _fields = (*JobService._fields, *fields.SSH)
    _type = "ssh"

    def __init__(self, *, ssh_public_keys: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.ssh_public_keys = ssh_public_keys


class TensorBoardJobService(JobService):
    _fields = (*JobService._fields, *fields.TENSOR_BOARD)
    _type = "tensor_board"

    def __init__(self, *, log_dir: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.log_dir = log_dir


class JupyterLabJobService(JobService):
    _type = "jupyter_lab"


class VsCodeJobService(JobService):
    _type = "vs_code"


class FoundService(JobService):
    """
    The address of a part of a submitted job, such as its page. It asks for nothing: no file has it, and a job
    that is submitted again starts nothing for it.
    """

    _fields = ()
    _is_asked_for = False


_CLASSES: dict[str, type[JobService]] = {
    "ssh": SshJobService,
    "tensor_board": TensorBoardJobService,
    "jupyter_lab": JupyterLabJobService,
    "vs_code": VsCodeJobService,
}


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
    return _CLASSES.get(_kind(value), JobService)(**value)


def _kind(values: dict[str, Any]) -> str:
    if "type" in values:
        return str(values["type"]).lower()
    return "ssh" if "ssh_public_keys" in values else "tensor_board" if "log_dir" in values else ""
