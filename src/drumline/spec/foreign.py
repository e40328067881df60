"""
Objects of azure-ai-ml and mldesigner where ours are expected, told by the modules of their classes: neither package is
imported here. tests/integration/azure_ai_ml runs all of this with the packages themselves.

Within a function under our ``@pipeline``, calls of mldesigner's functions and of azure-ai-ml's components give nodes of
ours. With azure-ai-ml, every such call ends in the ``load_from_dict`` of its one node factory; without it, in the
``__call__`` of mldesigner's executors. Both give way for as long as the function runs.
"""

from __future__ import annotations

import functools
import sys
import threading
from contextlib import contextmanager
from enum import Enum
from typing import Any

from drumline.contract.errors import SpecError
from drumline.spec import builder
from drumline.spec.entity import read_signature
from drumline.spec.foreign_parts import (
    HINT,
    base_path_of,
    fields_of,
    is_foreign,
    is_within_theirs,
    name_in,
    ours,
    read_attribute,
    reference,
)
from drumline.spec.jobs.command import Command, CommandComponent
from drumline.spec.jobs.component import to_declaration
from drumline.spec.jobs.pipeline import PipelineComponent, PipelineJob
from drumline.spec.jobs.sweep import ParameterizedCommand, SweepJob, bind_search_space
from drumline.spec.kinds.values import Report
from drumline.spec.parts.environment import Environment, from_tree
from drumline.spec.parts.io import Input, Output, texts_of
from drumline.spec.reading.files import read_tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from drumline.spec.jobs.component import Component
    from drumline.spec.jobs.job import Job


_COMPONENT_FIELDS = ("name", "version", "display_name", "description", "tags", "is_deterministic")
_COMMAND_COMPONENT_FIELDS = (
    "command",
    "code",
    "environment",
    "distribution",
    "resources",
    "additional_includes",
    "properties",
)
_MADE_OF_JOBS = ("BUILDER", "YAML.JOB")


def is_function(value: Any) -> bool:
    """Return whether it is a function under mldesigner's ``@command_component``, or azure-ai-ml's ``@pipeline``."""
    return any(getattr(value, mark, None) is True for mark in ("_is_mldesigner_component", "_is_dsl_func"))


def is_written_out(component: Any) -> bool:
    """Return whether it was made of a job, and says nothing that the job does not."""
    return read_attribute(component, "_source") in _MADE_OF_JOBS


def is_internal(value: Any) -> bool:
    return type(value).__module__.startswith("azure.ai.ml._internal")


def common_fields(value: Any) -> dict[str, Any]:
    given = {name: read_attribute(value, name) for name in _COMPONENT_FIELDS}
    if read_attribute(value, "_is_anonymous"):
        given["name"] = given["version"] = None
    given["inputs"] = {
        name: translate_declaration(item) for name, item in (read_attribute(value, "inputs") or {}).items()
    }
    given["outputs"] = {
        name: _to_output(item) for name, item in (read_attribute(value, "outputs") or {}).items()
    }
    given["base_path"] = base_path_of(value)
    return {name: item for name, item in given.items() if item is not None}


def translate_declaration(value: Any) -> Any:
    """
    Translate the declaration of an input, which may give a port a default. Raises SpecError for a group of parameters.
    """
    if name_in(value, ("GroupInput",)):
        raise SpecError("groups of parameters are not supported", "name each parameter by itself")

    names = ("type", "description", "default", "optional", "min", "max", "enum", "mode")
    given = {name: read_attribute(value, name) for name in names}
    return to_declaration({name: item for name, item in given.items() if item is not None})


def _to_output(value: Any) -> Any:
    made = ours(value)
    if isinstance(made, Output):
        return made
    # An output of a pipeline, which wraps the declaration.
    given = {name: read_attribute(value, name) for name in ("type", "mode", "description")}
    return Output(**{name: item for name, item in given.items() if item is not None})


