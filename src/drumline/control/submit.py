"""From a job to a supervised run: check, take the code, plan, write the run folder, hand over to the engine."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from drumline.contract import events as e
from drumline.contract import status
from drumline.contract.errors import EngineError, NotSubmittedError, PlanError, Problem, UsageError
from drumline.contract.folder import RunFolder, base_home, current_workspace, home, private_folder
from drumline.contract.record import NamedTuple
from drumline.contract.user import user
from drumline.control import tracking
from drumline.engines.table import engine
from drumline.plan import planner, values
from drumline.plan.request import WARM, WARM_WORDS, check_name
from drumline.plan.unhonoured import LOCAL_COMPUTES
from drumline.spec import names, paths
from drumline.spec.schema.kinds import switch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from drumline.contract.plan import Plan
    from drumline.spec.command import Command
    from drumline.staging.snapshot import Taken


class Run(NamedTuple):
    """How a job is to run, apart from what it is."""

    in_place: str = ""
    """The ranks' working folder, as it is; empty: a copy of the job's code."""

    argv: tuple[str, ...] = ()
    """The program as words, started without a shell; empty: the job's command, with one."""


AS_WRITTEN = Run()

slow_code: ContextVar[Callable[[int], None] | None] = ContextVar("drumline_slow_code", default=None)
"""Called with the number of files so far when taking the code of a job takes long, once for each folder."""

_HALF_MADE_S = 60.0


class Submitted(NamedTuple):
    name: str
    folder: RunFolder
    plan: Plan | None
    """None: of a pipeline or a sweep."""

    warnings: tuple[str, ...]


def plan(job: Command, run: Run = AS_WRITTEN, *, check: bool = True) -> Plan:
    """What ``submit`` would run; nothing is created. Raises SpecError, PlanError."""
    if job.type == "parallel":
        job, check = whole(job), False
    with _located(job):
        _check_type(job)
        if check:
            _validate(job)
        if job.name:
            check_name(job.name)
        compute = compute_of(job)
        folder = RunFolder.of(job.name or "NAME", _root_of(compute))
        _check_code(job, run)
        planned = _plan_resolved(job, run, folder, compute)
        _check_extras(planned)
        chosen = engine(planned.engine)
        planned = planned._replace(
            workspace=current_workspace(), warnings=(*planned.warnings, *chosen.warnings(planned))
        )
        chosen.render(planned, folder)
    return planned


def _plan_resolved(job: Command, run: Run, folder: RunFolder, compute: dict[str, Any]) -> Plan:
    """With what it refers to in the place of references; the job itself stays as it was written."""
    if not _may_refer(job):
        planned = planner.plan_job(job, _site(job, folder, run, compute))
        _check_inputs(job, folder)
        return planned
    from drumline.control import references

    is_local = compute.get("type", "local") == "local"
    known = references.resolved(job, _interpreter_of(compute), is_local=is_local, compute=compute)
    site = _site(known.job, folder, run, compute, known.interpreter)
    site = site._replace(kept=known.kept, build=known.build, variables=known.variables)
    planned = planner.plan_job(known.job, site)
    _check_inputs(known.job, folder)
    return planned._replace(
        resolved=dict(known.found),
        registers=references.registrations(known.job, planned, known.written),
        warnings=(*known.warnings, *planned.warnings),
    )


def _check_extras(planned: Plan) -> None:
    """Raises PlanError for remote data that this installation cannot read or write."""
    remote = [(one.name, one.uri) for one in planned.fetches] + [
        (one.name, one.uri) for one in planned.uploads
    ]
    for name, uri in remote:
        from drumline.contract import extras, uris

        missing = extras.missing_for(uri)
        if missing:
            package, extra = missing
            what = f"{name}: {uris.shown(uri)} needs the package {package}, which is not installed"
            raise PlanError(what, extras.install_line(extra), path=name)


