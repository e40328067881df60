"""
Registered models of v1.

Source: https://learn.microsoft.com/python/api/azureml-core/azureml.core.model.model
"""

from __future__ import annotations

import os
from typing import Any

from drumline.contract.errors import NotFoundError, UsageError
from drumline.control.assets import asset_verbs
from drumline.control.assets.asset_files import path_of
from drumline.control.jobs.download import copy, explain_write_errors
from drumline.sdk.v1.scope import WorkspaceScope
from drumline.spec.registered import assets as spec


class _Frameworks:
    """Words that scripts pass as ``model_framework``; kept as a tag."""

    CUSTOM, ONNX, SCIKITLEARN, TENSORFLOW, KERAS, PYTORCH = (
        "Custom", "Onnx", "ScikitLearn", "TensorFlow", "Keras", "PyTorch",
    )  # fmt: skip


_FRAMEWORK_TAGS = ("model_framework", "model_framework_version")


class Model:
    """
    One version of a model, the latest unless told otherwise; ``id`` is ``name:version``.

    Raises NotFoundError when there is none of that name, version, tags and run.
    """

    Framework = _Frameworks

    def __init__(
        self,
        workspace: WorkspaceScope,
        name: str | None = None,
        id: str | None = None,
        tags: Any = None,
        properties: Any = None,
        version: Any = None,
        run_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        if id:
            name, _, version = str(id).rpartition(":")
        if not name:
            raise UsageError("a model's name is missing", "Model(ws, name='digits')")
        wanted = {"tags": tags, "properties": properties, "run_id": run_id}
        matching = [asset for asset in _find_assets(workspace, name) if _matches(asset, version, wanted)]
        if not matching:
            which = f", version {version}" if version is not None else ""
            raise NotFoundError(
                f"there is no matching model {name!r}{which}", "Model.list(ws) lists all models"
            )
        self.workspace: Any = workspace
        self._take(matching[0])

    @classmethod
    def _from_asset(cls, workspace: WorkspaceScope, asset: Any) -> Model:
        """Build the model of a registered asset."""
        made = cls.__new__(cls)
        made.workspace = workspace
        made._take(asset)
        return made

    def _take(self, asset: Any) -> None:
        self._asset = asset
        self.name = str(asset.name)
        self.version: Any = int(asset.version) if str(asset.version).isdigit() else asset.version
        self.id = f"{asset.name}:{asset.version}"
        self.description = asset.description
        self.tags = dict(asset.tags or {})
        self.properties = dict(asset.properties or {})
        self.url = str(asset.path)
        self.run_id = _run_id(asset)
        self.model_framework = self.tags.get(_FRAMEWORK_TAGS[0])
        self.created_time = getattr(asset.creation_context, "created_at", None)

    @staticmethod
    def register(  # noqa: PLR0913 - azureml's signature
        workspace: WorkspaceScope,
        model_path: str | os.PathLike[str],
        model_name: str,
        tags: dict[str, Any] | None = None,
        properties: dict[str, Any] | None = None,
        description: str | None = None,
        datasets: Any = None,
        model_framework: str | None = None,
        model_framework_version: str | None = None,
        **kwargs: Any,
    ) -> Model:
        """
        Register a file or folder, in place, as the next version. Settings for web services are ignored.

        Raises SpecError, PlanError for a path that leads nowhere.
        """
        framework = dict(zip(_FRAMEWORK_TAGS, (model_framework, model_framework_version), strict=True))
        made = spec.Model(
            name=model_name,
            path=os.fspath(model_path),
            tags={**(tags or {}), **{key: value for key, value in framework.items() if value}},
            properties=properties,
            description=description,
        )
        with workspace._here():
            return Model._from_asset(workspace, asset_verbs.create(made))

    @staticmethod
    def list(
        workspace: WorkspaceScope,
        name: str | None = None,
        tags: Any = None,
        properties: Any = None,
        run_id: str | None = None,
        latest: bool = False,
        **kwargs: Any,
    ) -> list[Model]:
        """List all versions of one name or of all, newest first; ``latest``: the latest of each alone."""
        wanted = {"tags": tags, "properties": properties, "run_id": run_id}
        return [
            Model._from_asset(workspace, asset)
            for asset in _find_assets(workspace, name, latest=latest)
            if _matches(asset, None, wanted)
        ]

    @staticmethod
    def get_model_path(model_name: str, version: Any = None, _workspace: Any = None) -> str:
        """Return its path on this machine; a rank looks in the job's workspace. Raises NotFoundError."""
        workspace = _workspace or WorkspaceScope.of_rank()
        with workspace._here():
            return path_of(Model(workspace, model_name, version=version)._asset)

    def download(self, target_dir: str = ".", exist_ok: bool = False, exists_ok: bool | None = None) -> str:
        """Copy it to ``target_dir`` and return the path. Raises UsageError if that exists, unless ``exist_ok``."""
        with self.workspace._here():
            source = path_of(self._asset)
        if not os.path.exists(source):
            raise NotFoundError(f"the files of model {self.id} no longer exist: {source}")
        target = os.path.join(os.fspath(target_dir), os.path.basename(source.rstrip("/")))
        if os.path.exists(target) and not (exist_ok or exists_ok):
            raise UsageError(f"{target} exists", "pass exist_ok=True to replace it")
        with explain_write_errors():
            copy(source, os.path.abspath(target))
        return target

    def update(
        self, tags: dict[str, Any] | None = None, description: str | None = None, **kwargs: Any
    ) -> None:
        """Replace the fields that are given."""
        given = {"tags": tags, "description": description}
        self._edit({key: value for key, value in given.items() if value is not None})

    def add_tags(self, tags: dict[str, Any]) -> None:
        self._edit({"tags": {**self.tags, **tags}})

    def remove_tags(self, tags: Any) -> None:
        self._edit({"tags": {key: value for key, value in self.tags.items() if key not in tags}})

    def add_properties(self, properties: dict[str, Any]) -> None:
        self._edit({"properties": {**self.properties, **properties}})

    def delete(self) -> None:
        """Hide it from lists; its file stays."""
        with self.workspace._here():
            asset_verbs.archive("model", self.name, str(self.version))

    @staticmethod
    def deploy(*args: Any, **kwargs: Any) -> None:
        """Raise UsageError: models are not deployed."""
        raise UsageError(
            "deploying models is not supported", "Model.get_model_path(name) returns a model's path"
        )

    def serialize(self) -> dict[str, Any]:
        """Return it with azureml's keys."""
        return {
            "name": self.name,
            "id": self.id,
            "version": self.version,
            "description": self.description,
            "tags": self.tags,
            "properties": self.properties,
            "url": self.url,
            "runId": self.run_id,
            "createdTime": self.created_time,
        }

    def _edit(self, changes: dict[str, Any]) -> None:
        with self.workspace._here():
            asset_verbs.update("model", self.name, str(self.version), changes=changes)
            self._take(asset_verbs.get("model", self.name, str(self.version)))

    def __repr__(self) -> str:
        return f"Model(workspace={self.workspace!r}, name={self.name}, id={self.id}, version={self.version})"


def _find_assets(workspace: WorkspaceScope, name: str | None, *, latest: bool = False) -> list[Any]:
    with workspace._here():
        if name is None and not latest:
            names = [one.name for one in asset_verbs.all("model")]
            return [one for known in names for one in asset_verbs.all("model", known)]
        try:
            found: list[Any] = asset_verbs.all("model", name)
        except NotFoundError:
            return []
        return found[:1] if latest and name else found


def _matches(asset: Any, version: Any, wanted: dict[str, Any]) -> bool:
    if version is not None and str(asset.version) != str(version):
        return False
    if wanted["run_id"] and _run_id(asset) != wanted["run_id"]:
        return False
    return all(_has_tags(getattr(asset, key) or {}, wanted[key]) for key in ("tags", "properties"))


def _has_tags(there: dict[str, Any], wanted: Any) -> bool:
    """Return whether it has ``wanted``: a name, or a list of names and of pairs of name and value."""
    pairs = (
        [wanted] if isinstance(wanted, str) else wanted.items() if isinstance(wanted, dict) else wanted or ()
    )
    return all(
        one in there if isinstance(one, str) else str(there.get(one[0])) == str(one[1]) for one in pairs
    )


def _run_id(asset: Any) -> str | None:
    """Return the job whose folder it lies in."""
    if asset.job_name:
        return str(asset.job_name)
    parts = str(asset.path).split("/")
    if parts[:1] == ["runs:"] or str(asset.path).startswith("azureml://jobs/"):
        return parts[1] if parts[0] == "runs:" else parts[3]
    return parts[parts.index("jobs") + 1] if "jobs" in parts[:-1] else None
