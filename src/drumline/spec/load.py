"""
A job, an asset, a datastore or a compute from a YAML file, with every mistake of the file reported at once.

Paths in the job stay as written; ``drumline.spec.paths.resolve`` says where they lead.
"""

from __future__ import annotations

import os
import re

from drumline.contract.errors import Problem, SpecError
from drumline.spec.files import read
from drumline.spec.nodes import Mapping, Scalar, Sequence
from drumline.spec.schema.report import Report
from drumline.spec.source import parse, problem_at

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import IO, Any

    from drumline.spec.assets import Asset, Data, Model
    from drumline.spec.component import Component
    from drumline.spec.compute import Compute
    from drumline.spec.datastores import Datastore
    from drumline.spec.environment import Environment
    from drumline.spec.job import Job
    from drumline.spec.nodes import Node
    from drumline.spec.schema.kinds import Kind

_TYPES = ("command", "parallel", "sweep", "pipeline")
_OTHER_TYPES = (
    "automl",
    "spark",
    "import",
    "data_transfer",
    "finetuning",
    "distillation",
)


def load_job(
    source: str | os.PathLike[str] | IO[Any],
    *,
    relative_origin: str | os.PathLike[str] | None = None,
    params_override: list[dict[str, Any]] | None = None,
    **kwargs: Any,
) -> Job:
    """
    A ``Command``, ``Parallel``, ``SweepJob`` or ``PipelineJob``.

    relative_origin: what relative paths resolve against, instead of the folder of the file.
    params_override: ``[{"resources.instance_count": 2}]``, applied before anything is checked.
    Raises SpecError with every problem of the file.
    """
    name, root = _read(source)
    base_path = _base_path(source, relative_origin)
    _override(root, params_override)
    kind = _job_type(root, name)
    report = Report(base_path)
    job = _make(kind, root, report)
    job._source = name
    job._base_path = base_path
    environment = getattr(job, "environment", None)
    if environment is not None and not isinstance(environment, str) and not environment._base_path:
        environment._base_path = base_path
    job._root = root
    job._warnings = [*_surprises(root), *_legacy(root)]
    return job


def load_environment(
    source: str | os.PathLike[str] | IO[Any],
    *,
    relative_origin: str | os.PathLike[str] | None = None,
    params_override: list[dict[str, Any]] | None = None,
    **kwargs: Any,
) -> Environment:
    """An environment from a file of its own. Raises SpecError with every problem of the file."""
    from drumline.spec import environment

    return environment.from_tree(*_tree(source, relative_origin, params_override))


def load_component(
    source: str | os.PathLike[str] | IO[Any] | Callable[..., Any],
    *,
    relative_origin: str | os.PathLike[str] | None = None,
    params_override: list[dict[str, Any]] | None = None,
    named: bool = True,
    **kwargs: Any,
) -> Any:
    """
    A ``CommandComponent``, ``ParallelComponent`` or ``PipelineComponent``, from a file or from a function under
    mldesigner's ``@command_component`` or a ``@pipeline``, ours or azure-ai-ml's.

    Raises SpecError with every problem of the file.

    named: it must have a name, as whatever is registered; a job may refer to a file without one.
    """
    from drumline.spec.foreign.components import component_of, is_function

    if is_function(source):
        return component_of(source)
    if hasattr(source, "_pipeline_function"):
        from drumline.spec.implied_component import of_function

        return of_function(source._pipeline_function)
    if callable(source):
        what = f"{getattr(source, '__name__', source)} is no function under @pipeline or @command_component"
        raise SpecError(what, "decorate it")
    if isinstance(source, (str, os.PathLike)) and os.fspath(source).endswith(".py"):
        what = f"{os.fspath(source)!r} is Python, which is not run to read a component"
        raise SpecError(what, "import its function under @command_component: load_component(function)")
    name, root = _read(source)
    base_path = _base_path(source, relative_origin)
    _override(root, params_override)
    made, kind = _component_kind(root, named=named)
    component = made(**_arguments(_check(kind, root, Report(base_path))), base_path=base_path)
    component._source = name
    return component


