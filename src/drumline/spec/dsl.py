"""``@pipeline``: a function whose calls of components are the nodes of a pipeline job, and the component that it is."""

from __future__ import annotations

import functools
import inspect
import re
import sys
from types import MappingProxyType

from drumline.contract.errors import SpecError
from drumline.spec.builder import PipelineBuilder, building, current, register
from drumline.spec.entity import read_signature
from drumline.spec.foreign import nodes_are_ours, read_annotated
from drumline.spec.foreign_parts import ours
from drumline.spec.hints import refuse_unknown
from drumline.spec.jobs.component import declare, to_declaration
from drumline.spec.jobs.pipeline import PipelineComponent, PipelineJob, PipelineJobSettings
from drumline.spec.kinds.values import PRIMITIVES
from drumline.spec.parts.io import Binding, Input, NodeOutput, Output, PipelineInput, fits_primitive, texts_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


_OLD_SETTINGS = {
    "compute": "default_compute",
    "default_compute_target": "default_compute",
    "continue_run_on_step_failure": "continue_on_step_failure",
}
_FIELDS = ("name", "version", "display_name", "description", "experiment_name", "tags")
_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string"}
_TYPES_BY_NAME = {kind.__name__: word for kind, word in _TYPES.items()}


def pipeline(
    func: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    version: str | None = None,
    display_name: str | None = None,
    description: str | None = None,
    experiment_name: str | None = None,
    tags: dict[str, str] | None = None,
    **kwargs: Any,
) -> Any:
    """
    Make a pipeline of a function; stands above it, with or without arguments.

    The function's parameters become inputs of the pipeline, its calls become nodes under the names of its variables,
    and the outputs that it returns in a dictionary are the pipeline's.

    ``compute`` or ``default_compute``, ``default_datastore``, ``continue_on_step_failure``, ``force_rerun`` are the
    pipeline's settings.

    A call of the function gives a PipelineJob. Raises SpecError.
    Source: https://learn.microsoft.com/python/api/azure-ai-ml/azure.ai.ml.dsl
    """
    settings = {key: kwargs[key] for key in PipelineJobSettings._fields if kwargs.get(key) is not None}
    for old, new in _OLD_SETTINGS.items():
        if kwargs.get(old) is not None:
            settings.setdefault(new, kwargs[old])
    refuse_unknown(kwargs, (*PipelineJobSettings._fields, *_OLD_SETTINGS, *_FIELDS))

    def decorate(function: Callable[..., Any]) -> Callable[..., PipelineJob]:
        text = description if description is not None else inspect.getdoc(function)
        fields = {
            "display_name": display_name or name or function.__name__,
            "description": text,
            "experiment_name": experiment_name,
            "tags": tags,
        }

        @functools.wraps(function)
        def call(*args: Any, **named: Any) -> PipelineJob:
            return _build(function, args, named, {**fields, "settings": PipelineJobSettings(**settings)})

        call._pipeline_function = function  # type: ignore[attr-defined]
        # As a component: azure-ai-ml's is called as the function, where no name is given.
        function._pipeline_fields = {  # type: ignore[attr-defined]
            **{key: value for key, value in fields.items() if key != "experiment_name"},
            "name": name or function.__name__,
            "version": version,
        }
        return call

    return decorate(func) if func is not None else decorate


def _build(
    function: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any], fields: dict[str, Any]
) -> PipelineJob:
    given, types = _arguments(function, args, named)
    return build_pipeline(function, given, fields, types)


def build_pipeline(
    function: Callable[..., Any],
    given: dict[str, Any],
    fields: dict[str, Any],
    types: Mapping[str, str] = MappingProxyType({}),
) -> PipelineJob:
    """
    Build the pipeline of a function. ``given``: by parameter its value, None for none. Raises SpecError.

    ``types``: those that are known.
    """
    parameters = {name: PipelineInput(name, types.get(name, "")) for name in given}
    # Within another pipeline, what is given may be another node's: found out before this one's own nodes are made.
    with building(None):
        job = PipelineJob(**fields)
    with building(current()):
        for name, value in given.items():
            if value is not None:
                job.inputs[name] = value
    with building(PipelineBuilder()) as builder:
        assert builder is not None
        returned, variables = _call(function, parameters)
        _name_nodes(builder, variables)
        job.jobs = {node._node_name: node for node in builder.nodes}
        _publish(job, builder, returned, function.__name__)
    job._optional = frozenset(name for name, value in given.items() if value is None)
    register(job)
    return job


