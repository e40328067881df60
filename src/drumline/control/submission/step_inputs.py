"""The inputs of a step: bindings become the values and data that they stand for."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import PlanError
from drumline.contract.folder import open_text
from drumline.control.jobs.job_outputs import output_path
from drumline.spec.kinds.values import PRIMITIVES
from drumline.spec.parts.io import PATTERN, Binding, Input, fits_primitive, texts_of, to_input

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from drumline.spec.jobs.pipeline import PipelineJob

    ValueOf = Callable[[str, str | None], Any]
    """Of an expression such as ``parent.inputs.x``, for an input of that mode."""

_GONE = object()
"""Of an input that the pipeline was not given."""

_MOST_TEXT = 1 << 16
_NOT_YET = "drumline://a-step-before-it"


class _Value(Input):
    """An output that is a number or text: as data it is the file, and as a literal what the file holds."""

    def __init__(self, kind: str, path: str, file: str, mode: str | None) -> None:
        super().__init__(type="uri_file", path=path, mode=mode)
        self._kind = kind
        self._file = file

    def read(self) -> str:
        """Read the value that a step wrote. Raises PlanError."""
        try:
            with open_text(self._file) as file:
                text = file.read(_MOST_TEXT + 1).strip()
        except FileNotFoundError:
            raise PlanError(f"there is no {self._file}, which the step before it was to write") from None
        except (OSError, UnicodeDecodeError) as error:
            raise PlanError(f"{self._file} cannot be read as a value: {error}") from error
        if len(text) > _MOST_TEXT or not fits_primitive(self._kind, text):
            raise PlanError(f"{self._file} holds {text[:40]!r}, which is no {self._kind}")
        return text


def bind_inputs(job: Any, graph: Mapping[str, Any], job_of: Callable[[str], str]) -> None:
    """
    Fill in the inputs of a step's job; an output that is the pipeline's goes where that one is to go.

    ``job_of``: the job of a step that has completed. Raises PlanError.
    """
    steps = {step["name"]: step for step in graph["steps"]}

    def value_of(text: str, mode: str | None) -> Any:
        parts = text.split(".")
        if parts[:2] == ["parent", "inputs"]:
            given = graph["inputs"].get(".".join(parts[2:]), _GONE)
            return to_input(text, deepcopy(given)) if isinstance(given, dict) else given
        if parts[:2] == ["parent", "jobs"] and len(parts) == 5:
            outputs = steps[parts[2]]["job"].get("outputs") or {}
            written = outputs.get(parts[4]) or {}
            kind = written.get("type") if isinstance(written, dict) else None
            path = f"azureml://jobs/{job_of(parts[2])}/outputs/{parts[4]}"
            if kind in PRIMITIVES:
                return _Value(kind, path, output_path(job_of(parts[2]), parts[4]), mode)
            return Input(type=kind or "uri_folder", path=path, mode=mode)
        raise PlanError(f"${{{{{text}}}}} is neither an input of the pipeline nor an output of a step")

    _fill(job, value_of, graph.get("outputs") or {})


def bind_placeholders(job: Any, pipeline: PipelineJob) -> None:
    """Do as ``bind_inputs`` for a step that is only to be planned, with placeholders for outputs of earlier steps."""

    def value_of(text: str, mode: str | None) -> Any:
        parts = text.split(".")
        if parts[:2] == ["parent", "inputs"]:
            return deepcopy(pipeline.inputs.get(".".join(parts[2:]), _GONE))
        return Input(type="uri_folder", path=_NOT_YET, mode="direct")

    _fill(job, value_of, {})


def _fill(job: Any, value_of: ValueOf, outputs: Mapping[str, Any]) -> None:
    for name, value in list(job.inputs.items()):
        filled = _fill_value(value, value_of)
        if filled is _GONE:
            del job.inputs[name]
        elif filled is not value:
            job.inputs[name] = filled
    for name, value in getattr(job, "environment_variables", {}).items():
        if any(text.startswith("parent.") for text in texts_of(value)):
            job.environment_variables[name] = _with_values(str(value), value_of)
    if texts_of(getattr(job, "compute", None)):
        job.compute = _with_values(str(job.compute), value_of) or None
    for written in job.outputs.values():
        published = next(iter(texts_of(written)), "").removeprefix("parent.outputs.")
        if published:
            whole = outputs.get(published) or {}
            written.path, written.mode = whole.get("path"), written.mode or whole.get("mode")
        written.type = written.type or "uri_folder"


def _fill_value(value: Any, value_of: ValueOf) -> Any:
    if isinstance(value, Binding):
        value = str(value)
    if isinstance(value, Input):
        path = str(value.path or "")
        found = PATTERN.fullmatch(path.strip())
        if found:
            given = value_of(found[1], value.mode)
            if isinstance(given, Input) and given.path != _NOT_YET:
                given.mode = value.mode or given.mode
            return given
        if not texts_of(value):
            return value
        made = deepcopy(value)
        made.path = _with_values(path, value_of)
        return made
    if not isinstance(value, str) or not PATTERN.search(value):
        return value
    whole = PATTERN.fullmatch(value.strip())
    if whole:
        given = value_of(whole[1], None)
        return given.read() if isinstance(given, _Value) else given
    return _with_values(value, value_of)


def _with_values(text: str, value_of: ValueOf) -> str:
    return PATTERN.sub(lambda match: _text(value_of(match[1], None)), text)


def _text(value: Any) -> str:
    if value is _GONE:
        return ""
    if isinstance(value, _Value):
        return value.read()
    if isinstance(value, Input):
        raise PlanError("data cannot stand within a text", "give it an input of its own")
    return str(value)