def command_of(value: Any) -> CommandComponent:
    given = {name: ours(read_attribute(value, name)) for name in _COMMAND_COMPONENT_FIELDS}
    return CommandComponent(
        **common_fields(value), **{name: item for name, item in given.items() if item is not None}
    )


def component_of_executor(executor: Any) -> CommandComponent:
    """
    Return the component of a function under ``@command_component`` where azure-ai-ml is missing.

    mldesigner then keeps the function alone: the command below is the one that the two would make together.
    """
    known = executor._entity_args
    ports = {name: item._to_io_entity_args_dict() for name, item in executor._arg_mapping.items()}
    for name, parameter in read_signature(executor._func).parameters.items():
        if name in ports and (said := read_annotated(parameter.annotation)):
            given = {} if parameter.default is parameter.empty else {"default": parameter.default}
            ports[name] = {**said, **ports[name], **given}
    written = [name for name, item in executor._arg_mapping.items() if type(item).__name__ == "Output"]
    inputs = {name: item for name, item in ports.items() if name not in written}
    outputs = {name: item for name, item in ports.items() if name in written}
    for name, item in inputs.items():
        if item.get("type") is None:
            raise SpecError(
                f"{known['name']}: the type of its parameter {name!r} is unknown",
                "annotate it: x: int",
            )
    words = [*known["command"], *_arguments("inputs", inputs), *_arguments("outputs", outputs)]
    given = {name: known.get(name) for name in (*_COMPONENT_FIELDS, "code", "distribution", "resources")}
    return CommandComponent(
        **{name: item for name, item in given.items() if item is not None},
        command=" ".join(words),
        environment=_environment(known),
        inputs={name: _plain(item) for name, item in inputs.items()},
        outputs={name: _plain(item) for name, item in outputs.items()},
    )


def read_annotated(note: Any) -> dict[str, Any]:
    """Return what ``Annotated[int, Meta(min=1)]`` says of a parameter; empty for any other annotation."""
    parts = getattr(note, "__metadata__", ())
    word = _PRIMITIVES.get(getattr(note, "__origin__", None))
    if not parts or not word or not name_in(parts[0], ("Meta",)):
        return {}
    return {**parts[0]._to_io_entity_args_dict(), "type": word}


_PRIMITIVES: dict[Any, str] = {bool: "boolean", int: "integer", float: "number", str: "string"}


def _plain(port: dict[str, Any]) -> dict[str, Any]:
    """Return a port as plain data; an enumeration declares its values."""
    values = port.get("enum")
    return {**port, "enum": [getattr(item, "value", item) for item in values]} if values else port


def _arguments(group: str, ports: dict[str, dict[str, Any]]) -> list[str]:
    texts = [f"{name}='${{{{{group}.{name}}}}}'" for name in ports]
    optional = [bool(port.get("optional")) for port in ports.values()]
    shown = [f"$[[{text}]]" if free else text for text, free in zip(texts, optional, strict=True)]
    return [f"--{group}", *shown] if shown else []


_CURATED = "azureml://registries/azureml/environments/mldesigner-minimal/labels/latest"


def _environment(known: dict[str, Any]) -> Any:
    """Return the environment of a function; a path of a file is beside the function's own."""
    import os

    value, folder = known.get("environment"), os.path.dirname(known["source_path"])
    if value is None:
        return _CURATED
    if isinstance(value, dict):
        return Environment(**value, base_path=folder)
    is_file = isinstance(value, os.PathLike) or (
        isinstance(value, str) and not value.lower().startswith("azureml:")
    )
    if not is_file:
        return ours(value)
    _, root, base_path = read_tree(os.path.normpath(os.path.join(folder, value)))
    return from_tree(root, Report(base_path))


# Jobs of azure-ai-ml, nodes of its pipelines, and its components, as ours.