def _arguments(
    function: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return each parameter's value, with the defaults, and its type where the function says one."""
    signature = signature_of(function)
    for parameter in signature.parameters.values():
        if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            what = f"{function.__name__}: a pipeline cannot have the parameter {str(parameter).partition(':')[0]}"
            raise SpecError(what, "name every input of the pipeline")
    try:
        bound = signature.bind(*args, **named)
    except TypeError as error:
        known = ", ".join(signature.parameters) or "none"
        raise SpecError(f"{function.__name__}: {error}", f"its parameters: {known}") from None
    bound.apply_defaults()
    types = {name: type_of(parameter) for name, parameter in signature.parameters.items()}
    for name, value in bound.arguments.items():
        if isinstance(value, Input) and value.path is None:
            # The declaration itself, as a default.
            bound.arguments[name] = value.default
    for name, value in bound.arguments.items():
        _check_type(f"{function.__name__}: {name}", types[name], value)
    return dict(bound.arguments), types


def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """Return a function's signature; the default in an annotation ``Input(...)`` counts as one."""
    try:
        signature = inspect.signature(function, eval_str=True)
    except Exception:  # noqa: BLE001 - an annotation may be any text; then it says nothing
        signature = read_signature(function)
    parameters = []
    for written in signature.parameters.values():
        said = read_annotated(written.annotation)
        note = to_declaration(said) if said else ours(written.annotation)
        parameter = written.replace(annotation=note)
        if (
            isinstance(note, Input)
            and written.default is written.empty
            and (note.default is not None or note.optional)
        ):
            parameter = parameter.replace(default=note.default)
        parameters.append(parameter)
    try:
        return signature.replace(parameters=parameters)
    except ValueError:
        return signature  # A parameter without a default after one with: Python's own rule.


def type_of(parameter: inspect.Parameter) -> str:
    note = parameter.annotation
    if isinstance(note, Input):
        return str(note.type or "")
    if isinstance(parameter.default, Input) and parameter.default.path is None:
        return str(parameter.default.type or "")
    if isinstance(note, str):
        return _TYPES_BY_NAME.get(note, "")
    return _TYPES.get(note, "") if isinstance(note, type) else ""


def _check_type(where: str, wanted: str, value: Any) -> None:
    """Raise SpecError for a literal that cannot be of the type that the function says."""
    if wanted not in PRIMITIVES or value is None or isinstance(value, (Binding, Output)):
        return
    if isinstance(value, Input):
        raise SpecError(f"{where} is of type {wanted}, and gets data of type {value.type}")
    if not fits_primitive(wanted, value):
        raise SpecError(f"{where} is of type {wanted}, and gets {value!r}")


def _call(function: Callable[..., Any], parameters: dict[str, PipelineInput]) -> tuple[Any, dict[str, Any]]:
    """Call a function; return what it returns, and its variables at that moment."""
    variables: dict[str, Any] = {}
    code = getattr(inspect.unwrap(function), "__code__", None)

    def look(frame: Any, event: str, _: Any) -> None:
        if event == "return" and frame.f_code is code:
            variables.clear()
            variables.update(frame.f_locals)

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        with nodes_are_ours():
            returned = function(**parameters)
    finally:
        sys.setprofile(before)
    return returned, variables


def _name_nodes(builder: PipelineBuilder, variables: dict[str, Any]) -> None:
    """Name each node after the variable that holds it, else after its component; numbers make names different."""
    named = {
        id(value): variable
        for variable, value in variables.items()
        if any(value is node for node in builder.nodes)
    }
    taken: set[str] = set()
    # A name that the script gave goes before that of a variable, and both before those that are made up.
    for node in sorted(builder.nodes, key=lambda node: (not node.name, id(node) not in named)):
        component = node.__dict__.get("component")
        own = getattr(component, "name", None) or getattr(node, "display_name", None) or node.type
        word = node.name or named.get(id(node)) or own
        word = re.sub(r"[^a-z0-9_]", "_", str(word).lower()).lstrip("0123456789") or "node"
        number, unique = 0, word
        while unique in taken:
            number += 1
            unique = f"{word}_{number}"
        taken.add(unique)
        node._node_name = unique
        node.name = None


def _publish(job: PipelineJob, builder: PipelineBuilder, returned: Any, function: str) -> None:
    if returned is None:
        return
    if not isinstance(returned, dict):
        what = f"{function} may return a dictionary of outputs, not a {type(returned).__name__}"
        raise SpecError(what, 'return {"model": train.outputs.model}')
    for name, value in returned.items():
        owner = builder.owner_of(value) if isinstance(value, Output) else None
        if isinstance(value, NodeOutput):
            owner = (value.node, value.name)
        if owner is None:
            raise SpecError(f"{function} returns {name!r}, which is not an output of its nodes")
        written: Output = owner[0].outputs[owner[1]]
        if written.path and "${{parent.outputs." in str(written.path):
            raise SpecError(f"{function} returns the output {owner[1]!r} of a node twice", "return it once")
        job.outputs[name] = Output(
            type=written.type,
            mode=written.mode,
            path=written.path,
            name=written.name,
            version=written.version,
        )
        written.path = f"${{{{parent.outputs.{name}}}}}"
        written.name = written.version = None


_PRIMITIVES = ((bool, "boolean"), (int, "integer"), (float, "number"), (str, "string"))


def component_of_function(function: Callable[..., Any]) -> PipelineComponent:
    """
    Return the component of a function under ``@pipeline``. Raises SpecError.

    The function's parameters are the inputs, of the type that they are annotated with, or that a node wants which gets
    them.
    """
    signature = signature_of(function)
    names = tuple(signature.parameters)
    defaults = {
        name: None if one.default is one.empty else one.default for name, one in signature.parameters.items()
    }
    job = build_pipeline(function, dict.fromkeys(names), {"settings": None})
    inputs: dict[str, Any] = {}
    for name, parameter in signature.parameters.items():
        default = defaults[name]
        note = parameter.annotation if isinstance(parameter.annotation, Input) else None
        kind = type_of(parameter) or _type_of_value(default) or _type_wanted(job, name)
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
