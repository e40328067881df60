"""Data in the arguments of a script, and how it gets to the nodes."""

from __future__ import annotations

from drumline.contract.errors import UsageError
from drumline.spec.parts.io import Input


class Consumed:
    """Data in the arguments of a script: its path on the nodes. ``as_mount`` reads it in place."""

    def __init__(self, name: str, path: str, *, mode: str = "ro_mount", type: str = "uri_folder") -> None:
        self.name = name
        self._path = path
        self._mode = mode
        self._type = type

    def as_mount(self, path_on_compute: str | None = None) -> Consumed:
        return Consumed(self.name, self._path, mode="ro_mount", type=self._type)

    def as_download(self, path_on_compute: str | None = None, **kwargs: object) -> Consumed:
        return Consumed(self.name, self._path, mode="download", type=self._type)

    as_direct = as_hdfs = as_mount

    def as_named_input(self, name: str) -> Consumed:
        return Consumed(name, self._path, mode=self._mode, type=self._type)

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
        return Input(type=self._type, path=self._path, mode=self._mode)


def parse_mode(word: str) -> str:
    """Return today's word for a mode of v1. Raises UsageError for an unknown one."""
    if word not in ("mount", "download", "direct", "hdfs"):
        raise UsageError(f"mode must be 'mount' or 'download'; got {word!r}")
    return "download" if word == "download" else "ro_mount"