_JOB_FIELDS = (
    "name",
    "display_name",
    "description",
    "tags",
    "properties",
    "experiment_name",
    "compute",
    "parent_job_name",
)
_COMMAND_FIELDS = ("environment", "distribution", "resources", "limits", "queue_settings", "identity")
_SWEEP_FIELDS = (
    "objective", "sampling_algorithm", "early_termination", "limits", "resources", "queue_settings", "identity",
)  # fmt: skip
_KINDS = (
    "Command",
    "CommandJob",
    "Sweep",
    "SweepJob",
    "Pipeline",
    "PipelineJob",
    "Job",
    "BaseNode",
    "ControlFlowNode",
)
_BINDINGS = ("PipelineInput", "NodeOutput")


def job_of(value: Any) -> Job | None:
    """Return the job; None if it is not one of theirs. Raises SpecError for a kind that is not supported."""
    kind = name_in(value, _KINDS)
    if not kind:
        return None
    with builder.building(None):
        if kind in ("Command", "CommandJob"):
            return _command(value)
        if kind in ("Sweep", "SweepJob"):
            return _sweep(value)
        if kind in ("Pipeline", "PipelineJob"):
            return _pipeline(value)
    name = f"{type(value).__module__}.{type(value).__name__}"
    raise SpecError(f"{name} is not supported", "commands, sweeps and pipelines are")


def component_of(value: Any) -> Component | None:
    """Return the component; None if it is not one of theirs. Raises SpecError if it cannot be translated."""
    with builder.building(None):
        if is_function(value):
            return _of_function(value)
        kind = name_in(value, ("CommandComponent", "PipelineComponent", "Component"))
        if kind == "CommandComponent" and not is_internal(value):
            return command_of(value)
        if kind == "PipelineComponent" and not is_internal(value):
            return _pipeline_component(value)
        if kind:
            raise SpecError(
                f"{type(value).__module__}.{type(value).__name__} is not supported",
                "command and pipeline components are",
            )
    return None


def _of_function(function: Any) -> Component | None:
    if getattr(function, "_is_dsl_func", False):
        return component_of(function._pipeline_builder.build(user_provided_kwargs={}))
    component = getattr(function, "component", None)  # With azure-ai-ml beside it.
    return component_of(component) if component is not None else component_of_executor(function._executor)


def _pipeline_component(value: Any) -> PipelineComponent:
    return PipelineComponent(**common_fields(value), jobs=nodes_of(read_attribute(value, "jobs") or {}))


def nodes_of(jobs: dict[str, Any]) -> dict[str, Job]:
    """Return the nodes of a pipeline by name. Raises SpecError, which names the node."""
    made = {}
    for name, node in jobs.items():
        try:
            job = job_of(node)
        except SpecError as error:
            problem = error.problems[0]
            raise SpecError(f"jobs.{name}: {problem.what}", problem.hint) from None
        if job is None:
            raise SpecError(f"jobs.{name} must be a job, not a {type(node).__name__}")
        job.name = None
        job._comment = read_attribute(node, "comment")
        made[name] = job
    return made


def _common(value: Any) -> dict[str, Any]:
    given = {name: read_attribute(value, name) for name in _JOB_FIELDS}
    services = read_attribute(value, "services")
    given["services"] = {key: ours(item) for key, item in services.items()} if services else None
    given["base_path"] = base_path_of(value)
    return {name: item for name, item in given.items() if item is not None}


def _fields(value: Any, names: tuple[str, ...]) -> dict[str, Any]:
    given = {name: ours(read_attribute(value, name)) for name in names}
    return {name: item for name, item in given.items() if item is not None}


def _command(value: Any) -> Command:
    component = read_attribute(value, "component")
    given = {**_common(value), **_fields(value, _COMMAND_FIELDS)}
    given["environment_variables"] = dict(read_attribute(value, "environment_variables") or {})
    given["inputs"] = _inputs(value)
    given["outputs"] = _outputs(value)
    if component is None or is_written_out(component):
        program = value if component is None else component
        given |= {name: read_attribute(program, name) for name in ("command", "code")}
        given.setdefault("environment", ours(read_attribute(program, "environment")))
        given["base_path"] = base_path_of(program) or given.get("base_path")
        return Command(**given)
    return Command(
        component=reference(component) if isinstance(component, str) else component_of(component), **given
    )


