"""
Datastores of v1, folders of this machine by name; and data of theirs in the arguments of a script.

Source: https://learn.microsoft.com/python/api/azureml-core/azureml.core.datastore.datastore
"""

from __future__ import annotations

import os
import shutil
from copy import copy
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import DrumlineError, UsageError
from drumline.contract.folder import private_folder
from drumline.control.assets import datastore_verbs
from drumline.spec.parts.io import Input
from drumline.spec.registered.datastores import (
    AccountKeyConfiguration,
    AzureBlobDatastore,
    SasTokenConfiguration,
)

if TYPE_CHECKING:
    from drumline.sdk.v1.scope import WorkspaceScope


class Datastore:
    """A folder of this machine, by name. ``path`` inside it is an address that jobs take."""

    def __init__(self, workspace: WorkspaceScope, name: str = "workspaceblobstore", **kwargs: Any) -> None:
        self.workspace: Any = workspace
        self.name = name

    @property
    def datastore_type(self) -> str:
        """Return ``local`` for a folder, else Azure's word."""
        return str(self._get_field("type"))

    account_name = property(lambda self: self._get_field("account_name"))
    container_name = property(lambda self: self._get_field("container_name"))

    def _get_field(self, key: str) -> Any:
        """Return a field of it; None for one that its type does not have. Raises NotFoundError."""
        with self.workspace._here():
            return getattr(datastore_verbs.get(self.name), key, None)

    @staticmethod
    def get(workspace: WorkspaceScope, datastore_name: str) -> Datastore:
        """Return the datastore of that name. Raises NotFoundError."""
        with workspace._here():
            datastore_verbs.get(datastore_name)
        return Datastore(workspace, datastore_name)

    @staticmethod
    def get_default(workspace: WorkspaceScope) -> Datastore:
        return Datastore(workspace, datastore_verbs.DEFAULT)

    @staticmethod
    def register_azure_blob_container(
        workspace: WorkspaceScope,
        datastore_name: str,
        container_name: str,
        account_name: str,
        sas_token: str | None = None,
        account_key: str | None = None,
        **kwargs: Any,
    ) -> Datastore:
        """Keep a container of Azure's under a name; jobs fetch from it. Raises SpecError, UsageError."""
        credentials: Any = SasTokenConfiguration(sas_token=sas_token) if sas_token else None
        if account_key:
            credentials = AccountKeyConfiguration(account_key=account_key)
        made = AzureBlobDatastore(
            name=datastore_name,
            account_name=account_name,
            container_name=container_name,
            credentials=credentials,
            **{name: kwargs[name] for name in ("endpoint", "protocol") if kwargs.get(name)},
        )
        with workspace._here():
            datastore_verbs.create(made)
        return Datastore(workspace, datastore_name)

    @staticmethod
    def register_azure_file_share(*args: Any, **kwargs: Any) -> Datastore:
        """Raise UsageError: other kinds are registered from a file."""
        raise UsageError(
            "datastores of v1 are containers of blobs or folders",
            "drumline datastore create --help has the others",
        )

    register_azure_data_lake = register_azure_data_lake_gen2 = register_azure_file_share
    register_azure_sql_database = register_azure_postgre_sql = register_azure_my_sql = (
        register_azure_file_share
    )

    def path(self, path: str | None = None, data_reference_name: str | None = None) -> Consumed:
        inside = str(path or "").strip("/")
        name = data_reference_name or "data_" + "".join(one if one.isalnum() else "_" for one in inside)
        try:
            with self.workspace._here():
                is_file = os.path.isfile(datastore_verbs.path_of(self.name, inside))
        except DrumlineError:  # It is no folder of this machine.
            is_file = False
        kind = "uri_file" if is_file else "uri_folder"
        return Consumed(name, f"azureml://datastores/{self.name}/paths/{inside}", type=kind)

    def as_mount(self) -> Consumed:
        return self.path()

    as_download = as_mount

    def upload(
        self,
        src_dir: Any,
        target_path: str | None = None,
        overwrite: bool = False,
        show_progress: bool = True,
    ) -> Consumed:
        """
        Copy a folder's plain files below ``target_path``; those that are there stay unless ``overwrite``.

        Raises NotFoundError, UsageError, PlanError, OSError.
        """
        root = os.fspath(src_dir)
        files = [os.path.join(parent, name) for parent, _, names in os.walk(root) for name in names]
        self.upload_files(sorted(files), root, target_path, overwrite=overwrite)
        return self.path(target_path)

    def upload_files(
        self,
        files: list[Any],
        relative_root: Any = None,
        target_path: str | None = None,
        overwrite: bool = False,
        show_progress: bool = True,
    ) -> Consumed:
        """Copy files, as ``upload``; each keeps its path relative to ``relative_root``, else its name."""
        for file in map(os.fspath, files):
            inside = os.path.relpath(file, relative_root) if relative_root else os.path.basename(file)
            with self.workspace._here():
                target = datastore_verbs.path_of(self.name, f"{target_path or ''}/{inside}")
            if os.path.isfile(file) and (overwrite or not os.path.exists(target)):
                private_folder(os.path.dirname(target))
                shutil.copyfile(file, target)
        return self.path(target_path)

    def download(
        self, target_path: Any, prefix: str | None = None, overwrite: bool = False, **kwargs: Any
    ) -> int:
        """Copy the files below ``prefix``; return how many."""
        with self.workspace._here():
            root = datastore_verbs.path_of(self.name, "")
            start = datastore_verbs.path_of(self.name, prefix or "")
        count = 0
        for parent, _, names in os.walk(start):
            for name in names:
                source = os.path.join(parent, name)
                target = os.path.join(os.fspath(target_path), os.path.relpath(source, root))
                if os.path.isfile(source) and (overwrite or not os.path.exists(target)):
                    os.makedirs(os.path.dirname(target), exist_ok=True)
                    shutil.copyfile(source, target)
                    count += 1
        return count

    def __repr__(self) -> str:
        return f"Datastore(name={self.name!r})"


