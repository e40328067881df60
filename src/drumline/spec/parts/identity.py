"""The identity on whose behalf a job runs in Azure; read and kept, without effect on machines of your own."""

from __future__ import annotations

from drumline.contract.errors import SpecError
from drumline.spec import fields
from drumline.spec.entity import Entity
from drumline.spec.foreign_parts import ours

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class _Identity(Entity):
    type = ""


class UserIdentityConfiguration(_Identity):
    _fields = ("type",)
    type = "user_identity"


class AmlTokenConfiguration(_Identity):
    _fields = ("type",)
    type = "aml_token"


class ManagedIdentityConfiguration(_Identity):
    _fields = ("type", *fields.MANAGED_IDENTITY)
    type = "managed"

    def __init__(
        self,
        *,
        client_id: str | None = None,
        resource_id: str | None = None,
        object_id: str | None = None,
        principal_id: str | None = None,
    ) -> None:
        self.client_id = client_id
        self.resource_id = resource_id
        self.object_id = object_id
        self.principal_id = principal_id

    @property
    def msi_resource_id(self) -> str | None:
        """Return what YAML calls ``resource_id``."""
        return self.resource_id


def to_identity(value: Any) -> _Identity | None:
    """Return an identity from a dictionary. Raises SpecError when it is none."""
    value = ours(value)
    if value is None or isinstance(value, _Identity):
        return value
    from drumline.spec.kinds.report import Report
    from drumline.spec.reading.tree import wrap
    from drumline.spec.schema.command import IDENTITY

    report = Report("")
    checked = IDENTITY.check(wrap(value), "identity", report)
    if report.count:
        raise SpecError(report.problems)
    return from_checked(checked)


def from_checked(values: dict[str, Any]) -> _Identity:
    """Return an identity from a mapping that a schema has accepted."""
    if values["type"] == "user_identity":
        return UserIdentityConfiguration()
    if values["type"] == "aml_token":
        return AmlTokenConfiguration()
    return ManagedIdentityConfiguration(
        client_id=values.get("client_id"),
        object_id=values.get("object_id"),
        resource_id=values.get("msi_resource_id"),
    )