def _sweep(value: Any) -> SweepJob:
    space = read_attribute(value, "search_space") or {}
    trial = read_attribute(value, "trial")
    inputs = {name: item for name, item in _inputs(value).items() if name not in space}
    return SweepJob(
        **_common(value),
        **_fields(value, _SWEEP_FIELDS),
        trial=reference(trial) if isinstance(trial, str) else _trial(trial, space),
        search_space={name: ours(item) for name, item in space.items()},
        inputs=inputs,
        outputs=_outputs(value),
    )


def _trial(trial: Any, space: dict[str, Any]) -> Any:
    """Return the program of a trial alone: its inputs are the sweep's."""
    component = component_of(trial)
    if component is not None and not is_written_out(trial):
        return component
    names = ("code", "environment", "distribution", "resources", "queue_settings")
    variables = dict(read_attribute(trial, "environment_variables") or {})
    return ParameterizedCommand(
        bind_search_space(str(read_attribute(trial, "command") or ""), space),
        **_fields(trial, names),
        environment_variables=variables,
        base_path=base_path_of(trial) or "",
    )


def _pipeline(value: Any) -> PipelineJob:
    component = read_attribute(value, "component")
    given = _common(value)
    is_node = name_in(value, ("Pipeline",)) == "Pipeline"
    if not is_node:
        given["settings"] = ours(read_attribute(value, "settings"))
        given["identity"] = ours(read_attribute(value, "identity"))
    job = PipelineJob(**given, inputs=_inputs(value), outputs=_outputs(value))
    if is_node or isinstance(component, str):
        job.component = reference(component) if isinstance(component, str) else component_of(component)
        return job
    job.jobs = nodes_of(read_attribute(value, "jobs") or {})
    for name, node in job.jobs.items():
        node._node_name = name
    _unbind(job)
    return job


def _unbind(job: PipelineJob) -> None:
    """
    Remove inputs of nodes that are bound to a parameter that got nothing: theirs drops it from the pipeline alone.
    """
    known = {f"parent.inputs.{name}" for name in job.inputs}
    for node in job.jobs.values():
        for name, item in list(node.inputs.items()):
            texts = texts_of(item)
            if len(texts) == 1 and texts[0].startswith("parent.inputs.") and texts[0] not in known:
                del node.inputs[name]


def _inputs(value: Any) -> dict[str, Any]:
    """Return the inputs: of a job, values; of a node, ports that hold a value, or where it comes from."""
    found = {}
    for name, item in (read_attribute(value, "inputs") or {}).items():
        made = _input(name, item)
        if made is not None:
            found[name] = made
    return found


def _input(name: str, item: Any) -> Any:
    if name_in(item, ("_GroupAttrDict",)):
        raise SpecError(
            f"inputs.{name}: groups of parameters are not supported", "name each parameter by itself"
        )
    if not name_in(item, ("NodeInput",)):
        return ours(item)
    data = read_attribute(item, "_data")
    if data is None:
        return (
            read_attribute(read_attribute(item, "_meta"), "default")
            if name_in(item, ("PipelineInput",))
            else None
        )
    if name_in(data, ("PipelineExpression",)):
        raise SpecError(f"inputs.{name}: an expression over a pipeline's inputs is not supported")
    if not name_in(data, _BINDINGS):
        return ours(data)
    binding = data._data_binding()
    mode = read_attribute(item, "mode")
    if mode is None:
        return binding

    return Input(type=read_attribute(item, "type") or "uri_folder", path=binding, mode=mode)


def _outputs(value: Any) -> dict[str, Any]:
    return {name: _output(item) for name, item in (read_attribute(value, "outputs") or {}).items()}


