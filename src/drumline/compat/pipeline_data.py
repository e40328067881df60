"""
Data that goes from step to step in v1's pipelines, and the pipelines' parameters.

Source: https://learn.microsoft.com/python/api/azureml-pipeline-core/azureml.pipeline.core.pipelinedata
"""

from __future__ import annotations

import re

from drumline.compat.known_keywords import refuse_unknown
from drumline.contract.errors import SpecError
from drumline.spec.parts.io import Output

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class PipelineData:
    """
    Data that the step writes which has it among its ``outputs``, and that others read. A folder that is there when the
    step starts; ``is_directory=False``: a file.
    """

    def __init__(  # noqa: PLR0913 - azureml's signature
        self,
        name: str,
        datastore: Any = None,
        output_name: str | None = None,
        output_mode: str = "mount",
        output_path_on_compute: str | None = None,
        output_overwrite: bool | None = None,
        data_type: str | None = None,
        is_directory: bool | None = None,
        pipeline_output_name: str | None = None,
        training_output: Any = None,
        **kwargs: Any,
    ) -> None:
        refuse_unknown(kwargs, type(self))
        if not isinstance(name, str) or not name:
            raise SpecError(f"the name of PipelineData must be text, got {name!r}")
        self.name = name
        self.datastore = datastore
        self._output_name = output_name or name
        self._type = "uri_file" if is_directory is False else "uri_folder"
        self._mode = "upload" if output_mode == "upload" else "rw_mount"

    def as_mount(self, *args: Any, **kwargs: Any) -> PipelineData:
        return self

    as_dataset = as_mount

    def as_download(self, *args: Any, **kwargs: Any) -> Passed:
        return Passed(self, mode="download")

    def as_input(self, input_name: str | None = None) -> Passed:
        return Passed(self, input_name)

    as_named_input = as_input

    def _as_output(self) -> Output:
        return Output(type=self._type, mode=self._mode)

    def __str__(self) -> str:
        return f"$AZUREML_DATAREFERENCE_{self.name}"

    def __repr__(self) -> str:
        return f"PipelineData({self.name!r})"


class Passed:
    """Data of an earlier step as an input of a later one. ``source``: PipelineData, or an OutputFileDatasetConfig."""

    def __init__(self, source: Any, name: str | None = None, mode: str | None = None) -> None:
        self.source = source
        self.name = name
        self.mode = mode

    def as_mount(self, *args: Any, **kwargs: Any) -> Passed:
        return Passed(self.source, self.name)

    as_direct = as_hdfs = as_mount

    def as_download(self, *args: Any, **kwargs: Any) -> Passed:
        return Passed(self.source, self.name, mode="download")

    def as_named_input(self, name: str) -> Passed:
        return Passed(self.source, name, self.mode)


class PipelineParameter:
    """A value that ``submit(pipeline_parameters={name: value})`` can change."""

    def __init__(self, name: str, default_value: Any) -> None:
        self.name = name
        self.default_value = default_value

    def __repr__(self) -> str:
        return f"PipelineParameter(name={self.name!r}, default_value={self.default_value!r})"


def identifier(text: str) -> str:
    """
    Return a name as a key of today's jobs has it.

    >>> identifier("Train model-1"), identifier("1st")
    ('Train_model_1', '_1st')
    """
    made = re.sub(r"\W", "_", text, flags=re.ASCII)
    return made if not made[:1].isdigit() else f"_{made}"
