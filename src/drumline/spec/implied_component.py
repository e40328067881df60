"""Components that scripts register without having written one: of a ``command(...)``, of a ``@pipeline`` function."""

from __future__ import annotations

from copy import deepcopy

from drumline.contract.errors import SpecError
from drumline.spec import builder, pipeline_function
from drumline.spec.bindings import Binding, texts_of
from drumline.spec.component import CommandComponent, PipelineComponent
from drumline.spec.io import PRIMITIVES, Input, Output
from drumline.spec.parallel_component import ParallelComponent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from drumline.spec.command import Command
    from drumline.spec.parallel import Parallel

_COMMON = ("name", "display_name", "description", "tags")
_OF_COMMAND = ("command", "code", "environment", "distribution", "resources", "queue_settings")
_PRIMITIVES = ((bool, "boolean"), (int, "integer"), (float, "number"), (str, "string"))
_PORT = ("type", "mode", "optional", "default", "min", "max", "enum", "description")


def of_job(job: Command | Parallel) -> CommandComponent | ParallelComponent:
    """Its inputs and outputs become declarations: a value is the default of its type, data is of its type alone."""
    fields: dict[str, Any] = {name: deepcopy(getattr(job, name)) for name in _COMMON}
    fields["inputs"] = {name: _declared(value) for name, value in job.inputs.items()}
    fields["outputs"] = {
        name: Output(type=output.type, mode=output.mode) for name, output in job.outputs.items()
    }
    fields |= {"is_deterministic": job._is_deterministic, "base_path": job._base_path}
    with builder.building(None):
        if job.type == "parallel":
            from drumline.spec.parallel import SETTINGS

            own = {name: deepcopy(getattr(job, name)) for name in (*SETTINGS, "resources")}
            return ParallelComponent(**fields, **own)
        return CommandComponent(
            **fields,
            **{name: deepcopy(getattr(job, name)) for name in _OF_COMMAND},
            properties=job.properties,
        )


def _declared(value: Any) -> Input:
    if isinstance(value, Input):
        known = {name: getattr(value, name) for name in _PORT}
        default = known.pop("default")
        made = Input(**{name: item for name, item in known.items() if item is not None})
        made.default = default
        return made
    for kind, word in _PRIMITIVES:
        if isinstance(value, kind):
            return Input(type=word, default=value)
    return Input(type="string")  # A search space, or what a pipeline is yet to give.


def of_function(function: Callable[..., Any]) -> PipelineComponent:
    """
    Of a function under ``@pipeline``: its parameters are the inputs, of the type that they are annotated with, or that
    a node wants which gets them. Raises SpecError.
    """
    signature = pipeline_function.signature_of(function)
    names = tuple(signature.parameters)
    defaults = {
        name: None if one.default is one.empty else one.default for name, one in signature.parameters.items()
    }
    job = pipeline_function.build(function, dict.fromkeys(names), {"settings": None})
    inputs: dict[str, Any] = {}
    for name, parameter in signature.parameters.items():
        default = defaults[name]
        note = parameter.annotation if isinstance(parameter.annotation, Input) else None
        kind = pipeline_function.type_of(parameter) or _type_of_value(default) or _type_wanted(job, name)
        if not kind:
            what = f"{function.__name__}: nothing says of which type its parameter {name!r} is"
            raise SpecError(what, f'annotate it: {name}: Input(type="uri_folder")')
        made = _declared(note) if note is not None else Input(type=kind)
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
    """By the first node with a component that gets it as it is."""
    for node in job.jobs.values():
        component = getattr(node, "called", None)
        for port, value in node.inputs.items():
            declared = getattr(component, "inputs", {}).get(port) or node.__dict__.get("_replaced", {}).get(
                port
            )
            if isinstance(declared, Input) and texts_of(value) == [f"parent.inputs.{name}"]:
                return str(declared.type or "")
    return ""
