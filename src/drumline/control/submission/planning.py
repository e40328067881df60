"""The plan of one job: its fields and those of its component, what it refers to, its compute; nothing is created."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import DrumlineError, NotFoundError, PlanError, Problem, SpecError, UsageError
from drumline.contract.folder import RunFolder, base_home, current_workspace, home
from drumline.contract.plan import Plan, is_below
from drumline.contract.record import NamedTuple
from drumline.control.settings import tracking
from drumline.control.submission.run_folder import ISOLATION
from drumline.engines.engine_table import engine
from drumline.engines.local import resources
from drumline.plan import bound_values, planner
from drumline.plan.request import WARM, WARM_WORDS, check_name, settings_of
from drumline.plan.unsupported import LOCAL_COMPUTES
from drumline.spec import paths
from drumline.spec.entity import to_dict
from drumline.spec.kinds.values import switch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from drumline.control.lint.programs import Trap
    from drumline.spec.jobs.command import Command


class RunOptions(NamedTuple):
    """Options of a run that are not part of the job."""

    in_place: str = ""
    """The ranks' working folder, as it is; empty: a copy of the job's code."""

    argv: tuple[str, ...] = ()
    """The program as words, started without a shell; empty: the job's command, with one."""

    beside: str = ""
    """A folder to whose files the working folder has links, where the job's code lacks them; empty: none."""


AS_WRITTEN = RunOptions()

PYTHON = "DRUMLINE_PYTHON"
"""The variable that names the Python of jobs; ``--python`` sets it. The driver of a pipeline has it too."""

slow_code: ContextVar[Callable[[int], None] | None] = ContextVar("drumline_slow_code", default=None)
"""Called with the number of files so far when taking the code of a job takes long, once for each folder."""

secret_files: ContextVar[Mapping[str, str]] = ContextVar(
    "drumline_secret_files", default=MappingProxyType({})
)
"""The paths of files that hold a secret, by its name: they must not be copied with the code of a job."""


def plan(job: Command, run: RunOptions = AS_WRITTEN, *, check: bool = True) -> Plan:
    """Return the plan that ``submit`` would run; nothing is created. Raises SpecError, PlanError."""
    if job.type == "parallel":
        job, check = fill_component(job), False
    with locate_problems(job):
        if job.type != "command":
            raise PlanError(f"type: a {job.type} is no one job, and has no plan of its own", path="type")
        if check:
            check_fields(job)
        if job.name:
            check_name(job.name)
        compute = compute_of(job)
        folder = RunFolder.for_job(job.name or "NAME", root_of(compute))
        code = "" if job._snapshots else code_of(job, run)
        if code and not os.path.exists(code):
            raise PlanError(f"code: there is no {code}", path="code")
        planned = _plan_resolved(job, run, folder, compute)
        _check_extras(planned)
        planned = _add_receivers(job, planned)
        chosen = engine(planned.engine)
        planned = planned._replace(
            workspace=current_workspace(), warnings=(*planned.warnings, *chosen.warnings(planned))
        )
        chosen.render(planned, folder)
    return planned


def _plan_resolved(job: Command, run: RunOptions, folder: RunFolder, compute: dict[str, Any]) -> Plan:
    """Plan the job with its references resolved; the job itself does not change."""
    if not _may_refer(job):
        planned = planner.plan_job(job, _site(job, folder, run, compute))
        _check_inputs(job, folder, compute)
        return planned
    from drumline.control.assets import references

    is_local = compute.get("type", "local") == "local"
    known = references.resolve_references(job, _interpreter_of(compute), is_local=is_local, compute=compute)
    site = _site(known.job, folder, run, compute, known.interpreter)
    site = site._replace(kept=known.kept, build=known.build, variables=known.variables)
    planned = planner.plan_job(known.job, site)
    _check_inputs(known.job, folder, compute)
    return planned._replace(
        resolved=dict(known.found),
        registers=references.plan_registrations(known.job, planned, known.written),
        warnings=(*known.warnings, *planned.warnings),
    )


def _add_receivers(job: Command, planned: Plan) -> Plan:
    """Add whom the job tells of its end; a step tells those alone that it names. Raises PlanError."""
    given = settings_of(job).get("notify")
    if given is None and (job._top_job or not os.path.exists(os.path.join(base_home(), "notify.json"))):
        return planned
    from drumline.control.settings import receivers

    return planned._replace(notify=receivers.list_receivers(given))


def _check_extras(planned: Plan) -> None:
    """Raise PlanError for remote data that this installation cannot read or write."""
    reads = [(fetch.name, fetch.uri, fetch.kind == "file") for fetch in planned.fetches]
    for name, uri, reads_file in [*reads, *((upload.name, upload.uri, False) for upload in planned.uploads)]:
        from drumline.contract import extras
        from drumline.contract.hiding import hide_secrets

        missing = extras.missing_for(uri, reads_file=reads_file)
        if missing:
            what = f"{name}: {hide_secrets(uri)} needs the package {missing[0]}, which is not installed"
            raise PlanError(what, extras.install_line(missing[1]), path=name)


