"""
The data of v1's run configurations: ``run_config.data = {"digits": Data(DataLocation(...))}``.

Source: https://learn.microsoft.com/python/api/azureml-core/azureml.core.runconfig.data
"""

from __future__ import annotations

from drumline.contract.errors import SpecError
from drumline.spec.parts.io import Input

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_MODES = {"mount": "ro_mount", "download": "download", "direct": "ro_mount", "hdfs": "ro_mount"}


class DataPath:
    """A path in a datastore, by the datastore's name."""

    def __init__(
        self, datastore_name: Any = None, path_on_datastore: str | None = None, **kwargs: Any
    ) -> None:
        self.datastore_name = getattr(datastore_name, "name", datastore_name)
        self.path_on_datastore = path_on_datastore


class DataLocation:
    """The location of data. ``dataset``: a dataset, or ``Dataset(dataset_id=dataset.id)``; else ``data_path``."""

    def __init__(self, dataset: Any = None, data_path: DataPath | None = None, **kwargs: Any) -> None:
        self.dataset = dataset
        self.data_path = data_path


class Data:
    """
    Data that a job reads. ``mechanism``: ``mount``, ``download`` or ``direct``. Its path is in
    ``environment_variable_name``, as well as in ``AZURE_ML_INPUT_<name>``.
    """

    def __init__(
        self,
        data_location: DataLocation | None = None,
        create_output_directories: bool = False,
        mechanism: str | None = None,
        environment_variable_name: str | None = None,
        path_on_compute: str | None = None,
        overwrite: bool = False,
        **kwargs: Any,
    ) -> None:
        self.data_location = data_location
        self.mechanism = mechanism
        self.environment_variable_name = environment_variable_name
        self.path_on_compute = path_on_compute

    def _as_input(self) -> Input:
        """Return the data as an input. Raises SpecError."""
        word = str(self.mechanism or "mount").lower()
        if word not in _MODES:
            raise SpecError(f"mechanism: {self.mechanism!r} is not supported", "'mount' or 'download'")
        path, kind = _place(self.data_location)
        return Input(type=kind, path=path, mode=_MODES[word])


def _place(location: Any) -> tuple[str, str]:
    """Return path and type of a location. Raises SpecError."""
    dataset, inside = getattr(location, "dataset", None), getattr(location, "data_path", None)
    path = getattr(dataset, "path", None) or getattr(dataset, "dataset_id", None)
    if path:
        return str(path), str(getattr(dataset, "type", None) or "uri_folder")
    if inside is not None and inside.datastore_name:
        where = str(inside.path_on_datastore or "").strip("/")
        return f"azureml://datastores/{inside.datastore_name}/paths/{where}", "uri_folder"
    raise SpecError(
        "data has no location", "Data(data_location=DataLocation(dataset=dataset), mechanism='mount')"
    )
