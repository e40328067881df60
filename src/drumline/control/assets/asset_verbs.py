"""The verbs of data, models, environments and components: each a name with versions, in the workspace's home."""

from __future__ import annotations

import contextlib
import difflib
import os
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import DrumlineError, NotFoundError, PlanError, Problem, SpecError, UsageError
from drumline.contract.folder import base_home, home, workspace
from drumline.contract.hiding import hide_in_job
from drumline.contract.process_identity import user
from drumline.contract.record import NamedTuple, describe_record
from drumline.contract.words import format_count
from drumline.control.assets import code as code_assets
from drumline.control.assets import datastore_verbs
from drumline.control.environments import environment_builds
from drumline.control.environments.recipes import inline_requirements
from drumline.control.readable import readable
from drumline.spec.azureml_uris import InDatastore, is_reference, parse
from drumline.spec.entity import plain, to_dict
from drumline.spec.entity_types import component_table
from drumline.spec.hints import did_you_mean
from drumline.spec.jobs.component import Component, class_of
from drumline.spec.kinds.values import Report
from drumline.spec.parts.environment import Environment
from drumline.spec.parts.environment import from_tree as environment_from_tree
from drumline.spec.paths import is_remote, resolve
from drumline.spec.reading.files import read_yaml
from drumline.spec.reading.source import Mapping, wrap
from drumline.spec.registered.assets import CreationContext, Data, Model, check_asset
from drumline.staging.snapshot.partial_folder import snapshot_path
from drumline.staging.snapshot.take import take_snapshot
from drumline.store.asset_versions import LATEST, Records, check_label, check_name, check_version

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from drumline.spec.registered.assets import Asset


def create(entity: Any, *, version: str | None = None, labels: Sequence[str] = (), check: bool = True) -> Any:
    """
    Register it; as the next whole number when it has no version. The result's ``_warnings`` say what was not used.

    A version that is there takes another description, other tags and the like; what it is cannot change.
    check: look into what its path leads to. Raises SpecError, PlanError, UsageError; nothing was created then.
    """
    kind = kind_of(entity)
    if not kind:
        raise SpecError(f"{type(entity).__name__} is no asset", "Data, Model, Environment or a component")
    if not entity.name:
        raise SpecError(f"the {kind} has no name to be registered under", "name: NAME")
    check_name(entity.name)
    for label in labels:
        check_label(label)
    values, warnings = record_of(entity, home(), check=check)
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
    keys = dict.fromkeys((*before, *values))
    other = [key for key in keys if key not in _NOT_COMPARED and before.get(key) != values.get(key)]
    if other:
        what = (
            f"version {wanted!r} of {records.kind} {name!r} is there already, with another {', '.join(other)}"
        )
        raise UsageError(what, "leave the version out to make the next one, or give another")
    after = {**before, **{key: value for key, value in values.items() if value not in (None, {}, [])}}
    if after != before:
        records.replace(name, wanted, after)
    return wanted


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


class AssetRow(NamedTuple):
    """A version of an asset, or a datastore without its credentials."""

    kind: str
    name: str | None
    version: str | None
    type: str
    created: str | None
    description: str
    tags: dict[str, str]
    labels: list[str]
    is_archived: bool


def list_assets(kind: str = "", name: str = "") -> dict[str, Any]:
    """
    Return the latest version of each asset; with a kind and a name all versions of that, newest first.

    Raises NotFoundError for a name that is not there.
    """
    damaged: list[str] = []
    found: list[AssetRow] = []
    for one in [kind] if kind else KINDS:
        if one == "datastore":
            found += [_describe_datastore(store) for store in datastore_verbs.all(damaged.append)]
        else:
            listed = describe_all(one, name if kind and name else None, damaged=damaged.append)
            found += [_describe(one, asset) for asset in listed]
    count = format_count(len(found), "asset")
    sentence = f"{count}; {len(damaged)} cannot be read" if damaged else count
    return hide_in_job({"sentence": sentence, "assets": describe_record(found), "damaged": damaged})


def _describe(kind: str, asset: dict[str, Any]) -> AssetRow:
    created = (asset.get("creation_context") or {}).get("created_at")
    return AssetRow(
        *(kind, asset.get("name"), asset.get("version"), asset.get("type") or "", created),
        description=asset.get("description") or "",
        tags=asset.get("tags") or {},
        labels=asset.get("labels") or [],
        is_archived=bool(asset.get("is_archived")),
    )


def _describe_datastore(store: Any) -> AssetRow:
    about = (str(store.type), None, store.description or "", dict(store.tags or {}))
    return AssetRow("datastore", store.name, None, *about, labels=[], is_archived=False)


# versions, and the home that has them: what a workspace lacks is the base home's


