"""The content of an asset on this machine, and copies of it."""

from __future__ import annotations

import os
import shutil
from typing import Any

from drumline.contract.errors import NotFoundError, UsageError
from drumline.control.assets import asset_verbs, references
from drumline.control.jobs.download import copy, explain_write_errors
from drumline.control.jobs.job_outputs import OutputPlace
from drumline.spec.azureml_uris import AssetReference, is_reference, parse
from drumline.spec.paths import is_remote, resolve
from drumline.staging.snapshot.partial_folder import copy_snapshot


def path_of(asset: Any) -> str:
    """
    Return the local path of data or of a model; nothing may be there any more.

    Raises NotFoundError, UsageError and PlanError for what a reference leads to, UsageError for what is elsewhere.
    """
    for _ in range(references.DEPTH):
        path = str(asset.path)
        if not is_reference(path):
            break
        reference = parse(path)
        found = (
            references.find_asset(asset_verbs.kind_of(asset), reference, path)
            if isinstance(reference, AssetReference)
            else references.find_place(reference)
        )
        if isinstance(found, OutputPlace):
            return found.path
        asset = found
    else:
        raise UsageError(f"{asset.id} leads in a circle")
    if is_remote(path):
        raise UsageError(
            f"{asset.id or 'the data'} is at {path}, which is not fetched from here",
            "its own tools can fetch it",
        )
    return resolve(asset, path)


def download_model(name: str, version: str | None = None, label: str | None = None, target: str = ".") -> str:
    """
    Copy it to ``target``/NAME, over what is there; the path of the copy. Blocks. Raises as ``path_of``, and
    DrumlineError for what cannot be written.
    """
    model = asset_verbs.get("model", name, version, label)
    source = path_of(model)
    if not os.path.exists(source):
        raise NotFoundError(f"what is registered as {model.id} is gone: {source}")
    copied = os.path.join(os.path.abspath(target), name, os.path.basename(source))
    inside = os.path.realpath(source)
    if os.path.commonpath((inside, os.path.realpath(copied))) == inside:
        raise UsageError(f"{copied} is in the model itself, {source}", "give another --download-path")
    with explain_write_errors():
        copy(source, copied)
    return copied


def download_component(
    name: str, version: str | None = None, label: str | None = None, target: str = "."
) -> str:
    """
    Write a component to ``target``/NAME/component.yml, with its code beside it, and return the folder.

    The file loads back to the same component. Raises NotFoundError; UsageError when the folder is there already;
    DrumlineError for what cannot be written.
    """
    import yaml

    component = asset_verbs.get("component", name, version, label)
    values = asset_verbs.to_yaml_values(component)
    folder = os.path.join(os.path.abspath(target), name)
    if os.path.lexists(folder):
        raise UsageError(f"{folder} is there already", "give another --download-path, or remove it")
    with explain_write_errors():
        os.makedirs(folder)
        try:
            _lay_out(values, folder, "")
            with open(os.path.join(folder, "component.yml"), "x", encoding="utf-8") as file:
                yaml.safe_dump(values, file, sort_keys=False, allow_unicode=True, width=10_000)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
    return folder


def _lay_out(values: dict[str, Any], folder: str, inside: str) -> None:
    """Copy the code of a component, and of each node of a pipeline, beside the file that names it."""
    code = values.get("code")
    if isinstance(code, str) and not is_remote(code):
        if not os.path.isdir(code):
            raise NotFoundError(f"the code of the component is gone: {code}")
        values["code"] = os.path.join(".", inside, "code")
        os.makedirs(os.path.join(folder, inside), exist_ok=True)
        copy_snapshot(*_snapshot(code), os.path.join(folder, inside, "code"))
    for key in ("component", "trial", "task"):
        if isinstance(values.get(key), dict):
            _lay_out(values[key], folder, inside)
    for node, job in (values.get("jobs") or {}).items():
        if isinstance(job, dict):
            _lay_out(job, folder, os.path.join(inside, node))


def _snapshot(path: str) -> tuple[str, str]:
    """Return the home and the digest of the snapshot at that path."""
    parent, digest = os.path.split(path)
    return os.path.dirname(parent), digest
