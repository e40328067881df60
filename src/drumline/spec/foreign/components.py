"""Command components of azure-ai-ml, and functions under mldesigner's ``@command_component``, as components of ours."""

from __future__ import annotations

from drumline.contract.errors import SpecError
from drumline.spec.foreign_parts import base_path_of, name_in, ours, read_attribute

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from drumline.spec.jobs.command import CommandComponent

_COMMON = ("name", "version", "display_name", "description", "tags", "is_deterministic")
_COMMAND_FIELDS = (
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
    given = {name: read_attribute(value, name) for name in _COMMON}
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
    from drumline.spec.jobs.component import to_declaration

    names = ("type", "description", "default", "optional", "min", "max", "enum", "mode")
    given = {name: read_attribute(value, name) for name in names}
    return to_declaration({name: item for name, item in given.items() if item is not None})


def _to_output(value: Any) -> Any:
    from drumline.spec.parts.io import Output

    made = ours(value)
    if isinstance(made, Output):
        return made
    # An output of a pipeline, which wraps the declaration.
    given = {name: read_attribute(value, name) for name in ("type", "mode", "description")}
    return Output(**{name: item for name, item in given.items() if item is not None})


def command_of(value: Any) -> CommandComponent:
    from drumline.spec.jobs.command import CommandComponent

    given = {name: ours(read_attribute(value, name)) for name in _COMMAND_FIELDS}
    return CommandComponent(
        **common_fields(value), **{name: item for name, item in given.items() if item is not None}
    )


def component_of_executor(executor: Any) -> CommandComponent:
    """
    Return the component of a function under ``@command_component`` where azure-ai-ml is missing.

    mldesigner then keeps the function alone: the command below is the one that the two would make together.
    """
    from drumline.spec.jobs.command import CommandComponent

    known = executor._entity_args
    ports = {name: item._to_io_entity_args_dict() for name, item in executor._arg_mapping.items()}
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
    given = {name: known.get(name) for name in (*_COMMON, "code", "distribution", "resources")}
    return CommandComponent(
        **{name: item for name, item in given.items() if item is not None},
        command=" ".join(words),
        environment=_environment(known),
        inputs={name: _plain(item) for name, item in inputs.items()},
        outputs={name: _plain(item) for name, item in outputs.items()},
    )


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

    from drumline.spec.kinds.report import Report
    from drumline.spec.parts.environment import Environment, from_tree
    from drumline.spec.reading.files import read_tree

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