def _component_kind(root: Mapping, *, named: bool) -> tuple[type[Component], Kind]:
    """Its class, and its table."""
    from drumline.spec.component import CommandComponent, PipelineComponent
    from drumline.spec.parallel_component import ParallelComponent
    from drumline.spec.schema import component, parallel, pipeline

    kind = pipeline.type_of(root)
    if kind == "pipeline":
        return PipelineComponent, pipeline.PIPELINE_COMPONENT if named else pipeline.UNNAMED_PIPELINE
    if kind == "parallel":
        return ParallelComponent, parallel.NAMED_COMPONENT if named else parallel.UNNAMED_COMPONENT
    return CommandComponent, component.NAMED_COMPONENT if named else component.COMPONENT


def load_compute(
    source: str | os.PathLike[str] | IO[Any],
    *,
    relative_origin: str | os.PathLike[str] | None = None,
    params_override: list[dict[str, Any]] | None = None,
    **kwargs: Any,
) -> Compute:
    """
    A ``SlurmCompute``, ``LocalCompute`` or ``AmlCompute``. Raises SpecError with every problem of
    the file.
    """
    from drumline.spec.compute import from_tree

    _, root = _read(source)
    _override(root, params_override)
    compute = from_tree(root, Report(_base_path(source, relative_origin)))
    compute._warnings += _surprises(root)
    return compute


def load_data(
    source: str | os.PathLike[str] | IO[Any],
    *,
    relative_origin: str | os.PathLike[str] | None = None,
    params_override: list[dict[str, Any]] | None = None,
    **kwargs: Any,
) -> Data:
    """Raises SpecError with every problem of the file."""
    return _load_asset("data", *_tree(source, relative_origin, params_override))  # type: ignore[return-value]


def load_model(
    source: str | os.PathLike[str] | IO[Any],
    *,
    relative_origin: str | os.PathLike[str] | None = None,
    params_override: list[dict[str, Any]] | None = None,
    **kwargs: Any,
) -> Model:
    """Raises SpecError with every problem of the file."""
    return _load_asset("model", *_tree(source, relative_origin, params_override))  # type: ignore[return-value]


def _load_asset(kind: str, root: Mapping, report: Report) -> Asset:
    from drumline.spec import assets

    asset = assets.from_tree(kind, root, report)
    asset._warnings += _surprises(root)
    return asset


def load_datastore(
    source: str | os.PathLike[str] | IO[Any],
    *,
    relative_origin: str | os.PathLike[str] | None = None,
    params_override: list[dict[str, Any]] | None = None,
    **kwargs: Any,
) -> Datastore:
    """One of Azure's, or a ``LocalDatastore``. Raises SpecError with every problem of the file."""
    from drumline.spec import datastores

    return datastores.from_tree(*_tree(source, relative_origin, params_override))


def _tree(
    source: str | os.PathLike[str] | IO[Any],
    relative_origin: str | os.PathLike[str] | None,
    params_override: list[dict[str, Any]] | None,
) -> tuple[Mapping, Report]:
    _, root = _read(source)
    _override(root, params_override)
    return root, Report(_base_path(source, relative_origin))


def _read(source: str | os.PathLike[str] | IO[Any]) -> tuple[str, Mapping]:
    if isinstance(source, (str, os.PathLike)):
        path = os.fspath(source)
        return path, read(path, path)
    name = getattr(source, "name", "")
    name = name if isinstance(name, str) else ""
    try:
        data = source.read()
    except UnicodeDecodeError:
        raise SpecError(f"{name or '<stream>'!r} is not valid UTF-8") from None
    return name, parse(data, name or "<stream>")


