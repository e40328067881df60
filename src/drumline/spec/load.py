"""
A job, an asset, a datastore or a compute from a YAML file, with every mistake of the file reported at once.

Paths in the job stay as written; ``drumline.spec.paths.resolve`` says where they lead.
"""

from __future__ import annotations

import re

from drumline.contract.errors import Problem, SpecError
from drumline.spec.entity_types import JOB_TYPES, job_class, job_table
from drumline.spec.kinds.values import Report
from drumline.spec.other_dialects import explain_type, read_other_dialects
from drumline.spec.reading.files import forget_run, read_tree, wrap_file
from drumline.spec.reading.source import Mapping, Scalar, Sequence, problem_at

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Collection, Iterable, Iterator
    from typing import IO, Any

    from drumline.spec.jobs.job import Job
    from drumline.spec.parts.environment import Environment
    from drumline.spec.reading.source import Node
    from drumline.spec.registered.assets import Asset, Data, Model
    from drumline.spec.registered.compute import Compute
    from drumline.spec.registered.datastores import Datastore


def load_job(
    source: str | os.PathLike[str] | IO[Any],
    *,
    relative_origin: str | os.PathLike[str] | None = None,
    params_override: list[dict[str, Any]] | None = None,
    **kwargs: Any,
) -> Job:
    """
    Load a ``Command``, ``Parallel``, ``SweepJob`` or ``PipelineJob``.

    relative_origin: what relative paths resolve against, instead of the folder of the file.
    params_override: ``[{"resources.instance_count": 2}]``, applied before anything is checked.
    Raises SpecError with every problem of the file.
    """
    name, root, base_path = read_tree(source, relative_origin, params_override)
    return _make_job(name, root, base_path, params_override or ())


def load_job_values(values: dict[str, Any], base_path: str) -> Job:
    """
    Load a job from the values of a job file, as ``load_job`` does.

    base_path: the folder that relative paths resolve against. Raises SpecError with every problem.
    """
    return _make_job("", wrap_file(values), base_path, ())


def _make_job(name: str, root: Mapping, base_path: str, overrides: Collection[dict[str, Any]]) -> Job:
    kind = _job_type(root, name)
    if "run_folder" in root and "creation_context" in root:
        forget_run(root, job_table(kind).fields)
    report = Report(base_path)
    read_other_dialects(root, report)
    values = job_table(kind).read(root, report)
    values.pop("type", None)
    job: Job = job_class(kind)(**values, base_path=base_path)
    job._source = name
    job._base_path = base_path
    environment = getattr(job, "environment", None)
    if environment is not None and not isinstance(environment, str) and not environment._base_path:
        environment._base_path = base_path
    job._root = root
    job._warnings = [
        *_surprises(root),
        *(f"{problem.what}; {problem.hint}" for problem in list_unused(root, overrides)),
    ]
    return job