class StoredAsset(NamedTuple):
    """A version that is there."""

    records: Records
    name: str
    version: str

    def entity(self) -> Any:
        values = self.records.read(self.name, self.version)
        if self.records.home != home():
            values = {**values, "path": _find_in_base_home(values["path"])} if "path" in values else values
        return entity_of(self.records.kind, self.name, self.version, values)

    def labels(self) -> dict[str, str]:
        """Return the labels of the name with their versions, ``latest`` first."""
        return {LATEST: self.records.find(self.name, LATEST), **self.records.labels(self.name)}

    def describe(self, labels: dict[str, str], *, is_whole: bool = False) -> dict[str, Any]:
        """Describe the version. ``labels``: those of its name. ``is_whole``: with passwords, for a change of it."""
        entity = self.entity()
        described = {
            **to_yaml_values(entity),
            "id": entity.id,
            "latest_version": labels[LATEST],
            "labels": [label for label, version in labels.items() if version == self.version],
            "is_archived": self.records.is_archived(self.name, self.version),
            "creation_context": dict(vars(entity.creation_context)),
        }
        return described if is_whole else hide_in_job(described)


def _find_in_base_home(path: Any) -> Any:
    """Return where a path in a datastore is that was registered without a workspace; another path as it is."""
    with workspace(""), contextlib.suppress(DrumlineError):
        reference = parse(path) if isinstance(path, str) and is_reference(path) else None
        if isinstance(reference, InDatastore):
            found = datastore_verbs.find(reference.datastore, reference.path)
            return path if found.home else found.place
    return path


def homes() -> list[str]:
    """List the homes to look in: the workspace's, then the base home."""
    return [*dict.fromkeys((home(), base_home()))]


def all_names(kind: str) -> list[str]:
    """List the names of a kind, archived ones too, in alphabetical order."""
    return sorted({name for root in homes() for name in Records(root, kind).names()})


def versions(kind: str, name: str, archived: bool | None) -> list[StoredAsset]:
    records = _records_with(kind, name)
    return [
        StoredAsset(records, name, version)
        for version in records.versions(name)
        if archived is None or records.is_archived(name, version) == archived
    ]


def latest(kind: str, archived: bool | None) -> list[StoredAsset]:
    """List the newest version of each name; a name is archived if all of its versions are."""
    found = []
    for name in all_names(kind):
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
    close = difflib.get_close_matches(name, all_names(kind), n=1)
    return f"did you mean {close[0]!r}?" if close else f"drumline {kind} list shows those there are"


# The record of each kind: its keys in YAML, made so that the version stays what it was. A local path is kept in full.
# The content of a conda file, and the code of a component, are taken in; data, models and build contexts stay.


_CLASSES = {"data": Data, "model": Model, "environment": Environment, "component": Component}
_NOT_COMPARED = (
    "created_at",
    "created_by",
    "description",
    "tags",
    "properties",
    "display_name",
    "stage",
    "datastore",
    "job_name",
)
"""What may change of a version that is there; everything else makes another version."""

EDITABLE: dict[str, tuple[str, ...]] = {
    "data": ("description", "tags", "properties"),
    "model": ("description", "tags", "properties", "stage"),
    "environment": ("description", "tags", "properties"),
    "component": ("description", "tags", "display_name"),
}


def kind_of(entity: object) -> str:
    """Return the kind of an asset with versions; empty for anything else."""
    return next((kind for kind, known in _CLASSES.items() if isinstance(entity, known)), "")


def record_of(entity: Any, home: str, *, check: bool = True) -> tuple[dict[str, Any], list[str]]:
    """
    Return the values to be kept, without name and version, and the warnings; takes a component's code into ``home``.

    check: look into what a path leads to, as for the file that makes a folder an MLTable.
    Raises SpecError, PlanError.
    """
    kind = kind_of(entity)
    if kind in ("data", "model"):
        values, warnings = _of_path(entity, check=check)
    elif kind == "environment":
        values, warnings = _of_environment(entity)
    else:
        values, warnings = _of_component(entity, home)
    return {key: value for key, value in values.items() if key not in ("name", "version")}, warnings


def entity_of(kind: str, name: str, version: str, values: dict[str, Any]) -> Any:
    """Make the entity of a record. Raises SpecError for a damaged one."""
    fields = {key: value for key, value in values.items() if key not in ("created_at", "created_by")}
    try:
        made_by: Any = _CLASSES[kind]
        if kind == "component":
            made_by = class_of(fields)
            fields.pop("type", None)
        entity = made_by(**{**fields, "name": name, "version": version})
    except (SpecError, TypeError, AttributeError, ValueError) as error:
        why = str(error).partition("\n")[0]
        raise SpecError(f"the record of {kind} {name!r}, version {version!r}, is damaged: {why}") from error
    entity.id = f"azureml:{name}:{version}"
    entity.creation_context = CreationContext(values.get("created_at"), str(values.get("created_by") or ""))
    return entity


