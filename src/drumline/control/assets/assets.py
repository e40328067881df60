"""
The verbs of data, models, environments and components: each a name with versions, in the workspace's home.

What a workspace does not have is looked for in the base home. Datastores have no versions, and are in ``datastores``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drumline.contract.errors import NotFoundError, SpecError, UsageError
from drumline.contract.folder import base_home, home
from drumline.contract.hiding import hide_in_job
from drumline.contract.identity import user
from drumline.contract.record import NamedTuple
from drumline.contract.words import format_count
from drumline.control.assets import asset_records, datastores
from drumline.control.readable import readable
from drumline.store.assets import LATEST, Records, check_label, check_name, check_version

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


EDITABLE = asset_records.EDITABLE


def create(entity: Any, *, version: str | None = None, labels: Sequence[str] = (), check: bool = True) -> Any:
    """
    Register it; as the next whole number when it has no version. The result's ``_warnings`` say what was not used.

    A version that is there takes another description, other tags and the like; what it is cannot change.
    check: look into what its path leads to. Raises SpecError, PlanError, UsageError; nothing was created then.
    """
    kind = asset_records.kind_of(entity)
    if not kind:
        raise SpecError(f"{type(entity).__name__} is no asset", "Data, Model, Environment or a component")
    if not entity.name:
        raise SpecError(f"the {kind} has no name to be registered under", "name: NAME")
    check_name(entity.name)
    for label in labels:
        check_label(label)
    values, warnings = asset_records.record_of(entity, home(), check=check)
    records = Records(home(), kind)
    wanted = entity.version if version is None else version
    made = _create_or_replace(records, entity.name, None if wanted is None else str(wanted), values)
    for label in labels:
        records.set_label(entity.name, label, made)
    found = StoredAsset(records, entity.name, made).entity()
    found._warnings = warnings
    return found


def _create_or_replace(records: Records, name: str, wanted: str | None, values: dict[str, Any]) -> str:
    try:
        return records.create(name, wanted, {**values, "created_by": user()})
    except FileExistsError:
        assert wanted is not None
    before = records.read(name, wanted)
    _check_same(records, name, wanted, before, values)
    after = {**before, **{key: value for key, value in values.items() if value not in (None, {}, [])}}
    if after != before:
        records.replace(name, wanted, after)
    return wanted


def _check_same(
    records: Records, name: str, version: str, before: dict[str, Any], after: dict[str, Any]
) -> None:
    """Raise UsageError if the version holds another content."""
    keys = dict.fromkeys((*before, *after))
    other = [
        key for key in keys if key not in asset_records.NOT_COMPARED and before.get(key) != after.get(key)
    ]
    if other:
        what = f"version {version!r} of {records.kind} {name!r} is there already, with another {', '.join(other)}"
        raise UsageError(what, "leave the version out to make the next one, or give another")


def get(kind: str, name: str, version: str | None = None, label: str | None = None) -> Any:
    """Return an asset, by default the latest version. Raises NotFoundError; SpecError for a damaged record."""
    return find(kind, name, version, label).entity()


def describe(
    kind: str, name: str, version: str | None = None, label: str | None = None, *, is_whole: bool = False
) -> dict[str, Any]:
    """Return what ``get`` does, with the keys of YAML and the labels; without passwords unless ``is_whole``."""
    found = find(kind, name, version, label)
    return found.describe(found.labels(), is_whole=is_whole)


def all(  # noqa: A001 - assets.all()
    kind: str,
    name: str | None = None,
    *,
    archived: bool | None = False,
    damaged: Callable[[str], None] | None = None,
) -> list[Any]:
    """
    Return the versions of a name, newest first; without a name the latest of each, with ``latest_version``.

    ``archived``: only those, none of those, or both with None. ``damaged``: told of each record that cannot be read;
    None: SpecError is raised. Raises NotFoundError for a name that is not there.
    """

    def entity(stored: StoredAsset) -> Any:
        found = stored.entity()
        if name is None:
            found.latest_version = stored.version
        return found

    return _each(entity, kind, name, archived, damaged)


def describe_all(
    kind: str,
    name: str | None = None,
    *,
    archived: bool | None = False,
    damaged: Callable[[str], None] | None = None,
) -> list[dict[str, Any]]:
    """Return what ``all`` does, each as ``describe``."""
    known: dict[str, dict[str, str]] = {}

    def describe(stored: StoredAsset) -> dict[str, Any]:
        if stored.name not in known:
            known[stored.name] = stored.labels()
        return stored.describe(known[stored.name])

    return _each(describe, kind, name, archived, damaged)


def archive(kind: str, name: str, version: str | None = None, label: str | None = None) -> None:
    """Hide a version, or the name with all versions, from lists and from ``latest``. Raises NotFoundError."""
    found = find(kind, name, version, label, any_version=True)
    found.records.archive(name, found.version if version or label else None)


def restore(kind: str, name: str, version: str | None = None, label: str | None = None) -> None:
    """Undo ``archive``; without a version, of all versions. Raises NotFoundError."""
    found = find(kind, name, version, label, any_version=True)
    if version or label:
        if found.records.is_archived(name):
            raise UsageError(f"all of {kind} {name!r} is archived", f"drumline {kind} restore -n {name}")
        return found.records.restore(name, found.version)
    return found.records.restore(name)


def update(
    kind: str,
    name: str,
    version: str | None = None,
    label: str | None = None,
    *,
    changes: dict[str, Any],
    labels: Sequence[str] = (),
    unlabel: Sequence[str] = (),
) -> None:
    """
    Change fields and labels of a version.

    ``changes``: field to new value, of ``EDITABLE``; None removes it. ``labels``: to be put on that version.

    Raises NotFoundError, UsageError; nothing has changed then.
    """
    found = find(kind, name, version, label)
    fixed = [key for key in changes if key not in EDITABLE[kind]]
    if fixed:
        raise UsageError(f"the {fixed[0]} of a {kind} cannot be changed", "create another version")
    for given in labels:
        check_label(given)
    there = found.records.labels(name)
    for given in unlabel:
        if there.get(given) != found.version:
            hint = f"it is on version {there[given]!r}" if given in there else ""
            raise NotFoundError(f"{kind} {name!r}, version {found.version!r}, has no label {given!r}", hint)
    if changes:
        values = {**found.records.read(name, found.version), **changes}
        found.records.replace(
            name, found.version, {key: value for key, value in values.items() if value is not None}
        )
    for given in labels:
        found.records.set_label(name, given, found.version)
    for given in unlabel:
        found.records.remove_label(name, given)


def _each(
    make: Callable[[StoredAsset], Any],
    kind: str,
    name: str | None,
    archived: bool | None,
    damaged: Callable[[str], None] | None,
) -> list[Any]:
    found = versions(kind, name, archived) if name else latest(kind, archived)
    return readable(found, make, damaged)


# all assets in one list


KINDS = ("data", "model", "environment", "component", "datastore")


def list_assets(kind: str = "", name: str = "") -> dict[str, Any]:
    """
    Return the latest version of each asset; with a kind and a name all versions of that, newest first.

    Raises NotFoundError for a name that is not there.
    """
    damaged: list[str] = []
    found: list[dict[str, Any]] = []
    for one in [kind] if kind else KINDS:
        if one == "datastore":
            found += [_describe_datastore(store) for store in datastores.all(damaged.append)]
        else:
            listed = describe_all(one, name if kind and name else None, damaged=damaged.append)
            found += [_describe(one, asset) for asset in listed]
    count = format_count(len(found), "asset")
    sentence = f"{count}; {len(damaged)} cannot be read" if damaged else count
    return hide_in_job({"sentence": sentence, "assets": found, "damaged": damaged})


def _describe(kind: str, asset: dict[str, Any]) -> dict[str, Any]:
    created = asset.get("creation_context") or {}
    return {
        "kind": kind,
        "name": asset.get("name"),
        "version": asset.get("version"),
        "type": asset.get("type") or "",
        "created": created.get("created_at"),
        "description": asset.get("description") or "",
        "tags": asset.get("tags") or {},
        "labels": asset.get("labels") or [],
        "is_archived": bool(asset.get("is_archived")),
    }


def _describe_datastore(store: Any) -> dict[str, Any]:
    """Describe a datastore without its credentials."""
    return {
        "kind": "datastore",
        "name": store.name,
        "version": None,
        "type": str(store.type),
        "created": None,
        "description": store.description or "",
        "tags": dict(store.tags or {}),
        "labels": [],
        "is_archived": False,
    }


# versions, and the home that has them: what a workspace lacks is the base home's


class StoredAsset(NamedTuple):
    """A version that is there."""

    records: Records
    name: str
    version: str

    def entity(self) -> Any:
        values = self.records.read(self.name, self.version)
        return asset_records.entity_of(self.records.kind, self.name, self.version, values)

    def labels(self) -> dict[str, str]:
        """Return the labels of the name with their versions, ``latest`` first."""
        return {LATEST: self.records.find(self.name, LATEST), **self.records.labels(self.name)}

    def describe(self, labels: dict[str, str], *, is_whole: bool = False) -> dict[str, Any]:
        """Describe the version. ``labels``: those of its name. ``is_whole``: with passwords, for a change of it."""
        entity = self.entity()
        described = {
            **asset_records.to_yaml_values(entity),
            "id": entity.id,
            "latest_version": labels[LATEST],
            "labels": [label for label, version in labels.items() if version == self.version],
            "is_archived": self.records.is_archived(self.name, self.version),
            "creation_context": dict(vars(entity.creation_context)),
        }
        return described if is_whole else hide_in_job(described)


def homes() -> list[str]:
    """List the homes to look in: the workspace's, then the base home."""
    return [*dict.fromkeys((home(), base_home()))]


