"""
What is kept of each kind of asset: its keys in YAML, made so that the version stays what it was.

A local path is kept in full. The content of a conda file, and the code of a component, are taken in; data, models and
build contexts stay where they are.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import PlanError, SpecError
from drumline.spec.paths import is_remote, resolve

if TYPE_CHECKING:
    from collections.abc import Callable

    from drumline.contract.errors import Problem
    from drumline.spec.assets import Asset
    from drumline.spec.component import Component
    from drumline.spec.environment import Environment

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
    """Empty for what is no asset with versions."""
    from drumline.spec.assets import Data, Model
    from drumline.spec.component import Component
    from drumline.spec.environment import Environment

    kinds = {"data": Data, "model": Model, "environment": Environment, "component": Component}
    return next((kind for kind, known in kinds.items() if isinstance(entity, known)), "")


def record_of(entity: Any, home: str, *, check: bool = True) -> tuple[dict[str, Any], list[str]]:
    """
    The values to be kept, without name and version, and the warnings. Takes the code of a component into ``home``.

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
    """Raises SpecError for a record that somebody has changed so that it is none."""
    from drumline.spec.assets import CreationContext, Data, Model
    from drumline.spec.environment import Environment

    given = {key: value for key, value in values.items() if key not in ("created_at", "created_by")}
    classes: dict[str, Callable[..., Any]] = {
        "data": Data,
        "model": Model,
        "environment": Environment,
        "component": _component,
    }
    try:
        entity = classes[kind](**{**given, "name": name, "version": version})
    except (TypeError, AttributeError, ValueError) as error:
        raise SpecError(f"the record of {kind} {name!r}, version {version!r}, is damaged: {error}") from error
    entity.id = f"azureml:{name}:{version}"
    entity.creation_context = CreationContext(values.get("created_at"), str(values.get("created_by") or ""))
    return entity


def _component(**values: Any) -> Any:
    from drumline.spec.steps import class_of

    return class_of(values)(**{key: value for key, value in values.items() if key != "type"})


def shown(entity: Any) -> dict[str, Any]:
    """With the keys of YAML; JSON can hold it."""
    from drumline.spec import assets, component, environment

    kind = kind_of(entity)
    if kind in ("data", "model"):
        return assets.to_dict(entity)
    if kind == "component":
        return component.to_dict(entity)
    return {**environment.to_dict(entity), **({"properties": entity.properties} if entity.properties else {})}


# data and models


def _of_path(asset: Asset, *, check: bool) -> tuple[dict[str, Any], list[str]]:
    from drumline.spec.assets import checked, to_dict

    asset = checked(asset)
    if not asset.path:
        raise SpecError("a path is missing", "the file or folder that it is, or a URI")
    if not is_remote(asset.path):
        _check_local(resolve(asset, asset.path), str(asset.type), check=check)
    values = to_dict(asset)
    values.pop("datastore", None)
    return values, asset._warnings


def _check_local(path: str, kind: str, *, check: bool) -> None:
    """Raises PlanError where there is not what the type says."""
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
    """The name that was probably meant, in the same folder."""
    from drumline.spec.schema.hints import did_you_mean

    folder, name = os.path.split(path)
    try:
        return did_you_mean(name, os.listdir(folder)) if name else ""
    except OSError:
        return f"there is no folder {folder!r} either"


# environments


def _of_environment(environment: Environment) -> tuple[dict[str, Any], list[str]]:
    from drumline.spec import environment as spec
    from drumline.spec.nodes import Mapping, wrap
    from drumline.spec.schema.report import Report

    values = spec.to_dict(environment)
    root = wrap(values)
    assert isinstance(root, Mapping)
    spec.from_tree(root, Report(environment.base_path))
    if environment.properties:
        values["properties"] = _properties(environment.properties)
    values.pop("datastore", None)
    if values.get("python"):
        from drumline.control import interpreters

        values["python"] = interpreters.behind(str(values["python"]))
    take_in(values)
    return values, [*_doubts(values), *_unused(environment)]


def _properties(given: Any) -> dict[str, Any]:
    from drumline.spec.dump import plain

    if not isinstance(given, dict):
        raise SpecError(f"properties must be a mapping, got {type(given).__name__!r}")
    kept: dict[str, Any] = plain(given)
    return kept


def _doubts(values: dict[str, Any]) -> list[str]:
    python = values.get("python")
    if python and not is_program(python):
        return [f"python: there is no program {python!r} on this machine; the nodes of its jobs must have it"]
    return []


def is_program(path: str) -> bool:
    """Whether this machine can run it."""
    return os.path.isfile(path) and os.access(path, os.X_OK)


def _unused(environment: Environment) -> list[str]:
    said = {
        "datastore": "what is registered stays where it is",
        "auto_delete_setting": "nothing is deleted by itself",
    }
    return [f"{field}: not used; {why}" for field, why in said.items() if getattr(environment, field, None)]


def take_in(environment: dict[str, Any]) -> None:
    """
    The content of the conda file in place of its path, which is in full, with that of the files which that names.

    Raises SpecError.
    """
    from drumline.control.recipes import taken_in
    from drumline.spec.files import read

    conda = environment.get("conda_file")
    if isinstance(conda, str):
        environment["conda_file"] = taken_in(read(conda), os.path.dirname(conda))


# components


def _of_component(component: Component, home: str) -> tuple[dict[str, Any], list[str]]:
    from drumline.spec.component import to_dict

    problems = problems_of(component)
    if problems:
        raise SpecError(problems)
    values = to_dict(component)
    warnings: list[str] = []
    _freeze(values, home, warnings)
    return values, warnings


def problems_of(component: Component) -> list[Problem]:
    """Those of a component that was built or changed in Python, as of its file."""
    from drumline.spec.component import to_dict
    from drumline.spec.nodes import wrap
    from drumline.spec.schema import component as commands
    from drumline.spec.schema import parallel, pipeline
    from drumline.spec.schema.report import Report

    values = to_dict(component)
    report = Report(component.base_path)
    named = {"pipeline": pipeline.PIPELINE_COMPONENT, "parallel": parallel.NAMED_COMPONENT}
    named.get(component.type, commands.NAMED_COMPONENT).check(wrap(values), "", report)
    return report.problems


def _freeze(values: dict[str, Any], home: str, warnings: list[str]) -> None:
    """Code and conda files of a component, and of the nodes of a pipeline, as they are now."""
    code, includes = values.get("code"), values.pop("additional_includes", None)
    if includes or (isinstance(code, str) and not is_remote(code)):
        values["code"] = _taken(code, includes, home, warnings)
    if isinstance(values.get("environment"), dict):
        take_in(values["environment"])
    for key in ("component", "trial", "task"):
        if isinstance(values.get(key), dict):
            _freeze(values[key], home, warnings)
    for node in (values.get("jobs") or {}).values():
        if isinstance(node, dict):
            _freeze(node, home, warnings)


def _taken(code: str | None, includes: list[str] | None, home: str, warnings: list[str]) -> str:
    from drumline.control.driver.code import merged_with
    from drumline.staging import snapshot

    if includes:
        return snapshot.path_of(home, merged_with(code or "", includes))
    assert code is not None
    taken = snapshot.take(code, home)
    warnings += [f"code: left out: {skipped}" for skipped in taken.skipped]
    return snapshot.path_of(home, taken.digest)