def load_environment(
    source: str | os.PathLike[str] | IO[Any],
    *,
    relative_origin: str | os.PathLike[str] | None = None,
    params_override: list[dict[str, Any]] | None = None,
    **kwargs: Any,
) -> Environment:
    """Load an environment from its own file. Raises SpecError with every problem of the file."""
    from drumline.spec.parts import environment

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
    Load a ``CommandComponent``, ``ParallelComponent`` or ``PipelineComponent`` from a file or a function.

    The function stands under mldesigner's ``@command_component`` or a ``@pipeline``, ours or azure-ai-ml's.

    Raises SpecError with every problem of the file.

    named: it must have a name, as whatever is registered; a job may refer to a file without one.
    """
    from drumline.spec.foreign import component_of, is_function

    if is_function(source):
        return component_of(source)
    if hasattr(source, "_pipeline_function"):
        from drumline.spec.dsl import component_of_function

        return component_of_function(source._pipeline_function)
    if callable(source):
        what = f"{getattr(source, '__name__', source)} is not decorated with @pipeline or @command_component"
        raise SpecError(what, "decorate it")
    from drumline.spec.jobs.component import read_component

    return read_component(source, relative_origin, params_override, named=named)


def load_compute(
    source: str | os.PathLike[str] | IO[Any],
    *,
    relative_origin: str | os.PathLike[str] | None = None,
    params_override: list[dict[str, Any]] | None = None,
    **kwargs: Any,
) -> Compute:
    """Load a ``SlurmCompute``, ``LocalCompute`` or ``AmlCompute``. Raises SpecError with every problem of the file."""
    from drumline.spec.registered.compute import from_tree

    root, report = _tree(source, relative_origin, params_override)
    compute = from_tree(root, report)
    compute._warnings += _surprises(root)
    return compute


def load_data(
    source: str | os.PathLike[str] | IO[Any],
    *,
    relative_origin: str | os.PathLike[str] | None = None,
    params_override: list[dict[str, Any]] | None = None,
    **kwargs: Any,
) -> Data:
    """Load a data asset. Raises SpecError with every problem of the file."""
    return _load_asset("data", *_tree(source, relative_origin, params_override))  # type: ignore[return-value]


def load_model(
    source: str | os.PathLike[str] | IO[Any],
    *,
    relative_origin: str | os.PathLike[str] | None = None,
    params_override: list[dict[str, Any]] | None = None,
    **kwargs: Any,
) -> Model:
    """Load a model. Raises SpecError with every problem of the file."""
    return _load_asset("model", *_tree(source, relative_origin, params_override))  # type: ignore[return-value]


def _load_asset(kind: str, root: Mapping, report: Report) -> Asset:
    from drumline.spec.registered import assets

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
    """Load one of Azure's datastores, or a ``LocalDatastore``. Raises SpecError with every problem of the file."""
    from drumline.spec.registered import datastores

    return datastores.from_tree(*_tree(source, relative_origin, params_override))


def _tree(
    source: str | os.PathLike[str] | IO[Any],
    relative_origin: str | os.PathLike[str] | None,
    params_override: list[dict[str, Any]] | None,
) -> tuple[Mapping, Report]:
    _, root, base_path = read_tree(source, relative_origin, params_override)
    return root, Report(base_path)


def _job_type(root: Mapping, name: str) -> str:
    schema = root.get("$schema")
    if isinstance(schema, Scalar) and re.search(r"component\.schema\.json", str(schema.value), re.IGNORECASE):
        what = "this is a component, not a job"
        hint = "a node of a pipeline names it by `component: ./FILE`; drumline component create -f FILE registers it"
        raise SpecError([problem_at(schema, what, path="$schema", hint=hint)])
    node = root.get("type")
    if node is None:
        return "command"
    kind = node.value
    if kind in JOB_TYPES:
        return str(kind)
    if isinstance(kind, str) and kind.endswith("Component"):
        what = f"{kind} is a component of SDK v1.5, not a job"
        hint = "in Python, drumline.component: Component.from_yaml(workspace, yaml_file=...); docs/howto/older-sdks.md"
        raise SpecError([problem_at(node, what, path="type", hint=hint)])
    if isinstance(kind, str) and (explained := explain_type(kind.lower(), "jobs")):
        what, hint = explained
    elif isinstance(kind, str) and kind.lower() in JOB_TYPES:
        what, hint = f"{kind!r} is not a type of job", f"did you mean {kind.lower()!r}?"
    else:
        text = repr(kind) if isinstance(kind, str) else "this"
        what, hint = f"{text} is not a type of job", "one of " + ", ".join(map(repr, JOB_TYPES))
    raise SpecError([problem_at(node, what, path="type", hint=hint)])


def _surprises(root: Mapping) -> list[str]:
    """Return a warning for each unquoted text that YAML 1.1 reads as something else."""
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


def list_unused(root: Mapping, overrides: Iterable[dict[str, Any]]) -> list[Problem]:
    """Return a problem for each input that the overrides have added and nothing refers to."""
    if not overrides:
        return []
    from drumline.spec.jobs import validate

    return validate.list_unused(root, overrides)


def check_overrides(job: Job, overrides: Iterable[dict[str, Any]]) -> None:
    """
    Refuse overrides of a job, loaded with them, that change nothing: most often the name is misspelled.

    Raises SpecError. In Python they are warned of, as azure-ai-ml takes them.
    """
    unused = list_unused(job._root, overrides) if job._root is not None else []
    if unused:
        raise SpecError(unused)