def _output(item: Any) -> Any:
    if not name_in(item, ("NodeOutput",)):
        return ours(item)

    data = read_attribute(item, "_data")
    if isinstance(data, str) or name_in(data, ("PipelineOutput",)):
        path = data if isinstance(data, str) else data._data_binding()
        return Output(type=read_attribute(item, "type"), path=path, mode=read_attribute(item, "mode"))
    given = fields_of(data) if data is not None else {}
    names = ("path", "mode", "name", "version", "description")
    return Output(
        type=given.get("type") or read_attribute(item, "type"), **{key: given.get(key) for key in names}
    )


_FACTORY = "azure.ai.ml.entities._job.pipeline._load_component"
_EXECUTORS = "mldesigner._component_executor"


_lock = threading.Lock()
_inside = 0
_replaced: list[tuple[Any, str, Any]] = []
"""What is to be put back: where, under which name, and what; None where the class's own shows again."""

_theirs: dict[str, Any] = {}
"""Their own, kept: a thread may be on its way to it when another puts it back."""


@contextmanager
def nodes_are_ours() -> Iterator[None]:
    """Make nodes ours meanwhile. It costs nothing where neither package is loaded."""
    global _inside  # noqa: PLW0603 - what gives way belongs to the process too
    with _lock:
        _inside += 1
        _replace()
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                _put_back()


def _replace() -> None:
    """Replace their functions, once for all pipelines that run at a time; a package may have been loaded since."""
    factory = getattr(sys.modules.get(_FACTORY), "pipeline_node_factory", None)
    if factory is not None and "load_from_dict" not in vars(factory):
        _replaced.append((factory, "load_from_dict", None))
        factory.load_from_dict = functools.partial(_node, factory)
    executor = getattr(sys.modules.get(_EXECUTORS), "ExecutorBase", None)
    if executor is not None and executor.__call__ is not _call:
        _replaced.append((executor, "__call__", executor.__call__))
        _theirs["__call__"] = executor.__call__
        executor.__call__ = _call
        _replaced.append((executor, "__copy__", None))
        executor.__copy__ = _copy


def _put_back() -> None:
    while _replaced:
        owner, name, before = _replaced.pop()
        if before is None:
            delattr(owner, name)
        else:
            setattr(owner, name, before)


def _node(factory: Any, *, data: dict[str, Any], _type: str | None = None) -> Any:
    if builder.current() is None:
        # Of another thread, or of what azure-ai-ml loads from a file meanwhile.
        return type(factory).load_from_dict(factory, data=data, _type=_type)
    if is_within_theirs():
        raise SpecError("azure.ai.ml's @pipeline cannot be called under drumline's", HINT)
    theirs = data.get("component")
    if theirs is None or is_written_out(theirs):
        raise SpecError("azure.ai.ml's command() cannot be called under drumline's @pipeline", HINT)
    component: Any = component_of(theirs)
    return component(**data.get("inputs", {}))


def _call(executor: Any, *args: Any, **named: Any) -> Any:
    if builder.current() is None:
        return _theirs["__call__"](executor, *args, **named)
    component: Any = component_of_executor(executor)
    return component(*args, **named)


def _copy(executor: Any) -> Any:
    """Copy an executor, as a call does for inputs of any name. Raises SpecError where it would be left out."""
    if builder.current() is not None:
        raise SpecError(f"{executor._name} takes inputs of any name", "name each parameter")
    made = object.__new__(type(executor))
    made.__dict__.update(vars(executor))
    return made


_VALUES = (str, int, float, Enum)
"""What is a value whatever its class."""


def translate_object(value: Any) -> Any:
    """
    Translate an object of theirs, or a function under ``@command_component``; return any other value as it is.

    Raises SpecError, which names the type, for what has nothing that stands for it.
    """

    if isinstance(value, _VALUES) or not (is_foreign(value) or is_function(value)):
        return value
    made = job_of(value) or component_of(value) or ours(value)
    if made is not value:
        return made
    name = f"{type(value).__module__}.{type(value).__name__}"
    raise SpecError(
        f"{name} is not supported", "jobs, components, computes, data, environments and models are"
    )