def _may_refer(job: Command) -> bool:
    given = (*(job.inputs or {}).values(), *(job.outputs or {}).values())
    return job.environment is not None or any(
        _leads_away(str(getattr(one, "path", None) or "")) or getattr(one, "name", None) for one in given
    )


def _leads_away(path: str) -> bool:
    return paths.is_remote(path) or path.startswith("/subscriptions/")


def _interpreter_of(compute: Mapping[str, Any]) -> str:
    python = str(compute.get("python") or "")
    if python and compute.get("type", "local") == "local":
        from drumline.control import interpreters

        python = interpreters.behind(python)
    return python or sys.executable


def whole(job: Command) -> Command:
    """The job with what its component says, where it is the call of one. Raises SpecError, PlanError, NotFoundError."""
    if job.__dict__.get("component") is None and job.type != "parallel":
        return job
    if job.type == "parallel":
        _validate(job)
    from drumline.control.driver.prepare import registered
    from drumline.plan import ports
    from drumline.spec.steps import filled_in

    filled: Any = filled_in(job, registered)
    found = ports.problems_of_whole(filled)
    problems = [problem for problem in found if not isinstance(problem, ports.Doubt)]
    filled._warnings += [problem.what for problem in found if isinstance(problem, ports.Doubt)]
    if problems:
        raise PlanError(problems)
    ports.drop_superfluous(filled)
    return filled  # type: ignore[no-any-return]


def render(planned: Plan) -> str:
    """What the engine would be sent for it; empty for nothing."""
    folder = RunFolder.of(planned.job, _root_of(planned.compute))
    return engine(planned.engine).render(planned, folder)


def is_local(job: Command) -> bool:
    """Whether it certainly runs on this machine."""
    return job.compute in LOCAL_COMPUTES or not os.path.isdir(os.path.join(base_home(), "computes"))


def compute_of(job: Command) -> dict[str, Any]:
    """The settings of the compute that the job names; empty: this machine, under no name. Raises PlanError."""
    if job.compute in LOCAL_COMPUTES:
        return {}
    from drumline.control import computes
    from drumline.spec.compute import to_dict

    found = computes.resolve(job.compute)
    return {} if found is None else to_dict(found)


def _root_of(compute: Mapping[str, Any]) -> str:
    """The home in which run folders of its jobs are."""
    return home(str(compute.get("folder") or ""))


@contextmanager
def _located(job: Command) -> Iterator[None]:
    """A PlanError from within says where in the job's file the field is."""
    try:
        yield
    except PlanError as error:
        if job._root is not None:
            from drumline.spec.validate import located

            error.problems = tuple(located(error.problems, job))
        raise


def submit(
    job: Command,
    run: Run = AS_WRITTEN,
    *,
    start: Callable[[str], None] | None = None,
    check: bool = True,
) -> Submitted:
    """
    Start the job, and return when its supervisor is on its way; ``job.name`` is set when it had none.

    ``start``: starts the supervisor of a run folder as a fork of this process; None: it is started afresh.
    Raises SpecError, PlanError (nothing was created), EngineError.
    """
    if job.type not in ("command", "parallel"):
        from drumline.control.driver import start as driver

        driven, warned = driver.submit(job, check=check)
        return Submitted(driven.name, driven, None, tuple(warned))
    given, named = job, bool(job.name)
    job.name = job.name or names.random_name()
    try:
        job = whole(job)
        planned = plan(job, run, check=check and given.type == job.type)
        text = text_of(job if given.type == job.type else given, run)
        root = _root_of(planned.compute)
        digest, code_warnings = _take_code(job, run, root)
        folder = create_folder(job, root)
    except BaseException:
        given.name = given.name if named else None
        raise
    planned = planned._replace(snapshot=digest)
    try:
        check_is_ours(folder)
        folder.write(folder.job, text)
        folder.write(folder.plan, planned.to_json())
        check_is_ours(folder)
        folder.begin(e.JobSubmitted(time.time(), user(), planned.engine))
    except BaseException:
        remove_folder(folder)
        raise
    warnings = (*getattr(job, "_warnings", ()), *code_warnings, *planned.warnings)
    # The index learns of the job when it is next asked.
    chosen = engine(planned.engine)
    try:
        with uninterrupted(forks=start is not None and chosen.shares_machine):
            chosen.submit(folder, start)
    except NotSubmittedError:
        # The engine said no: there is no such job.
        remove_folder(folder)
        given.name = given.name if named else None
        raise
    except EngineError as error:
        folder.append(e.JobEnded(time.time(), status.FAILED, 1, error.message))
        raise
    except KeyboardInterrupt:
        if not chosen.shares_machine:
            # If it has arrived all the same, it ends at once.
            from drumline.control import cancel

            cancel.request(folder)
        raise
    return Submitted(folder.name, folder, planned, warnings)


