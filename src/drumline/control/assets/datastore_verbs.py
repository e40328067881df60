"""
Datastores: where ``azureml://datastores/<name>/paths/<path>`` is on this machine.

Four are there from the start, as in every workspace of Azure: folders of the home, until somebody registers another
under their name. Those of Azure's types are addresses (``abfss://``, ``wasbs://``); credentials stay in
the record.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import NotFoundError, PlanError, UsageError
from drumline.contract.folder import base_home, home
from drumline.contract.process_identity import user
from drumline.contract.record import NamedTuple
from drumline.control.readable import readable
from drumline.store.asset_versions import Records, check_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from drumline.spec.registered.datastores import Datastore

DEFAULT = "workspaceblobstore"
BUILT_IN = (DEFAULT, "workspacefilestore", "workspaceworkingdirectory", "workspaceartifactstore")
"""Source: https://learn.microsoft.com/azure/machine-learning/how-to-datastore (default datastores)."""

_VERSION = "1"
"""A datastore has no versions: there is one record of it, under this one."""


def get(name: str) -> Datastore:
    """Return a datastore. Raises NotFoundError; SpecError for a damaged record."""
    from drumline.spec.registered.datastores import LocalDatastore, from_dict

    values = _record(name)
    if values is None and name in BUILT_IN:
        found: Datastore = LocalDatastore(name=name, path=os.path.join(home(), "datastores", name))
    elif values is None:
        raise NotFoundError(f"there is no datastore {name!r}", _alike(name))
    else:
        found = from_dict(
            {key: value for key, value in values.items() if key not in ("created_at", "created_by")}
        )
    found.id = f"azureml://datastores/{name}"
    found.is_default = name == DEFAULT
    return found


def all(damaged: Callable[[str], None] | None = None) -> list[Datastore]:  # noqa: A001 - datastores.all()
    """
    List the datastores in alphabetical order.

    ``damaged``: told of each record that cannot be read; None: SpecError is raised.
    """
    return readable(names(), get, damaged)


def names() -> list[str]:
    return sorted({*BUILT_IN, *(name for root in _homes() for name in _records(root).names())})


def create(datastore: Datastore) -> Datastore:
    """
    Create or replace it; its ``_warnings`` say what was not used of it. Raises SpecError, UsageError, PlanError;
    nothing has changed then.
    """
    from drumline.spec.registered.datastores import HiddenCredentials, LocalDatastore, from_dict, to_dict

    values = to_dict(from_dict(to_dict(datastore)))
    check_name(datastore.name)
    if isinstance(datastore.credentials, HiddenCredentials):
        before = _record(datastore.name) or {}
        if before.get("type") == values["type"] and "credentials" in before:
            values["credentials"] = before["credentials"]
    if isinstance(datastore, LocalDatastore) and not os.path.isdir(values["path"]):
        import shlex

        hint = f"mkdir -p {shlex.quote(values['path'])}"
        raise PlanError(f"path: there is no folder {values['path']!r}", hint, path="path")
    values["created_by"] = user()
    records = _records(home())
    try:
        records.create(datastore.name, _VERSION, values)
    except FileExistsError:
        records.replace(datastore.name, _VERSION, values)
    made = get(datastore.name)
    made._warnings = list(datastore._warnings)
    return made


def delete(name: str) -> None:
    """Forget a datastore; its folder or account stays. Raises NotFoundError, UsageError."""
    for root in _homes():
        if _VERSION in _records(root).versions(check_name(name)):
            return _records(root).remove(name, _VERSION)
    if name in BUILT_IN:
        raise UsageError(
            f"the datastore {name!r} is always there", "it can be given another folder with create"
        )
    raise NotFoundError(f"there is no datastore {name!r}", _alike(name))


class DatastorePlace(NamedTuple):
    place: str
    """A local path, where nothing may be, or an address."""

    home: str = ""
    """In which the record with the credentials is; empty for a local path."""


def find(name: str, inside: str) -> DatastorePlace:
    """
    Return where ``azureml://datastores/<name>/paths/<inside>`` is.

    Raises NotFoundError, UsageError for a path that leads out of it, and PlanError for a kind that cannot be read.
    """
    from drumline.contract import uris
    from drumline.spec.registered.datastores import LocalDatastore

    datastore = get(name)
    steps = [step for step in inside.split("/") if step not in ("", ".")]
    if ".." in steps or "\0" in inside:
        raise UsageError(
            f"the path {inside!r} leads out of the datastore {name!r}", "a path below it, without '..'"
        )
    if isinstance(datastore, LocalDatastore):
        return DatastorePlace(os.path.join(os.path.abspath(datastore.path), *steps))
    owner = next(root for root in _homes() if _VERSION in _records(root).versions(name))
    return DatastorePlace(uris.join_uri(_address(datastore), *steps), owner)


def path_of(name: str, inside: str) -> str:
    """Return the path in a datastore that is a folder. Raises as ``find``; PlanError for other datastores."""
    found = find(name, inside)
    if found.home:
        hint = f"drumline datastore create --name {name} --type local --path /FOLDER says where its content is here"
        raise PlanError(
            f"the datastore {name!r} is no folder of this machine; jobs fetch from {found.place}", hint
        )
    return found.place


def _address(datastore: Any) -> str:
    """Return the address of a datastore. Raises PlanError."""
    endpoint = str(getattr(datastore, "endpoint", None) or "core.windows.net")
    if "://" in endpoint:  # Of an emulator, or behind a gateway: the record has it, the address is a name.
        endpoint = "core.windows.net"
    if datastore.type == "azure_blob":
        return f"wasbs://{datastore.container_name}@{datastore.account_name}.blob.{endpoint}"
    if datastore.type == "azure_data_lake_gen2":
        return f"abfss://{datastore.filesystem}@{datastore.account_name}.dfs.{endpoint}"
    hints = {
        "azure_file": "mount the share, and",
        "azure_data_lake_gen1": "Azure ended Gen1 in 2024; where its content is here now,",
    }
    hint = f"drumline datastore create --name {datastore.name} --type local --path /FOLDER takes its place"
    hint = f"{hints.get(datastore.type, 'where its content is here,')} {hint}"
    raise PlanError(
        f"the datastore {datastore.name!r} is of type {datastore.type}, which is not read here", hint
    )


def _homes() -> list[str]:
    """List the homes to look in: the workspace's, then the base home."""
    return list(dict.fromkeys((home(), base_home())))


def _records(root: str) -> Records:
    return Records(root, "datastore")


def _record(name: str) -> dict[str, Any] | None:
    check_name(name)
    for root in _homes():
        try:
            return _records(root).read(name, _VERSION)
        except NotFoundError:
            continue
    return None


def _alike(name: str) -> str:
    import difflib

    close = difflib.get_close_matches(name, names(), n=1)
    hint = f"did you mean {close[0]!r}? or " if close else ""
    return f"{hint}drumline datastore create --name {name} --type local --path /FOLDER makes it a folder"