def _may_refer(job: Command) -> bool:
    def leads_away(path: str) -> bool:
        return paths.is_remote(path) or path.startswith("/subscriptions/")

    data = (*(job.inputs or {}).values(), *(job.outputs or {}).values())
    return job.environment is not None or any(
        leads_away(str(getattr(one, "path", None) or "")) or getattr(one, "name", None) for one in data
    )


def _interpreter_of(compute: Mapping[str, Any]) -> str:
    is_here = compute.get("type", "local") == "local"
    named = os.environ.get(PYTHON, "")
    python = named or str(compute.get("python") or "")
    # pipx and `uv tool` have installed Drumline in an environment that has nothing else.
    marks = (os.path.join(sys.prefix, name) for name in ("pipx_metadata.json", "uv-receipt.toml"))
    if not python and not any(map(os.path.exists, marks)):
        return sys.executable
    from drumline.control.environments import environment_builds

    if not python:
        return environment_builds.find_active(os.environ) or sys.executable
    if named and is_here:
        python = environment_builds.find_named(named)
        if not environment_builds.is_program(python):
            what = f"the Python {python!r} is not there, or cannot be run"
            raise UsageError(what, "--python, or DRUMLINE_PYTHON, names another")
    return environment_builds.behind(python) if is_here else python


def find_interpreter() -> str:
    """Return what a job on this machine means by ``python`` if it has no environment. Raises UsageError."""
    return _interpreter_of({})


def render(planned: Plan) -> str:
    """Return the text that the engine would be sent; empty for none."""
    folder = RunFolder.for_job(planned.job, root_of(planned.compute))
    return engine(planned.engine).render(planned, folder)


def is_local(job: Command) -> bool:
    """Return whether the job certainly runs on this machine."""
    return job.compute in LOCAL_COMPUTES or not os.path.isdir(os.path.join(base_home(), "computes"))


def list_traps(job: Any, run: RunOptions = AS_WRITTEN) -> list[Trap]:
    """
    Return what the job's file most likely does not mean.

    A program that runs in place has no file; that of a step or trial has told it.
    """
    if run.in_place or job._top_job:
        return []
    from drumline.control.lint import programs, traps

    target = programs.UNKNOWN
    # Where there is no such compute, the plan says so.
    with suppress(DrumlineError):
        if compute_of(job).get("type", "local") == "local":
            target = programs.Target(True, len(resources.gpus()))
    return traps.find_traps_of(job, target)


def compute_of(job: Command) -> dict[str, Any]:
    """Return the settings of the job's compute; empty for this machine without a name. Raises PlanError."""
    if ISOLATION in job.properties:
        from drumline.control.machine import computes

        return computes.add_isolation(job.compute, str(job.properties[ISOLATION]))
    if job.compute in LOCAL_COMPUTES:
        return {}
    from drumline.control.machine import computes

    found = computes.resolve(job.compute)
    return {} if found is None else to_dict(found)


def root_of(compute: Mapping[str, Any]) -> str:
    """Return the home that holds the run folders of jobs on this compute."""
    return home(str(compute.get("folder") or ""))


def _site(
    job: Command, folder: RunFolder, run: RunOptions, compute: dict[str, Any], interpreter: str = ""
) -> planner.Site:
    """Collect what the planner needs besides the job. ``interpreter`` empty: the compute's, else ours."""
    count = planner.node_count(job)
    name = str(compute.get("type") or "local")
    chosen = engine(name)
    search_path = os.environ.get("PATH", "")
    instance_type = str(getattr(job.resources, "instance_type", None) or "")
    interpreter = interpreter or _interpreter_of(compute)
    return planner.Site(
        engine=name,
        shapes=tuple(chosen.shapes(count, compute, instance_type)),
        folder=folder,
        interpreter=interpreter,
        search_path=search_path,
        # On the ranks' PATH the interpreter's folder comes first.
        mpi=chosen.mpi(os.pathsep.join(filter(None, (os.path.dirname(interpreter), search_path))))
        if planner.needs_mpi(job)
        else None,
        compute=compute,
        shares_machine=chosen.shares_machine and not compute.get("isolation"),
        reached=chosen.list_reached(compute),
        mlflow_uri=tracking.choose_tracking_uri(folder.root),
        in_place=run.in_place,
        argv=run.argv,
        beside=run.beside,
        warm=warm_wish(os.environ),
    )


def warm_wish(environ: Mapping[str, str]) -> str:
    """Return the value of DRUMLINE_WARM; empty if it is not set. Raises UsageError."""
    said = environ.get(WARM, "")
    word = switch(said) if said else ""
    if word not in ("", *WARM_WORDS):
        raise UsageError(f"{WARM}: must be one of {', '.join(WARM_WORDS)}; got {said!r}", f"unset {WARM}")
    return word


