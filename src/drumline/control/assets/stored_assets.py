"""The versions of an asset, and the home that has them: a version that a workspace lacks is the base home's."""

from __future__ import annotations

from typing import Any

from drumline.contract.errors import NotFoundError, UsageError
from drumline.contract.folder import base_home, home
from drumline.contract.hiding import hide_in_job
from drumline.contract.record import NamedTuple
from drumline.control.assets import asset_records
from drumline.store.assets import LATEST, Records, check_name, check_version


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
