"""From a job to a supervised run: check, take the code, plan, write the run folder, hand over to the engine."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from drumline.contract import events as e
from drumline.contract import status
from drumline.contract.errors import EngineError, NotSubmittedError, PlanError, Problem
from drumline.contract.folder import RunFolder, home, private_folder
from drumline.contract.user import user
from drumline.engines.table import engine
from drumline.plan import planner, values
from drumline.plan.request import check_name
from drumline.plan.unhonoured import LOCAL_COMPUTES
from drumline.spec import names, paths
from drumline.tracking import mlflow_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from drumline.contract.plan import Plan
    from drumline.spec.command import Command


class Run(NamedTuple):
    """How a job is to run, apart from what it is."""

    in_place: str = ""
    """The ranks' working folder, as it is; empty: a copy of the job's code."""

    argv: tuple[str, ...] = ()
    """The program as words, started without a shell; empty: the job's command, with one."""


AS_WRITTEN = Run()

_HALF_MADE_S = 60.0


class Submitted(NamedTuple):
    name: str
    folder: RunFolder
    plan: Plan
    warnings: tuple[str, ...]


def plan(job: Command, run: Run = AS_WRITTEN, *, check: bool = True) -> Plan:
    """What ``submit`` would run; nothing is created. Raises SpecError, PlanError."""
    with _located(job):
        _check_type(job)
        if check:
            _validate(job)
        if job.name:
            check_name(job.name)
        compute = compute_of(job)
        folder = RunFolder.of(job.name or "NAME", compute.get("folder"))
        _check_code(job, run)
        planned = planner.plan_job(job, _site(job, folder, run, compute))
        chosen = engine(planned.engine)
        planned = planned._replace(warnings=(*planned.warnings, *chosen.warnings(planned)))
        chosen.render(planned, folder)
        _check_inputs(job, folder)
    return planned


def render(planned: Plan) -> str:
    """What the engine would be sent for it; empty for nothing."""
    folder = RunFolder.of(planned.job, planned.compute.get("folder"))
    return engine(planned.engine).render(planned, folder)


def is_local(job: Command) -> bool:
    """Whether it certainly runs on this machine."""
    return job.compute in LOCAL_COMPUTES or not os.path.isdir(os.path.join(home(), "computes"))


def compute_of(job: Command) -> dict[str, Any]:
    """The settings of the compute that the job names; empty: this machine. Raises PlanError."""
    if job.compute in LOCAL_COMPUTES:
        return {}
    from drumline.control import computes
    from drumline.spec.compute import to_dict

    found = computes.resolve(job.compute)
    if found is None or found.type == "local":
        return {}
    return to_dict(found)


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
    named = bool(job.name)
    job.name = job.name or names.random_name()
    try:
        planned = plan(job, run, check=check)
        text = _dump(job, run)
        root = planned.compute.get("folder") or home()
        digest, code_warnings = _take_code(job, run, root)
        folder = _create(job, root)
    except BaseException:
        job.name = job.name if named else None
        raise
    planned = planned._replace(snapshot=digest)
    try:
        folder.write(folder.job, text)
        folder.write(folder.plan, planned.to_json())
        folder.begin(e.JobSubmitted(time.time(), user(), planned.engine))
    except BaseException:
        _remove(folder)
        raise
    warnings = (*getattr(job, "_warnings", ()), *code_warnings, *planned.warnings)
    # The index learns of the job when it is next asked.
    chosen = engine(planned.engine)
    try:
        with _uninterrupted(start is not None and chosen.shares_machine):
            chosen.submit(folder, start)
    except NotSubmittedError:
        # The engine said no: there is no such job.
        _remove(folder)
        job.name = job.name if named else None
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
def _uninterrupted(forks: bool) -> Iterator[None]:
    """A signal waits: it must not end the supervisor before that has a session of its own, nor leave half a job."""
    if not forks:
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _remove(folder: RunFolder) -> None:
    import shutil

    shutil.rmtree(folder.path, ignore_errors=True)
    link = _link_of(folder)
    if os.path.islink(link):
        os.unlink(link)


