"""Jobs of azure-ai-ml, nodes of its pipelines, and its components, as ours."""

from __future__ import annotations

from drumline.contract.errors import SpecError
from drumline.spec import builder
from drumline.spec.foreign.components import (
    command_of,
    common_fields,
    component_of_executor,
    is_function,
    is_internal,
    is_written_out,
)
from drumline.spec.foreign_parts import base_path_of, fields_of, name_in, ours, read_attribute, reference

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from drumline.spec.jobs.command import Command
    from drumline.spec.jobs.component import Component
    from drumline.spec.jobs.job import Job
    from drumline.spec.jobs.pipeline import PipelineComponent, PipelineJob
    from drumline.spec.jobs.sweep import SweepJob

_COMMON = (
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
    from drumline.spec.jobs.pipeline import PipelineComponent

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
    given = {name: read_attribute(value, name) for name in _COMMON}
    services = read_attribute(value, "services")
    given["services"] = {key: ours(item) for key, item in services.items()} if services else None
    given["base_path"] = base_path_of(value)
    return {name: item for name, item in given.items() if item is not None}


def _fields(value: Any, names: tuple[str, ...]) -> dict[str, Any]:
    given = {name: ours(read_attribute(value, name)) for name in names}
    return {name: item for name, item in given.items() if item is not None}


def _command(value: Any) -> Command:
    from drumline.spec.jobs.command import Command

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
    from drumline.spec.jobs.sweep import SweepJob

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
    from drumline.spec.jobs.trial import ParameterizedCommand, bind_search_space

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
    from drumline.spec.jobs.pipeline import PipelineJob

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
    from drumline.spec.parts.bindings import texts_of

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
    from drumline.spec.parts.io import Input

    return Input(type=read_attribute(item, "type") or "uri_folder", path=binding, mode=mode)


def _outputs(value: Any) -> dict[str, Any]:
    return {name: _output(item) for name, item in (read_attribute(value, "outputs") or {}).items()}


def _output(item: Any) -> Any:
    if not name_in(item, ("NodeOutput",)):
        return ours(item)
    from drumline.spec.parts.io import Output

    data = read_attribute(item, "_data")
    if isinstance(data, str) or name_in(data, ("PipelineOutput",)):
        path = data if isinstance(data, str) else data._data_binding()
        return Output(type=read_attribute(item, "type"), path=path, mode=read_attribute(item, "mode"))
    given = fields_of(data) if data is not None else {}
    names = ("path", "mode", "name", "version", "description")
    return Output(
        type=given.get("type") or read_attribute(item, "type"), **{key: given.get(key) for key in names}
    )
