"""
The record of each kind of asset: its keys in YAML, made so that the version stays what it was.

A local path is kept in full. The content of a conda file, and the code of a component, are taken in; data, models and
build contexts stay where they are.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import PlanError, Problem, SpecError
from drumline.spec.entity import plain, to_dict
from drumline.spec.entity_types import component_table
from drumline.spec.paths import is_remote, resolve

if TYPE_CHECKING:
    from collections.abc import Callable

    from drumline.spec.jobs.component import Component
    from drumline.spec.parts.environment import Environment
    from drumline.spec.registered.assets import Asset

NOT_COMPARED = (
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
    from drumline.spec.jobs.component import Component
    from drumline.spec.parts.environment import Environment
    from drumline.spec.registered.assets import Data, Model

    kinds = {"data": Data, "model": Model, "environment": Environment, "component": Component}
    return next((kind for kind, known in kinds.items() if isinstance(entity, known)), "")


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
    from drumline.spec.parts.environment import Environment
    from drumline.spec.registered.assets import CreationContext, Data, Model

    given = {key: value for key, value in values.items() if key not in ("created_at", "created_by")}
    classes: dict[str, Callable[..., Any]] = {
        "data": Data,
        "model": Model,
        "environment": Environment,
        "component": _component,
    }
    try:
        entity = classes[kind](**{**given, "name": name, "version": version})
    except (SpecError, TypeError, AttributeError, ValueError) as error:
        why = str(error).partition("\n")[0]
        raise SpecError(f"the record of {kind} {name!r}, version {version!r}, is damaged: {why}") from error
    entity.id = f"azureml:{name}:{version}"
    entity.creation_context = CreationContext(values.get("created_at"), str(values.get("created_by") or ""))
    return entity


def _component(**values: Any) -> Any:
    from drumline.spec.jobs.component import class_of

    return class_of(values)(**{key: value for key, value in values.items() if key != "type"})


def to_yaml_values(entity: Any) -> dict[str, Any]:
    """Return the values of an asset with the keys of YAML; JSON can hold them."""
    is_environment = kind_of(entity) == "environment"
    return {
        **to_dict(entity),
        **({"properties": entity.properties} if is_environment and entity.properties else {}),
    }


# data and models


def _of_path(asset: Asset, *, check: bool) -> tuple[dict[str, Any], list[str]]:
    from drumline.spec.registered.assets import check_asset

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
    from drumline.spec.hints import did_you_mean

    folder, name = os.path.split(path)
    try:
        return did_you_mean(name, os.listdir(folder)) if name else ""
    except OSError:
        return f"there is no folder {folder!r} either"


# environments


def _of_environment(environment: Environment) -> tuple[dict[str, Any], list[str]]:
    from drumline.spec.kinds.values import Report
    from drumline.spec.parts import environment as spec
    from drumline.spec.reading.source import Mapping, wrap

    values = to_dict(environment)
    root = wrap(values)
    assert isinstance(root, Mapping)
    spec.from_tree(root, Report(environment.base_path))
    if environment.properties:
        values["properties"] = _properties(environment.properties)
    values.pop("datastore", None)
    if values.get("python"):
        from drumline.control.environments import environment_builds

        values["python"] = environment_builds.behind(str(values["python"]))
    take_in(values)
    return values, [*_warn_missing_python(values), *_warn_unused(environment)]


def _properties(given: Any) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise SpecError(f"properties must be a mapping, got {type(given).__name__!r}")
    kept: dict[str, Any] = plain(given)
    return kept


def _warn_missing_python(values: dict[str, Any]) -> list[str]:
    python = values.get("python")
    if python and not is_program(python):
        return [f"python: there is no program {python!r} on this machine; the nodes of its jobs must have it"]
    return []


def is_program(path: str) -> bool:
    """Return whether this machine can run the file."""
    return os.path.isfile(path) and os.access(path, os.X_OK)


def _warn_unused(environment: Environment) -> list[str]:
    said = {
        "datastore": "what is registered stays where it is",
        "auto_delete_setting": "nothing is deleted automatically",
    }
    return [f"{field}: not used; {why}" for field, why in said.items() if getattr(environment, field, None)]


def take_in(environment: dict[str, Any]) -> None:
    """
    Put the content of the conda file, and of the files that it names, in place of its path, which is absolute.

    Raises SpecError.
    """
    from drumline.control.environments.recipes import inline_requirements
    from drumline.spec.reading.files import read_yaml

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
    from drumline.spec.kinds.values import Report
    from drumline.spec.reading.source import wrap

    values = to_dict(component)
    report = Report(component.base_path)
    component_table(component.type, named=True).check(wrap(values), "", report)
    return report.problems


def _freeze(values: dict[str, Any], home: str, warnings: list[str]) -> None:
    """Take the code and conda files of a component, and of the nodes of a pipeline, as they are now."""
    code, includes = values.get("code"), values.pop("additional_includes", None)
    if includes or (isinstance(code, str) and not is_remote(code)):
        values["code"] = _take_code(code, includes, home, warnings)
    if isinstance(values.get("environment"), dict):
        take_in(values["environment"])
    for key in ("component", "trial", "task"):
        if isinstance(values.get(key), dict):
            _freeze(values[key], home, warnings)
    for node in (values.get("jobs") or {}).values():
        if isinstance(node, dict):
            _freeze(node, home, warnings)


def _take_code(code: str | None, includes: list[str] | None, home: str, warnings: list[str]) -> str:
    from drumline.control.assets import code as code_assets
    from drumline.staging.snapshot.partial_folder import snapshot_path
    from drumline.staging.snapshot.take import take_snapshot

    if includes:
        return snapshot_path(home, code_assets.take(code or "", includes).digest)
    assert code is not None
    taken = take_snapshot(code, home)
    warnings += [f"code: left out: {skipped}" for skipped in taken.skipped]
    return snapshot_path(home, taken.digest)
