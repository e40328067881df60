"""The component that a function under ``@pipeline`` is where a script registers it."""

from __future__ import annotations

from drumline.contract.errors import SpecError
from drumline.spec.dsl import pipeline_function
from drumline.spec.jobs.component import declare
from drumline.spec.jobs.pipeline import PipelineComponent
from drumline.spec.kinds.values import PRIMITIVES
from drumline.spec.parts.bindings import Binding, texts_of
from drumline.spec.parts.io import Input, Output

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


_PRIMITIVES = ((bool, "boolean"), (int, "integer"), (float, "number"), (str, "string"))


def component_of_function(function: Callable[..., Any]) -> PipelineComponent:
    """
    Return the component of a function under ``@pipeline``. Raises SpecError.

    The function's parameters are the inputs, of the type that they are annotated with, or that a node wants which gets
    them.
    """
    signature = pipeline_function.signature_of(function)
    names = tuple(signature.parameters)
    defaults = {
        name: None if one.default is one.empty else one.default for name, one in signature.parameters.items()
    }
    job = pipeline_function.build_pipeline(function, dict.fromkeys(names), {"settings": None})
    inputs: dict[str, Any] = {}
    for name, parameter in signature.parameters.items():
        default = defaults[name]
        note = parameter.annotation if isinstance(parameter.annotation, Input) else None
        kind = pipeline_function.type_of(parameter) or _type_of_value(default) or _type_wanted(job, name)
        if not kind:
            what = f"{function.__name__}: the type of its parameter {name!r} is unknown"
            raise SpecError(what, f'annotate it: {name}: Input(type="uri_folder")')
        made = declare(note) if note is not None else Input(type=kind)
        if kind in PRIMITIVES and not isinstance(default, (Input, Binding)):
            made.default = default if default is not None else made.default
        made.optional = True if parameter.default is None else made.optional
        inputs[name] = made
    outputs = {name: Output(type=output.type, mode=output.mode) for name, output in job.outputs.items()}
    known = {name: value for name, value in vars(function).get("_pipeline_fields", {}).items() if value}
    return PipelineComponent(**known, inputs=inputs, outputs=outputs, jobs=job.jobs, base_path=job._base_path)


def _type_of_value(value: Any) -> str:
    if isinstance(value, Input):
        return str(value.type or "")
    return next((word for kind, word in _PRIMITIVES if isinstance(value, kind)), "")


def _type_wanted(job: Any, name: str) -> str:
    """Return the type that the first node with a component wants of an input that it gets as it is."""
    for node in job.jobs.values():
        component = getattr(node, "called_component", None)
        for port, value in node.inputs.items():
            declared = getattr(component, "inputs", {}).get(port) or node.__dict__.get("_replaced", {}).get(
                port
            )
            if isinstance(declared, Input) and texts_of(value) == [f"parent.inputs.{name}"]:
                return str(declared.type or "")
    return ""