def all_names(kind: str) -> list[str]:
    """List the names of a kind, archived ones too, in alphabetical order."""
    return sorted({name for root in homes() for name in Records(root, kind).names()})


def all_versions(kind: str, name: str) -> list[str]:
    """List the versions of a name, archived ones too; empty for a name that is not there."""
    return list(dict.fromkeys(version for root in homes() for version in Records(root, kind).versions(name)))


def all_labels(kind: str, name: str) -> list[str]:
    """List the labels of a name; empty for a name that is not there."""
    if not all_versions(kind, name):
        return []
    return [LATEST, *dict.fromkeys(label for root in homes() for label in Records(root, kind).labels(name))]


def versions(kind: str, name: str, archived: bool | None) -> list[StoredAsset]:
    records = _records_with(kind, name)
    return [
        StoredAsset(records, name, version)
        for version in records.versions(name)
        if archived is None or records.is_archived(name, version) == archived
    ]


def latest(kind: str, archived: bool | None) -> list[StoredAsset]:
    """List the newest version of each name; a name is archived if all of its versions are."""
    names = sorted({name for root in homes() for name in Records(root, kind).names()})
    found = []
    for name in names:
        active = versions(kind, name, False)
        if active and archived is not True:
            found.append(active[0])
        elif not active and archived is not False:
            found += versions(kind, name, None)[:1]
    return found


