"""
Datasets of v1, and how a script's arguments name data.

Source: https://learn.microsoft.com/python/api/azureml-core/azureml.core.dataset.dataset
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from zlib import crc32

from drumline.compat.pipeline_steps import Passed, PipelineParameter, refuse_table
from drumline.contract import folder
from drumline.contract.errors import NotFoundError, SpecError, UsageError
from drumline.control.assets import asset_verbs
from drumline.control.assets.asset_files import path_of
from drumline.sdk.v1.assets.datastore import Consumed, parse_mode
from drumline.spec.parts.io import Output
from drumline.spec.paths import is_remote
from drumline.spec.registered.assets import Data

if TYPE_CHECKING:
    from drumline.sdk.v1.assets.datastore import Datastore
    from drumline.sdk.v1.scope import WorkspaceScope


class FileDataset:
    """A file or folder. ``path``: local, or ``azureml:...``; ``name`` and ``version``: those of a registered one."""

    def __init__(
        self,
        path: str,
        *,
        type: str = "uri_folder",
        name: str | None = None,
        version: str | None = None,
    ) -> None:
        self.path = path
        self._workspace = folder.current_workspace()
        self.type = type
        self.name = name
        self.version = version

    @classmethod
    def _from_asset(cls, asset: Any) -> FileDataset:
        """Build the dataset of a registered data asset."""
        path = f"azureml:{asset.name}:{asset.version}"
        return cls(path, type=str(asset.type or "uri_folder"), name=asset.name, version=str(asset.version))

    @property
    def id(self) -> str:
        """Return its path, which a run configuration takes in its place."""
        return self.path

    def as_named_input(self, name: str) -> Consumed:
        return Consumed(name, self.path, type=self.type)

    def as_mount(self, path_on_compute: str | None = None) -> Consumed:
        return self.as_named_input(self._default_input_name()).as_mount(path_on_compute)

    def as_download(self, path_on_compute: str | None = None) -> Consumed:
        return self.as_named_input(self._default_input_name()).as_download(path_on_compute)

    as_hdfs = as_direct = as_mount

    def mount(self, mount_point: str | None = None, **kwargs: Any) -> Mounted:
        """Return its folder for ``with`` or ``start`` and ``stop``; nothing is mounted. Raises UsageError."""
        return Mounted(self._local(), mount_point)

    def download(self, target_path: str | None = None, overwrite: bool = False, **kwargs: Any) -> list[str]:
        """Copy its files below ``target_path``, by default a new folder; their paths. Raises UsageError, OSError."""
        place = os.path.abspath(target_path) if target_path else tempfile.mkdtemp()
        source = self._local()
        made = []
        for inside in self.to_path():
            target = os.path.join(place, inside.lstrip("/"))
            if os.path.exists(target) and not overwrite:
                raise UsageError(f"{target} exists", "pass overwrite=True to replace it")
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copyfile(source if os.path.isfile(source) else source + inside, target)
            made.append(target)
        return made

    def to_path(self) -> list[str]:
        """Return its files, each with a slash before it. Raises UsageError for a remote folder."""
        if self.type == "uri_file" and is_remote(self.path):
            return ["/" + os.path.basename(urlsplit(self.path).path)]
        root = self._local()
        if os.path.isfile(root):
            return ["/" + os.path.basename(root)]
        found = (os.path.join(parent, name) for parent, _, names in os.walk(root) for name in names)
        return sorted(path.removeprefix(root.rstrip("/")) for path in found)

    def _local(self) -> str:
        """Return its path on this machine. Raises NotFoundError, UsageError."""
        with folder.workspace(self._workspace):
            return path_of(Data(name="data", path=self.path, type=self.type))

    def register(
        self,
        workspace: WorkspaceScope,
        name: str,
        description: str | None = None,
        tags: dict[str, str] | None = None,
        create_new_version: bool = False,
    ) -> FileDataset:
        """
        Keep it under a name. One that is there already is given back, unless ``create_new_version``.

        Raises SpecError, PlanError.
        """
        with workspace._here():
            if not create_new_version:
                try:
                    return FileDataset._from_asset(asset_verbs.get("data", name))
                except NotFoundError:
                    pass
            made = Data(name=name, path=self.path, type=self.type, description=description, tags=tags)
            return FileDataset._from_asset(asset_verbs.create(made))

    def _default_input_name(self) -> str:
        """Return the name of an input that was given none; the same for the same data."""
        text = self.name or os.path.basename(self.path.rstrip("/")) or "data"
        return f"input_{re.sub(r'[^A-Za-z0-9_]', '_', text)}_{crc32(self.path.encode()):08x}"

    def __repr__(self) -> str:
        return f"FileDataset(path={self.path!r})"


class Mounted:
    """An existing folder. ``mount_point``: where to link it while it is started."""

    def __init__(self, source: str, mount_point: str | None = None) -> None:
        self._source = source
        self._link = os.path.abspath(mount_point) if mount_point else ""
        self.mount_point = self._link or source

    def start(self) -> None:
        """Link the mount point. Raises OSError if it exists and is not an empty folder."""
        if not self._link:
            return
        if os.path.isdir(self._link) and not os.path.islink(self._link):
            os.rmdir(self._link)
        os.makedirs(os.path.dirname(self._link), exist_ok=True)
        os.symlink(self._source, self._link)

    def stop(self) -> None:
        if self._link and os.path.islink(self._link):
            os.unlink(self._link)

    def __enter__(self) -> Mounted:
        self.start()
        return self

    def __exit__(self, *args: object) -> None:
        self.stop()


class DatasetConsumptionConfig(Consumed):
    """A dataset in the arguments of a script; ``mode``: ``mount``, ``download``, ``direct`` or ``hdfs``."""

    def __init__(
        self, name: str, dataset: Any, mode: str = "direct", path_on_compute: str | None = None
    ) -> None:
        self._parameter = dataset if isinstance(dataset, PipelineParameter) else None
        dataset = dataset if self._parameter is None else self._parameter.default_value
        if not isinstance(dataset, FileDataset):
            raise UsageError(
                f"expected a dataset, got {type(dataset).__name__}", "use Dataset.File.from_files(path)"
            )
        super().__init__(
            name, dataset.path, mode=parse_mode(mode), type=dataset.type, path_on_compute=path_on_compute
        )


class DataReference(Consumed):
    """A folder of a datastore; ``mode``: ``mount`` or ``download``."""

    def __init__(
        self,
        datastore: Datastore,
        data_reference_name: str | None = None,
        path_on_datastore: str | None = None,
        mode: str = "mount",
        path_on_compute: str | None = None,
        overwrite: bool = False,
    ) -> None:
        found = datastore.path(path_on_datastore, data_reference_name)
        super().__init__(
            found.name, found._path, mode=parse_mode(mode), type=found._type, path_on_compute=path_on_compute
        )


class _FileDatasets:
    @staticmethod
    def from_files(path: Any, validate: bool = True, **kwargs: Any) -> FileDataset:
        """
        Build a dataset of one ``path``: local, an address, or ``(datastore, path)``; also in a list.

        Raises SpecError for several, and for patterns other than everything below a folder.
        """
        if isinstance(path, list):
            if len(path) != 1:
                raise SpecError(
                    f"a dataset of {len(path)} paths is not supported", "put them below one folder"
                )
            path = path[0]
        home: str | None = None
        kind = ""
        if isinstance(path, tuple):
            store, inside = path
            home = store.workspace._client.jobs._workspace
            path = store.path(str(inside).removesuffix("/**"))
        if isinstance(path, Consumed):
            path, kind = path._path, path._type
        text = os.fspath(path).removesuffix("/**")
        if any(sign in (urlsplit(text).path if "://" in text else text) for sign in "*?["):
            raise SpecError(f"the pattern {text!r} is not supported", "give the folder")
        local = text if "://" in text or text.startswith("azureml:") else os.path.abspath(text)
        is_page = local.startswith("http") and "." in os.path.basename(urlsplit(local).path)
        is_file = os.path.isfile(local) or is_page
        made = FileDataset(local, type=kind or ("uri_file" if is_file else "uri_folder"))
        made._workspace = made._workspace if home is None else home
        return made

    @staticmethod
    def upload_directory(src_dir: Any, target: Any, overwrite: bool = False, **kwargs: Any) -> FileDataset:
        """Copy a folder to ``target``, ``(datastore, path)``. Raises as ``Datastore.upload``."""
        store, inside = target
        store.upload(src_dir, target_path=inside, overwrite=overwrite)
        return _FileDatasets.from_files((store, inside))


class _TabularDatasets:
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise UsageError(
            "tabular datasets are not supported",
            "Dataset.File.from_files(path).as_mount() gives the script the file's path",
        )


class Dataset:
    """Creates and finds datasets; ``Dataset(dataset_id=dataset.id)`` names one in a run configuration."""

    File = _FileDatasets
    Tabular = _TabularDatasets()

    def __init__(self, dataset_id: str | None = None, dataset_version: Any = None, **kwargs: Any) -> None:
        self.dataset_id = dataset_id
        self.dataset_version = dataset_version

    @staticmethod
    def get_by_name(workspace: WorkspaceScope, name: str, version: Any = "latest") -> FileDataset:
        """Return a registered dataset. Raises NotFoundError."""
        wanted = None if version in ("latest", None) else str(version)
        with workspace._here():
            return FileDataset._from_asset(asset_verbs.get("data", name, version=wanted))

    @staticmethod
    def get_all(workspace: WorkspaceScope) -> dict[str, FileDataset]:
        with workspace._here():
            return {one.name: FileDataset._from_asset(one) for one in asset_verbs.all("data")}


class OutputFileDatasetConfig:
    """A folder that the script writes to; ``destination``: ``(datastore, path)``, else it stays with the job."""

    def __init__(
        self, name: str | None = None, destination: Any = None, source: Any = None, **kwargs: Any
    ) -> None:
        self.name = name
        self._mode = "rw_mount"
        self._asset: str | None = None
        self._path: str | None = None
        if destination is not None:
            store, inside = destination
            self._path = store.path(str(inside).replace("{run-id}", "${{name}}"))._path

    def as_mount(self, **kwargs: Any) -> OutputFileDatasetConfig:
        return self

    def as_upload(self, **kwargs: Any) -> OutputFileDatasetConfig:
        self._mode = "upload"
        return self

    def as_input(self, name: str | None = None) -> Passed:
        """Return it as the input of a later step of a pipeline."""
        return Passed(self, name)

    def register_on_complete(self, name: str, **kwargs: Any) -> OutputFileDatasetConfig:
        """Make the output a data asset of that name."""
        self._asset = name
        return self

    def __getattr__(self, name: str) -> Any:
        return refuse_table(self, name)

    def _as_output(self) -> Output:
        return Output(type="uri_folder", path=self._path, mode=self._mode, name=self._asset)