def _base_path(
    source: str | os.PathLike[str] | IO[Any], relative_origin: str | os.PathLike[str] | None
) -> str:
    if relative_origin is not None:
        origin = os.path.abspath(relative_origin)
        return origin if os.path.isdir(origin) else os.path.dirname(origin)
    name = source if isinstance(source, (str, os.PathLike)) else getattr(source, "name", None)
    if isinstance(name, (str, os.PathLike)):
        return os.path.dirname(os.path.abspath(name))
    return os.getcwd()


def _override(root: Mapping, overrides: list[dict[str, Any]] | None) -> None:
    if overrides:
        from drumline.spec.override import apply

        apply(root, overrides)


def _job_type(root: Mapping, name: str) -> str:
    schema = root.get("$schema")
    if isinstance(schema, Scalar) and re.search(r"component\.schema\.json", str(schema.value), re.IGNORECASE):
        what = "this is a component, and no job"
        hint = "a node of a pipeline names it by `component: ./FILE`; drumline component create -f FILE registers it"
        raise SpecError([problem_at(schema, what, path="$schema", hint=hint)])
    node = root.get("type")
    if node is None:
        return "command"
    kind = node.value if isinstance(node, Scalar) else None
    if kind in _TYPES:
        return str(kind)
    if kind in _OTHER_TYPES:
        what, hint = f"jobs of type {kind!r} are not supported", _one_of()
    elif isinstance(kind, str) and kind.lower() in _TYPES:
        what, hint = f"{kind!r} is not a type of job", f"did you mean {kind.lower()!r}?"
    else:
        text = repr(kind) if isinstance(kind, str) else "this"
        what, hint = f"{text} is not a type of job", _one_of()
    raise SpecError([problem_at(node, what, path="type", hint=hint)])


def _one_of() -> str:
    return "one of " + ", ".join(map(repr, _TYPES))


def _make(kind: str, root: Mapping, report: Report) -> Job:
    if kind == "command":
        from drumline.spec.command import Command
        from drumline.spec.schema.command import COMMAND_JOB

        return Command(**_arguments(_check(COMMAND_JOB, root, report)))
    if kind == "sweep":
        from drumline.spec.schema.sweep import SWEEP_JOB
        from drumline.spec.sweep import SweepJob

        return SweepJob(**_arguments(_check(SWEEP_JOB, root, report)))
    from drumline.spec.schema.pipeline import PARALLEL_JOB, PIPELINE_JOB

    if kind == "parallel":
        from drumline.spec.parallel import Parallel

        return Parallel(**_arguments(_check(PARALLEL_JOB, root, report)))
    from drumline.spec.pipeline import PipelineJob

    return PipelineJob(**_arguments(_check(PIPELINE_JOB, root, report)), base_path=report.base_path)


def _arguments(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key != "type"}


def _check(kind: Kind, root: Mapping, report: Report) -> dict[str, Any]:
    values: dict[str, Any] = kind.check(root, "", report)
    _raise_any(report)
    return values


def _raise_any(report: Report) -> None:
    problems: list[Problem] = report.problems
    if problems:
        raise SpecError(problems)


def _surprises(root: Mapping) -> list[str]:
    """A warning for each unquoted text that YAML 1.1 reads as something else."""
    warnings: dict[str, None] = {}
    for node in _scalars(root):
        if node.surprise and node.source:
            where = f"{node.source.name}:{node.line}:{node.column}"
            warnings[f"{where}: unquoted {node.text!r} is {node.surprise} in YAML 1.1; quote it"] = None
    return list(warnings)


def _scalars(node: Node) -> Iterator[Scalar]:
    if isinstance(node, Scalar):
        yield node
    elif isinstance(node, Sequence):
        for item in node.items:
            yield from _scalars(item)
    elif isinstance(node, Mapping):
        for _, key, value in node:
            yield key
            yield from _scalars(value)


def _legacy(root: Mapping) -> list[str]:
    from drumline.spec.placeholders import legacy_forms

    node = root.get("command")
    if not isinstance(node, Scalar) or not isinstance(node.value, str):
        return []
    where = f"{node.source.name}:{node.line}:{node.column}: " if node.source else ""
    return [where + warning for warning in legacy_forms(node.value)]