@contextmanager
def uninterrupted(*, forks: bool) -> Iterator[None]:
    """A signal waits: it must not end the supervisor before that has a session of its own, nor leave half a job."""
    if not forks:
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def check_is_ours(folder: RunFolder) -> None:
    """Raise PlanError when another submission has taken the name, because this one did nothing for too long."""
    if folder.was_taken_over():
        hint = "submit it again, under another name or without one"
        raise PlanError(f"name: another submission took the name {folder.name!r} meanwhile", hint)


def remove_folder(folder: RunFolder) -> None:
    """Remove a run folder that is no job yet, unless another submission has taken its name."""
    import shutil

    if folder.was_taken_over():
        return
    shutil.rmtree(folder.path, ignore_errors=True)
    link = _link_of(folder)
    if os.path.islink(link):
        os.unlink(link)


def _link_of(folder: RunFolder) -> str:
    """Where the home has a link to a run folder that is elsewhere."""
    return os.path.join(home(), "jobs", folder.name)


def _check_type(job: Command) -> None:
    if job.type != "command":
        raise PlanError(f"type: a {job.type} is no one job, and has no plan of its own", path="type")


def _validate(job: Command) -> None:
    from drumline.contract.errors import SpecError
    from drumline.spec.validate import validate

    result = validate(job)
    if not result.passed:
        raise SpecError(list(result.problems))


def _site(
    job: Command, folder: RunFolder, run: Run, compute: dict[str, Any], interpreter: str = ""
) -> planner.Site:
    """``interpreter``: of the job's environment; empty: the compute's, else ours."""
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
        mpi=chosen.mpi(_ranks_path(interpreter, search_path)) if planner.needs_mpi(job) else None,
        compute=compute,
        shares_machine=chosen.shares_machine,
        mlflow_uri=tracking.uri_for(folder.root),
        in_place=run.in_place,
        argv=run.argv,
        warm=warm_wish(os.environ),
    )


def warm_wish(environ: Mapping[str, str]) -> str:
    """What DRUMLINE_WARM says; empty: nothing. Raises UsageError."""
    said = environ.get(WARM, "")
    word = switch(said) if said else ""
    if word not in ("", *WARM_WORDS):
        raise UsageError(f"{WARM}: {said!r} is none of {', '.join(WARM_WORDS)}", f"unset {WARM}")
    return word


def _ranks_path(interpreter: str, search_path: str) -> str:
    """As the planner makes it: the interpreter's folder comes first."""
    return os.pathsep.join(part for part in (os.path.dirname(interpreter), search_path) if part)


def code_of(job: Any, run: Run = AS_WRITTEN) -> str:
    """The absolute path of the code to take; empty for none."""
    code = None if run.in_place else job.code
    if not code:
        return ""
    if paths.is_remote(str(code)):
        is_asset = paths.scheme_of(str(code)) == "azureml"
        why = "is registered in Azure, which is not asked" if is_asset else "is not fetched from there"
        raise PlanError(f"code: {code!r} {why}", "give a local folder", path="code")
    return paths.resolve(job, str(code))