def _records_with(kind: str, name: str) -> Records:
    """Return the records of the first home that has the name. Raises NotFoundError."""
    check_name(name)
    for root in homes():
        records = Records(root, kind)
        if records.versions(name):
            return records
    raise NotFoundError(f"there is no {kind} {name!r}", _alike(kind, name))


def find(
    kind: str, name: str, version: str | None, label: str | None, *, any_version: bool = False
) -> StoredAsset:
    """Find a version. any_version: without version and label, an archived one will do."""
    if version and label:
        raise UsageError("a version and a label exclude each other", "give one of them")
    # An empty one, as of a variable that was never set, means neither the latest nor all of them.
    if label is not None:
        check_name(label, "label")
    if version is not None:
        version = check_version(str(version))
    records = _records_with(kind, name)
    if version is not None:
        owners = [records, *(Records(root, kind) for root in homes())]
        owner = next((owner for owner in owners if version in owner.versions(name)), None)
        if owner is None:
            raise NotFoundError(f"{kind} {name!r} has no version {version!r}", _versions_there(records, name))
        return StoredAsset(owner, name, version)
    on = records.find(name, label or LATEST)
    if on:
        return StoredAsset(records, name, on)
    if any_version and not label:
        return StoredAsset(records, name, records.versions(name)[0])
    if label and label != LATEST:
        there = ", ".join([LATEST, *records.labels(name)])
        raise NotFoundError(f"no version of {kind} {name!r} has the label {label!r}", f"its labels: {there}")
    hint = f"drumline {kind} restore -n {name}, or give the version; {_versions_there(records, name)}"
    raise NotFoundError(f"every version of {kind} {name!r} is archived", hint)


def _versions_there(records: Records, name: str) -> str:
    there = records.versions(name)
    more = ", ..." if len(there) > 10 else ""
    return f"its versions, newest first: {', '.join(there[:10])}{more}"


def _alike(kind: str, name: str) -> str:
    import difflib

    known = {known for root in homes() for known in Records(root, kind).names()}
    close = difflib.get_close_matches(name, sorted(known), n=1)
    return f"did you mean {close[0]!r}?" if close else f"drumline {kind} list shows those there are"
