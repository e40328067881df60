"""Submission of a pipeline or a sweep: its graph, its run folder, and the process that drives it."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from copy import copy, deepcopy
from typing import TYPE_CHECKING, Any

from drumline.contract import events as e
from drumline.contract.errors import DrumlineError, PlanError, Problem
from drumline.contract.folder import RunFolder, home, open_text
from drumline.contract.mlflow_variables import is_server
from drumline.contract.process_identity import user
from drumline.contract.record import NamedTuple
from drumline.contract.secrets import list_names
from drumline.control.assets import references
from drumline.control.jobs import recovery
from drumline.control.jobs.job_outputs import output_path
from drumline.control.lint.programs import Trap
from drumline.control.lint.traps import find_traps
from drumline.control.settings import receivers
from drumline.control.submission import run_folder, submitted_secrets
from drumline.control.submission.planning import (
    check_fields,
    find_component,
    list_traps,
    locate_problems,
    plan,
    take_code,
)
from drumline.engines.local import resources
from drumline.plan import unsupported
from drumline.plan.pipelines import build_graph, locate_in_step
from drumline.plan.request import check_name
from drumline.plan.search.samplers import next_params
from drumline.plan.search.sweep_request import request_of, trial_job
from drumline.plan.search.tuning import PROPERTY
from drumline.spec import paths
from drumline.spec.entity import plain
from drumline.spec.jobs.job import to_dict
from drumline.spec.jobs.pipeline import fill_component, pin_job_paths
from drumline.spec.jobs.sweep import ParameterizedCommand, resolve_trial
from drumline.spec.kinds.values import PRIMITIVES
from drumline.spec.load import load_component
from drumline.spec.parts.io import PATTERN, Binding, Input, fits_primitive, texts_of, to_input
from drumline.spec.reading.files import read_tree
from drumline.tracking import metrics

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from drumline.contract.plan import Plan
    from drumline.plan.pipelines import Graph, Step
    from drumline.plan.search.sweep_request import SearchRequest
    from drumline.spec.jobs.job import Job
    from drumline.spec.jobs.pipeline import PipelineJob
    from drumline.spec.jobs.sweep import SweepJob


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


def prepare(job: Job, *, validate: bool = True) -> tuple[dict[str, Any], list[str]]:
    """
    Return the graph that the job's driver will work by, and the warnings; only snapshots of code are created.

    Raises SpecError, PlanError with every problem of every step.
    """
    _check_name_and_fields(job, fields=validate)
    prepare_it: Any = _prepare_sweep if job.type == "sweep" else _prepare_pipeline
    graph, warnings = prepare_it(job)
    # A sweep and its trials may say the same, and so may the steps of a pipeline.
    return graph, group_warnings((*unsupported.list_shared_warnings(job), *warnings))


def warnings_of(job: Job) -> list[str]:
    """Return those of a job; nothing is created. Raises SpecError, PlanError for what cannot run."""
    if job.type in ("command", "parallel"):
        return list(plan(job, check=False).warnings)  # type: ignore[arg-type]
    if job.type == "sweep":
        _check_name_and_fields(job)
        _, said = _prepare_sweep(job, takes_code=False)  # type: ignore[arg-type]
        return group_warnings((*unsupported.list_shared_warnings(job), *said))
    return check_pipeline(job)[1]  # type: ignore[arg-type]


PLAN = "plan"
"""In place of a rule of lint: what the job would be without, or run with, here."""


def lint(file: str, load: Callable[[], Any]) -> tuple[list[Trap], DrumlineError | None]:
    """
    Return the traps in the file of a component or a job; of a job also what its plan warns of, and why a submission
    would refuse it. ``load`` returns the job.

    Raises SpecError.
    """
    if file != "-":
        _, root, folder = read_tree(file)
        if re.search(r"component\.schema\.json", str(root.value_of("$schema") or ""), re.IGNORECASE):
            load_component(file, named=False)
            return find_traps(root, folder), None
    job = load()
    warnings, refusal = list(job._warnings), None
    try:
        with locate_problems(job):
            warnings += warnings_of(job)
    except DrumlineError as error:
        refusal = error
    return [*list_traps(job), *(Trap(PLAN, Problem(text)) for text in warnings)], refusal


def submit_driven(job: Job, *, check: bool = True) -> tuple[RunFolder, list[str]]:
    """Start the job, and return when its driver is on its way. Raises SpecError, PlanError, EngineError."""
    with run_folder.hold_removal_lock(home()):
        # The driver runs here, wherever its steps do.
        resources.check_can_run()
        named = bool(job.name)
        job.name = job.name or paths.random_name()
        try:
            graph, warnings = prepare(job, validate=check)
            secret_names = list_names(graph)
            if not job._top_job:
                submitted_secrets.check_wanted(secret_names, job.type)
                # That of a sweep is its trial's.
                wish = (getattr(getattr(job, "trial", None), "drumline", None) or {}).get("notify")
                graph["notify"] = receivers.list_receivers(wish)
            with locate_problems(job):
                held = submitted_secrets.find_text(secret_names)
            text = run_folder.text_of(job)
            folder = run_folder.create_folder(job, home())
        except BaseException:
            job.name = job.name if named else None
            raise
        graph |= {
            "top": job._top_job or job.name,
            "interpreter": sys.executable,
            "surroundings": {
                name: os.environ[name] for name in recovery.KEPT_VARIABLES if name in os.environ
            },
        }
        try:
            folder.write(folder.job, text)
            folder.write(folder.graph, json.dumps(graph, indent=1))
            run_folder.check_is_ours(folder)
            folder.begin(e.JobSubmitted(time.time(), user(), "local", job.type))
        except BaseException:
            run_folder.remove_folder(folder)
            raise
    try:
        with run_folder.block_signals(forks=True):
            recovery.start_driver(folder, sys.executable, {}, secret_names, held)
    except BaseException:
        run_folder.remove_folder(folder)
        raise
    return folder, [*getattr(job, "_warnings", ()), *warnings]


# pipelines


class PlannedStep(NamedTuple):
    """A step and its plan."""

    step: Step
    plan: Plan | None
    """None: of a pipeline or a sweep. What comes from steps before it is not in it yet."""

    steps: tuple[PlannedStep, ...]
    """Of a pipeline."""

    snapshots: dict[str, str]
    """Of a sweep, whose code was taken already."""

    warnings: tuple[str, ...]


def _plan_steps(
    job: PipelineJob, *, takes_code: bool
) -> tuple[PipelineJob, tuple[PlannedStep, ...], tuple[str, ...]]:
    """
    Return the pipeline with its component filled in, its steps in a possible order, and doubts of its inputs.

    Raises PlanError with every problem of every step, SpecError; nothing was created but the code of sweeps.
    """
    whole: Any = fill_component(job, find_component)
    pin_job_paths(whole)
    with locate_problems(job):
        taken = list(references.find_taken_versions(job))
        if taken:
            raise PlanError(taken)
        graph = build_graph(whole, find_component)
        looked = _plan_all(whole, graph, _compute_of(job), takes_code=takes_code)
    return whole, looked, graph.doubts


def _compute_of(job: Any, around: str | None = None) -> str | None:
    """Return the compute that steps of a pipeline use by default."""
    return job.settings.default_compute or job.compute or around


def _plan_all(
    pipeline: Any, graph: Graph, compute: str | None, *, takes_code: bool
) -> tuple[PlannedStep, ...]:
    problems: list[Problem] = []
    found = []
    for step in graph.steps:
        try:
            found.append(_plan_step(step, pipeline, compute, takes_code=takes_code))
        except DrumlineError as error:
            problems += locate_in_step(step.name, error)
    if problems:
        raise PlanError(problems)
    return tuple(found)


def _plan_step(step: Step, pipeline: PipelineJob, compute: str | None, *, takes_code: bool) -> PlannedStep:
    """Plan a step. Raises PlanError, SpecError for what cannot run."""
    job: Any = deepcopy(step.job)
    job.name = None
    bind_placeholders(job, pipeline)
    if step.inner is not None:
        inner = _plan_all(job, step.inner, _compute_of(job, compute), takes_code=takes_code)
        return PlannedStep(
            step,
            None,
            inner,
            {},
            (*step.doubts, *unsupported.list_shared_warnings(job), *_list_warnings(inner)),
        )
    job.compute = job.compute or compute
    if job.type == "sweep":
        graph, said = _prepare_sweep(job, takes_code=takes_code)
        warnings = tuple(dict.fromkeys((*step.doubts, *unsupported.list_shared_warnings(job), *said)))
        return PlannedStep(step, None, (), dict(graph.get("snapshots") or {}), warnings)
    planned = plan(job, check=False)
    return PlannedStep(step, planned, (), {}, (*step.doubts, *planned.warnings))


def _check_name_and_fields(job: Any, *, fields: bool = True) -> None:
    """Check the name of the job, and its fields. Raises PlanError, SpecError."""
    if job.name:
        check_name(job.name)
    if fields:
        check_fields(job)


def check_pipeline(job: PipelineJob) -> tuple[tuple[PlannedStep, ...], list[str]]:
    """Return the steps of a pipeline and its warnings; nothing is created. Raises SpecError, PlanError."""
    _check_name_and_fields(job)
    _, looked, doubts = _plan_steps(job, takes_code=False)
    return looked, group_warnings((*unsupported.list_shared_warnings(job), *doubts, *_list_warnings(looked)))


def _list_warnings(steps: tuple[PlannedStep, ...]) -> Iterator[str]:
    for looked in steps:
        for text in dict.fromkeys(looked.warnings):
            yield f"jobs.{looked.step.name}: {text}"


def _prepare_pipeline(job: PipelineJob) -> tuple[dict[str, Any], list[str]]:
    """
    Return the graph as ``graph.json`` holds it, with each step's code taken as it is now, and the warnings.

    Raises PlanError with every problem of every step, SpecError; nothing was created but snapshots.
    """
    if job._prepared is not None:
        return _make_graph(job, job._prepared), []
    whole, looked, doubts = _plan_steps(job, takes_code=True)
    warnings = [*doubts, *_list_warnings(looked)]
    with locate_problems(job):
        steps = [_to_graph_step(one, warnings) for one in looked]
    return _make_graph(whole, steps), warnings


def _make_graph(whole: PipelineJob, steps: list[dict[str, Any]]) -> dict[str, Any]:
    written = to_dict(whole, absolute=True)
    # Those of a mapping have absolute paths here.
    full = {name: one for name, one in (written.get("outputs") or {}).items() if isinstance(one, dict)}
    return {
        "steps": steps,
        "inputs": written.get("inputs") or {},
        "outputs": {name: full.get(name, plain(output)) for name, output in whole.outputs.items()},
        "compute": _compute_of(whole),
        "settings": whole.settings._plain(),
        "experiment_name": whole.experiment_name,
    }


def _to_graph_step(looked: PlannedStep, warnings: list[str]) -> dict[str, Any]:
    """Return a step as ``graph.json`` holds it; warnings are added to ``warnings``. Raises PlanError."""
    step = looked.step
    job: Any = copy(step.job)
    job.name = None
    if job.type == "sweep":
        # Its component's file is this run's as it is now.
        job.trial = resolve_trial(job, find_component)
    told = {
        "name": step.name,
        "needs": step.needs,
        "publishes": step.publishes,
        "job": to_dict(job, absolute=True),
    }
    try:
        if step.inner is not None:
            return {**told, "steps": [_to_graph_step(one, warnings) for one in looked.steps]}
        taken = looked.snapshots if job.type == "sweep" else job._snapshots
        snapshots, said = (taken, []) if taken else take_code(job)
        warnings += [f"jobs.{step.name}: {text}" for text in said]
    except PlanError as error:
        raise PlanError(locate_in_step(step.name, error)) from None
    return {**told, "snapshots": snapshots, "is_deterministic": job._is_deterministic}


# sweeps


def _prepare_sweep(job: SweepJob, *, takes_code: bool = True) -> tuple[dict[str, Any], list[str]]:
    """
    Return the graph that the driver works by, as ``graph.json`` holds it, and the warnings.

    takes_code: take it as it is now, unless the job has it already. Raises SpecError, PlanError; nothing was created
    but a snapshot.
    """
    whole = copy(job)
    whole.name = job.name or "NAME"
    with locate_problems(job):
        whole.trial = resolve_trial(job, find_component)
        snapshots, warnings = _probe(whole, request_of(whole), takes_code=takes_code)
    return {
        "sweep": to_dict(whole, absolute=True),
        "objective": plain(whole.objective),
        "outputs": {name: plain(output) for name, output in job.outputs.items()},
        "snapshots": snapshots,
    }, warnings


def _probe(sweep: SweepJob, request: SearchRequest, *, takes_code: bool) -> tuple[dict[str, str], list[str]]:
    """Plan the first trial, and take its code if that is wanted. Raises PlanError for what cannot run."""
    metric = request.primary_metric
    if metrics.clean_name(metric) != metric:
        what = f"objective.primary_metric: MLflow has no metric {metric!r}"
        hint = f"letters, digits and '_-. :/' may be in one: {metrics.clean_name(metric)!r}"
        raise PlanError(what, hint, path="objective.primary_metric")
    # Names of outputs are those of links.
    odd = next((name for name in sweep.outputs if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII)), None)
    if odd is not None:
        what = f"outputs: {odd!r} cannot be an output's name"
        raise PlanError(what, "letters, digits and '_', not beginning with a digit", path=f"outputs.{odd}")
    first = trial_job(sweep, sweep.trial, next_params(request.search, []) or {}, 0)
    first._snapshots = dict(sweep._snapshots)
    try:
        planned = plan(first, check=False)
        is_taken = first._snapshots or not takes_code
        snapshots, said = (first._snapshots, []) if is_taken else take_code(first)
    except PlanError as error:
        raise _of_trial(error) from None
    is_read = PROPERTY not in sweep.properties
    if (
        is_read
        and not metrics.run_dir_of(planned)
        and not is_server(planned.user_env.get("MLFLOW_TRACKING_URI", ""))
    ):
        raise PlanError(
            "trial.environment_variables: the metrics of the trials go where a sweep cannot read them",
            "leave out the MLFLOW_ variables, or name an MLflow server: https://HOST:PORT",
            path="trial.environment_variables",
        )
    shared = [
        f"outputs.{name}.path: every trial writes there" for name, one in sweep.outputs.items() if one.path
    ]
    return snapshots, [*shared, *said, *planned.warnings]


def _of_trial(error: PlanError) -> PlanError:
    """Rename the fields of the problems to those of the sweep: ``trial.command``, ``limits.trial_timeout``."""
    if not error.problems:
        return PlanError(f"trial: {error.message}", error.hint)
    for problem in error.problems:
        if problem.path.partition(".")[0] in ParameterizedCommand._fields:
            problem.what = problem.what.replace(problem.path, f"trial.{problem.path}", 1)
            problem.path = f"trial.{problem.path}"
        elif problem.path == "limits.timeout":
            problem.path = "limits.trial_timeout"
    return PlanError(list(error.problems))


# warnings of a pipeline


_STEP_PREFIX = re.compile(r"((?:jobs\.\w+: )+)(.*)", re.DOTALL)
_MOST_NAMED = 4


def group_warnings(warnings: Iterable[str]) -> list[str]:
    """
    Group equal warnings of several steps, in the order in which each was said first.

    >>> group_warnings(["jobs.a: x", "other", "jobs.b: x", "jobs.c: jobs.d: x", "jobs.a: y"])
    ['jobs.a, jobs.b, jobs.c.jobs.d: x', 'other', 'jobs.a: y']
    """
    steps: dict[str, list[str]] = {}
    for warning in dict.fromkeys(warnings):
        found = _STEP_PREFIX.fullmatch(warning)
        prefix, text = found.groups() if found else ("", warning)
        steps.setdefault(text, []).append(prefix)
    return [_format_group(text, prefixes) for text, prefixes in steps.items()]


def _format_group(text: str, prefixes: list[str]) -> str:
    if len(prefixes) == 1:
        return prefixes[0] + text
    names = [prefix.removesuffix(": ").replace(": ", ".") or "the job" for prefix in prefixes]
    if len(names) > _MOST_NAMED + 1:
        names = [*names[:_MOST_NAMED], f"{len(names) - _MOST_NAMED} more steps"]
        return f"{', '.join(names[:-1])} and {names[-1]}: {text}"
    return f"{', '.join(names)}: {text}"