def _check_code(job: Command, run: Run) -> None:
    if job._snapshots:
        return
    code = code_of(job, run)
    if code and not os.path.exists(code):
        raise PlanError(f"code: there is no {code}", path="code")


def _take_code(job: Command, run: Run, root: str) -> tuple[str, list[str]]:
    if job._includes and not job._snapshots:
        from drumline.control.driver import code as with_includes

        job._snapshots, said = with_includes.taken(job)
        return _take_code(job, run, root)[0], said
    before = job._snapshots.get("code", "")
    if before and root == home():
        return before, []
    code = code_of(job, run) if not before else os.path.join(home(), "snapshots", before)
    if not code:
        return "", []
    from drumline.staging import snapshot

    taken = snapshot.take(code, root, slow_code.get())
    return taken.digest, warnings_of_code(taken)


def warnings_of_code(taken: Taken) -> list[str]:
    from drumline.staging import snapshot

    warnings = [f"code: left out {path}" for path in taken.skipped]
    if taken.size_bytes > snapshot.LARGE_BYTES:
        size = taken.size_bytes / (1 << 20)
        warnings.append(
            f"code: {size:.0f} MB in {taken.file_count} files; a .amlignore file says what to leave out"
        )
    return warnings


def _check_inputs(job: Command, folder: RunFolder) -> None:
    wrong = []
    hint = "relative paths are those of the job file's folder"
    for name, path, kind in values.of(job, folder).checks:
        what = ""
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


def create_folder(job: Any, root: str) -> RunFolder:
    """
    A new run folder under the job's name; exactly one of several at once gets it. One that is to be in another folder
    than the home's has a link there.
    """
    folder = RunFolder.of(str(job.name), root)
    link = _link_of(folder)
    is_elsewhere = os.path.dirname(link) != os.path.dirname(folder.path)
    try:
        if is_elsewhere:
            private_folder(os.path.dirname(link))
            if os.path.islink(link) and not os.path.exists(link):
                os.unlink(link)  # Of a job whose run folder was removed.
            os.symlink(folder.path, link)
        try:
            folder.create()
        except BaseException:
            if is_elsewhere:
                os.unlink(link)
            raise
    except FileExistsError as error:
        _raise_unless_taken(folder, error)
        if folder.is_abandoned(_HALF_MADE_S):
            remove_folder(folder)
            return create_folder(job, root)
        raise name_taken(str(job.name)) from error
    return folder


def name_taken(name: str) -> PlanError:
    """Return the error of a submission under the name of a job that is there."""
    hint = f"drumline job show -n {name}, or leave the name out for a new one"
    return PlanError(f"name: there is a job {name!r} already", hint)


def _raise_unless_taken(folder: RunFolder, error: FileExistsError) -> None:
    """A file where the home or its jobs should be is an error of another kind."""
    if not os.path.lexists(folder.path) and not os.path.lexists(_link_of(folder)):
        raise error


def text_of(job: Any, run: Run = AS_WRITTEN) -> str:
    """job.yml. Raises PlanError for text that is none: half a surrogate pair, or bytes that are no UTF-8."""
    from drumline.spec.dump import to_dict

    # Whoever reads it later does so from another folder.
    spec = to_dict(job, absolute=True)
    spec.setdefault("display_name", job.name)
    spec.setdefault("experiment_name", "Default")
    if run.in_place:
        shown = run.in_place.encode("utf-8", "backslashreplace").decode()
        spec["properties"] = {**(spec.get("properties") or {}), "drumline.working_folder": shown}
    # JSON is YAML too, and its module is there already when there was no file to read.
    try:
        text = json.dumps(spec, ensure_ascii=False, indent=1) if run.in_place else _yaml(spec)
        text.encode()
    except UnicodeEncodeError as error:
        raise PlanError("the job holds text that is not Unicode, and cannot be written down") from error
    return text


def _yaml(spec: dict[str, Any]) -> str:
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return str(yaml.dump(spec, Dumper=dumper, sort_keys=False, allow_unicode=True))