def _link_of(folder: RunFolder) -> str:
    """Where the home has a link to a run folder that is elsewhere."""
    return os.path.join(home(), "jobs", folder.name)


def _check_type(job: Command) -> None:
    if type(job).__name__ in ("SweepJob", "PipelineJob"):
        raise PlanError(f"type: {job.type!r} jobs are not supported yet", "command jobs are", path="type")


def _validate(job: Command) -> None:
    from drumline.contract.errors import SpecError
    from drumline.spec.validate import validate

    result = validate(job)
    if not result.passed:
        raise SpecError(list(result.problems))


def _site(job: Command, folder: RunFolder, run: Run, compute: dict[str, Any]) -> planner.Site:
    count = planner.node_count(job)
    name = str(compute.get("type") or "local")
    chosen = engine(name)
    search_path = os.environ.get("PATH", "")
    instance_type = str(getattr(job.resources, "instance_type", None) or "")
    interpreter = str(compute.get("python") or sys.executable)
    return planner.Site(
        engine=name,
        shapes=tuple(chosen.shapes(count, compute, instance_type)),
        folder=folder,
        interpreter=interpreter,
        search_path=search_path,
        mpi=chosen.mpi(_ranks_path(interpreter, search_path)) if planner.needs_mpi(job) else None,
        compute=compute,
        shares_machine=chosen.shares_machine,
        mlflow_uri=mlflow_files.uri_of(folder.root),
        in_place=run.in_place,
        argv=run.argv,
    )


def _ranks_path(interpreter: str, search_path: str) -> str:
    """As the planner makes it: the interpreter's folder comes first."""
    return os.pathsep.join(part for part in (os.path.dirname(interpreter), search_path) if part)


def _code_of(job: Command, run: Run) -> str:
    """The absolute path of the code to take; empty for none."""
    code = None if run.in_place else job.code
    if not code:
        return ""
    if paths.is_remote(str(code)):
        raise PlanError(
            f"code: {code!r} is not on this machine, and fetching it is not supported yet",
            "give a local folder",
            path="code",
        )
    return paths.resolve(job, str(code))


def _check_code(job: Command, run: Run) -> None:
    code = _code_of(job, run)
    if code and not os.path.exists(code):
        raise PlanError(f"code: there is no {code}", path="code")


def _take_code(job: Command, run: Run, root: str) -> tuple[str, list[str]]:
    code = _code_of(job, run)
    if not code:
        return "", []
    from drumline.staging import snapshot

    taken = snapshot.take(code, root)
    warnings = [f"code: left out {path}" for path in taken.skipped]
    if taken.size_bytes > snapshot.LARGE_BYTES:
        size = taken.size_bytes / (1 << 20)
        warnings.append(
            f"code: {size:.0f} MB in {taken.file_count} files; a .amlignore file says what to leave out"
        )
    return taken.digest, warnings


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


def _create(job: Command, root: str) -> RunFolder:
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
        if _is_half_made(folder):
            _remove(folder)
            return _create(job, root)
        hint = f"drumline job show -n {job.name}, or leave the name out for a new one"
        raise PlanError(f"name: there is a job {job.name!r} already", hint) from error
    return folder


def _is_half_made(folder: RunFolder) -> bool:
    """Whether whoever made it was killed before the job was one."""
    try:
        return not folder.exists() and time.time() - os.stat(folder.path).st_mtime > _HALF_MADE_S
    except OSError:
        return False


def _raise_unless_taken(folder: RunFolder, error: FileExistsError) -> None:
    """A file where the home or its jobs should be is an error of another kind."""
    if not os.path.lexists(folder.path) and not os.path.lexists(_link_of(folder)):
        raise error


def _dump(job: Command, run: Run) -> str:
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