def code_of(job: Any, run: RunOptions = AS_WRITTEN) -> str:
    """Return the absolute path of the code to take; empty for none."""
    code = None if run.in_place else job.code
    if not code:
        return ""
    if paths.is_remote(str(code)):
        is_asset = paths.scheme_of(str(code)) == "azureml"
        why = "is registered in Azure, which is not asked" if is_asset else "is not fetched from there"
        raise PlanError(f"code: {code!r} {why}", "give a local folder", path="code")
    return paths.resolve(job, str(code))


def _check_inputs(job: Command, folder: RunFolder, compute: Mapping[str, Any]) -> None:
    wrong = []
    hint = "relative paths are those of the job file's folder"
    # These are where the ranks are, and need not be here.
    mounted = [str(volume["path"]) for volume in compute.get("volumes") or ()]
    for name, path, kind in bound_values.Values(job, folder).checks:
        what = ""
        if is_below(path, mounted):
            continue
        if not os.path.exists(path):
            what = f"there is no {path}"
        elif kind == "uri_file" and os.path.isdir(path):
            what = f"{path} is a folder, and its type is uri_file"
        elif kind in ("uri_folder", "mltable") and not os.path.isdir(path):
            what = f"{path} is a file, and its type is {kind}"
        if what:
            wrong.append(Problem(f"inputs.{name}: {what}", path=f"inputs.{name}.path", hint=hint))
    if wrong:
        raise PlanError(wrong)


def check_secret_files(code: str, includes: Sequence[str]) -> None:
    """Refuse code that has a file of a secret in it, which would be copied with it. Raises PlanError."""
    if secret_files.get():
        from drumline.control.submission import submitted_secrets

        submitted_secrets.check_code(code, includes, secret_files.get())


def take_code(job: Any) -> tuple[dict[str, str], list[str]]:
    """Return snapshots of the job's code, by their place within the job, and warnings. Raises PlanError."""
    code: Any = getattr(job, "code", None)
    if job.type != "command" or (not code and not job._includes):
        return {}, []
    path = code_of(job) if code else ""
    if path and not os.path.exists(path):
        raise PlanError(f"code: there is no {path}", path="code")
    check_secret_files(path, job._includes)
    from drumline.control.assets import code as code_assets

    taken = code_assets.take(path, job._includes, slow_code.get())
    return {"code": taken.digest}, code_assets.warnings_of(taken, home())


# The fields of a job before it is planned: checked, located in their file, and filled in from its component.


def check_fields(job: Any) -> None:
    """Raise SpecError with every field that is wrong by itself."""
    from drumline.spec.jobs.validate import validate

    result = validate(job)
    if not result.passed:
        raise SpecError(list(result.problems))


@contextmanager
def locate_problems(job: Any) -> Iterator[None]:
    """Add file and line to the problems of a PlanError from within, if the job came from a file."""
    try:
        yield
    except PlanError as error:
        if job._root is not None:
            from drumline.spec.jobs.validate import locate_problems

            error.problems = tuple(locate_problems(error.problems, job))
        raise


def find_component(reference: str) -> Any:
    """
    Return the component that ``azureml:name:version`` names; one of ours of the same name and version stands in for a
    registry's, which is not asked. Raises NotFoundError, PlanError.
    """
    from drumline.control.assets import asset_verbs
    from drumline.spec.azureml_uris import AssetReference, parse

    asset = parse(reference)
    if not isinstance(asset, AssetReference):
        raise PlanError(
            f"{reference!r} is not a component that is registered here",
            "azureml:NAME:VERSION, after drumline component create -f FILE",
        )
    label = asset.label or (None if asset.version else "latest")
    try:
        return asset_verbs.get("component", asset.name, version=asset.version or None, label=label)
    except NotFoundError as error:
        if not asset.registry:
            raise
        version = f" --version {asset.version}" if asset.version else ""
        line = f"drumline component create -f FILE --name {asset.name}{version}"
        hint = f"to have one of your own stand in for it: {line}"
        what = f"{reference!r} is in a registry of Azure's, which is not asked, and there is no component {asset} here"
        raise NotFoundError(what, hint) from error


def fill_component(job: Command) -> Command:
    """
    Return the job with what its component says, where it is the call of one.

    Raises SpecError, PlanError, NotFoundError.
    """
    if job.__dict__.get("component") is None and job.type != "parallel":
        return job
    if job.type == "parallel":
        check_fields(job)
    from drumline.plan import pipelines
    from drumline.spec.jobs.pipeline import fill_component

    filled: Any = fill_component(job, find_component)
    found = pipelines.check_whole_job(filled)
    problems = [problem for problem in found if not isinstance(problem, pipelines.BindingWarning)]
    filled._warnings += [problem.what for problem in found if isinstance(problem, pipelines.BindingWarning)]
    if problems:
        raise PlanError(problems)
    pipelines.drop_superfluous(filled)
    return filled  # type: ignore[no-any-return]
