"""
Schedules: jobs that are kept under a name, and submitted by hand. Nothing runs by the clock.

A record is a file of the workspace for its owner alone, beside those of assets, so that upkeep sees what it names:
``properties`` is the body of Azure's REST API, ``code`` has the snapshots of the code that it names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drumline.contract.folder import home
from drumline.contract.process_identity import user
from drumline.store.asset_versions import Records

if TYPE_CHECKING:
    from collections.abc import Mapping

_KIND = "schedule"
_VERSION = "1"
"""A schedule has no others."""


def put(name: str, record: Mapping[str, Any]) -> None:
    """Create or replace a schedule. Raises UsageError for what cannot be a name."""
    records, values = Records(home(), _KIND), {**record, "created_by": user()}
    try:
        records.create(name, _VERSION, values)
    except FileExistsError:
        records.replace(name, _VERSION, values)


def get(name: str) -> dict[str, Any]:
    """Return the record of a schedule. Raises NotFoundError; SpecError for a damaged file."""
    return Records(home(), _KIND).read(name, _VERSION)


def names() -> list[str]:
    return Records(home(), _KIND).names()


def delete(name: str) -> None:
    """Forget a schedule; jobs that were made of it stay. Raises NotFoundError."""
    Records(home(), _KIND).remove(name, _VERSION)