def to_yaml_values(entity: Any) -> dict[str, Any]:
    """Return the values of an asset with the keys of YAML; JSON can hold them."""
    is_environment = kind_of(entity) == "environment"
    return {
        **to_dict(entity),
        **({"properties": entity.properties} if is_environment and entity.properties else {}),
    }


# data and models


def _of_path(asset: Asset, *, check: bool) -> tuple[dict[str, Any], list[str]]:
    asset = check_asset(asset)
    if not asset.path:
        raise SpecError("a path is missing", "the file or folder that it is, or a URI")
    if not is_remote(asset.path):
        _check_local(resolve(asset, asset.path), str(asset.type), check=check)
    values = to_dict(asset)
    values.pop("datastore", None)
    return values, asset._warnings


def _check_local(path: str, kind: str, *, check: bool) -> None:
    """Raise PlanError unless the path is what the type says."""
    if not os.path.exists(path):
        raise PlanError(f"path: no such file or folder: {path!r}", _near(path), path="path")
    if kind == "uri_file" and not os.path.isfile(path):
        raise PlanError(f"path: there is no file {path!r}, but a folder", "type: uri_folder", path="path")
    if kind in ("uri_folder", "mltable") and not os.path.isdir(path):
        raise PlanError(f"path: there is no folder {path!r}, but a file", "type: uri_file", path="path")
    if kind == "mltable" and check and not os.path.isfile(os.path.join(path, "MLTable")):
        hint = "type: uri_folder, or --skip-validation"
        raise PlanError(f"path: there is no file MLTable in {path!r}", hint, path="path")


def _near(path: str) -> str:
    """Return a hint to a similar name in the same folder."""
    folder, name = os.path.split(path)
    try:
        return did_you_mean(name, os.listdir(folder)) if name else ""
    except OSError:
        return f"there is no folder {folder!r} either"


# environments


def _of_environment(environment: Environment) -> tuple[dict[str, Any], list[str]]:
    values = to_dict(environment)
    root = wrap(values)
    assert isinstance(root, Mapping)
    environment_from_tree(root, Report(environment.base_path))
    if environment.properties:
        if not isinstance(environment.properties, dict):
            raise SpecError(f"properties must be a mapping, got {type(environment.properties).__name__!r}")
        values["properties"] = plain(environment.properties)
    values.pop("datastore", None)
    warnings = []
    if values.get("python"):
        python = values["python"] = environment_builds.behind(str(values["python"]))
        if not environment_builds.is_program(python):
            what = f"python: there is no program {python!r} on this machine"
            warnings.append(f"{what}; the nodes of its jobs must have it")
    _inline_conda_file(values)
    if environment.datastore:
        warnings.append("datastore: not used; what is registered stays where it is")
    if getattr(environment, "auto_delete_setting", None):
        warnings.append("auto_delete_setting: not used; nothing is deleted automatically")
    return values, warnings


def _inline_conda_file(environment: dict[str, Any]) -> None:
    """
    Put the content of the conda file, and of the files that it names, in place of its path, which is absolute.

    Raises SpecError.
    """
    conda = environment.get("conda_file")
    if isinstance(conda, str):
        environment["conda_file"] = inline_requirements(read_yaml(conda), os.path.dirname(conda))


# components


def _of_component(component: Component, home: str) -> tuple[dict[str, Any], list[str]]:
    problems = problems_of(component)
    if problems:
        raise SpecError(problems)
    values = to_dict(component)
    warnings: list[str] = []
    _freeze(values, home, warnings)
    return values, warnings


def problems_of(component: Component) -> list[Problem]:
    """Check a component that was built or changed in Python as its file would be."""
    values = to_dict(component)
    report = Report(component.base_path)
    component_table(component.type, named=True).check(wrap(values), "", report)
    return report.problems


def _freeze(values: dict[str, Any], home: str, warnings: list[str]) -> None:
    """Take the code and conda files of a component, and of the nodes of a pipeline, as they are now."""
    code, includes = values.get("code"), values.pop("additional_includes", None)
    if includes:
        values["code"] = snapshot_path(home, code_assets.take(code or "", includes).digest)
    elif isinstance(code, str) and not is_remote(code):
        taken = take_snapshot(code, home)
        warnings += [f"code: left out: {skipped}" for skipped in taken.skipped]
        values["code"] = snapshot_path(home, taken.digest)
    if isinstance(values.get("environment"), dict):
        _inline_conda_file(values["environment"])
    for key in ("component", "trial", "task"):
        if isinstance(values.get(key), dict):
            _freeze(values[key], home, warnings)
    for node in (values.get("jobs") or {}).values():
        if isinstance(node, dict):
            _freeze(node, home, warnings)
