"""
The verbs of data, models, environments and components: each a name with versions, in the workspace's home.

What a workspace does not have is looked for in the base home. Datastores have no versions, and are in ``datastores``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drumline.contract.errors import NotFoundError, SpecError, UsageError
from drumline.contract.folder import home
from drumline.control.assets import asset_records, stored_assets
from drumline.control.readable import readable
from drumline.store.assets import Records, check_label, check_name

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
    found = stored_assets.StoredAsset(records, entity.name, made).entity()
    found._warnings = warnings
    return found


def _create_or_replace(records: Records, name: str, wanted: str | None, values: dict[str, Any]) -> str:
    from drumline.contract.user import user

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
    return stored_assets.find(kind, name, version, label).entity()


def describe(
    kind: str, name: str, version: str | None = None, label: str | None = None, *, is_whole: bool = False
) -> dict[str, Any]:
    """Return what ``get`` does, with the keys of YAML and the labels; without passwords unless ``is_whole``."""
    found = stored_assets.find(kind, name, version, label)
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

    def entity(stored: stored_assets.StoredAsset) -> Any:
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

    def describe(stored: stored_assets.StoredAsset) -> dict[str, Any]:
        if stored.name not in known:
            known[stored.name] = stored.labels()
        return stored.describe(known[stored.name])

    return _each(describe, kind, name, archived, damaged)


def archive(kind: str, name: str, version: str | None = None, label: str | None = None) -> None:
    """Hide a version, or the name with all versions, from lists and from ``latest``. Raises NotFoundError."""
    found = stored_assets.find(kind, name, version, label, any_version=True)
    found.records.archive(name, found.version if version or label else None)


def restore(kind: str, name: str, version: str | None = None, label: str | None = None) -> None:
    """Undo ``archive``; without a version, of all versions. Raises NotFoundError."""
    found = stored_assets.find(kind, name, version, label, any_version=True)
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
    found = stored_assets.find(kind, name, version, label)
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
    make: Callable[[stored_assets.StoredAsset], Any],
    kind: str,
    name: str | None,
    archived: bool | None,
    damaged: Callable[[str], None] | None,
) -> list[Any]:
    found = stored_assets.versions(kind, name, archived) if name else stored_assets.latest(kind, archived)
    return readable(found, make, damaged)