class Consumed:
    """Data in the arguments of a script: its path on the nodes. ``as_mount`` reads it in place."""

    def __init__(
        self,
        name: str,
        path: str,
        *,
        mode: str = "ro_mount",
        type: str = "uri_folder",
        path_on_compute: str | None = None,
    ) -> None:
        self.name = name
        self.path_on_compute = path_on_compute
        self._path = path
        self._mode = mode
        self._type = type

    def as_mount(self, path_on_compute: str | None = None) -> Consumed:
        return self._change(mode="ro_mount", path_on_compute=path_on_compute)

    def as_download(self, path_on_compute: str | None = None, **kwargs: object) -> Consumed:
        return self._change(mode="download", path_on_compute=path_on_compute)

    as_direct = as_hdfs = as_mount

    def as_named_input(self, name: str) -> Consumed:
        return self._change(name=name)

    def _change(self, *, name: str = "", mode: str = "", path_on_compute: str | None = None) -> Consumed:
        changed = copy(self)
        changed.name, changed._mode = name or self.name, mode or self._mode
        changed.path_on_compute = path_on_compute or self.path_on_compute
        return changed

    def as_upload(self, *args: object, **kwargs: object) -> Consumed:
        """Raise UsageError: ``as_upload`` is for outputs."""
        raise UsageError(
            "as_upload is for outputs, and this is an input", "OutputFileDatasetConfig(name=...)"
        )

    def to_config(self) -> Consumed:
        """Return it for ``run_config.data_references``."""
        return self

    def __str__(self) -> str:
        """Return its path in a rank, for arguments that were made text; ``run_config.data_references`` has the rest."""
        return f"$AZURE_ML_INPUT_{self.name}"

    def _as_input(self) -> Input:
        return Input(type=self._type, path=self._path, mode=self._mode, path_on_compute=self.path_on_compute)


def parse_mode(word: str) -> str:
    """Return today's word for a mode of v1. Raises UsageError for an unknown one."""
    if word not in ("mount", "download", "direct", "hdfs"):
        raise UsageError(f"mode must be 'mount' or 'download'; got {word!r}")
    return "download" if word == "download" else "ro_mount"
