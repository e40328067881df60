"""Submission of a job of any type: plan it, take its code, write its run folder, and hand it over to its engine."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING, Any

from drumline.contract import events as e
from drumline.contract.errors import EngineError, NotSubmittedError, PlanError, UsageError
from drumline.contract.folder import RunFolder, home
from drumline.contract.process_identity import user
from drumline.contract.record import NamedTuple
from drumline.control.submission import run_folder
from drumline.control.submission.planning import (
    AS_WRITTEN,
    RunOptions,
    check_secret_files,
    code_of,
    fill_component,
    list_traps,
    locate_problems,
    plan,
    root_of,
    slow_code,
    take_code,
)
from drumline.engines.engine_table import engine
from drumline.engines.local import resources
from drumline.spec import paths

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from drumline.contract.plan import Plan
    from drumline.spec.jobs.command import Command


class Submitted(NamedTuple):
    name: str
    folder: RunFolder
    plan: Plan | None
    """None: of a pipeline or a sweep."""

    warnings: tuple[str, ...]


def submit(
    job: Command,
    run: RunOptions = AS_WRITTEN,
    *,
    start: Callable[[str, str], None] | None = None,
    check: bool = True,
) -> Submitted:
    """
    Start the job, and return when its supervisor is on its way; ``job.name`` is set when it had none.

    ``start``: starts the supervisor of a run folder as a fork of this process; None: it is started afresh.
    Raises SpecError, PlanError (nothing was created), EngineError.
    """
    run_folder.forget_stored_name(job)
    if job.type not in ("command", "parallel"):
        from drumline.control.submission.driven import submit_driven

        driven, warned = submit_driven(job, check=check)
        return Submitted(driven.name, driven, None, (*map(str, list_traps(job)), *warned))
    run = _run_where_it_ran(job, run)
    given, named = job, bool(job.name)
    job.name = job.name or paths.random_name()
    with run_folder.hold_removal_lock(home()):
        try:
            job = fill_component(job)
            planned = _check_machine(plan(job, run, check=check and given.type == job.type))
            secrets = _find_secrets(job, planned)
            text = run_folder.text_of(job if given.type == job.type else given, run.in_place)
            root = root_of(planned.compute)
            digest, code_warnings = _take_code(job, run, root)
            folder = run_folder.create_folder(job, root)
        except BaseException:
            given.name = given.name if named else None
            raise
        planned = planned._replace(snapshot=digest)
        try:
            run_folder.check_is_ours(folder)
            folder.write(folder.job, text)
            folder.write(folder.plan, planned.to_json())
            run_folder.check_is_ours(folder)
            folder.begin(e.JobSubmitted(time.time(), user(), planned.engine))
        except BaseException:
            run_folder.remove_folder(folder)
            raise
    warnings = (
        *getattr(job, "_warnings", ()),
        *map(str, list_traps(given, run)),
        *code_warnings,
        *planned.warnings,
    )
    # The index learns of the job when it is next asked.
    chosen = engine(planned.engine)
    try:
        with run_folder.block_signals(forks=start is not None and chosen.shares_machine):
            chosen.submit(folder, start, secrets)
    except NotSubmittedError:
        # The engine said no: there is no such job.
        run_folder.remove_folder(folder)
        given.name = given.name if named else None
        raise
    except EngineError as error:
        run_folder.write_off(folder, error.message)
        raise
    except KeyboardInterrupt:
        if not chosen.shares_machine:
            # If it has arrived all the same, it ends at once, and what has arrived of it goes.
            from drumline.control.jobs import ending

            ending.request(folder)
            with contextlib.suppress(EngineError):
                chosen.withdraw(folder)
        raise
    return Submitted(folder.name, folder, planned, warnings)


def submit_text(text: str, changes: Mapping[str, Any], folder: str = "") -> Submitted:
    """
    Submit a job file. ``changes``: ``{"inputs.lr": 0.1}``. ``folder``: absolute, where its relative paths begin;
    default: where this process runs.

    Raises SpecError, PlanError, EngineError; UsageError for a folder that is not there.
    """
    import io

    from drumline.spec.load import load_job

    place = folder or os.getcwd()
    if not os.path.isabs(place) or not os.path.isdir(place):
        raise UsageError(f"folder: there is no folder {place!r}", "an absolute path")
    job: Any = load_job(
        io.BytesIO(text.encode("utf-8", "surrogatepass")),
        relative_origin=place,
        params_override=[{path: value} for path, value in changes.items()],
    )
    return submit(job)


def _check_machine(planned: Plan) -> Plan:
    """Return the plan with warnings about this machine, if it is to run the job. Raises PlanError if it cannot."""
    if planned.engine != "local":
        return planned
    resources.check_can_run()
    warnings = resources.check_holds(len(planned.nodes), sum(len(node.ranks) for node in planned.nodes))
    return planned._replace(warnings=(*planned.warnings, *warnings)) if warnings else planned


def _find_secrets(job: Command, planned: Plan) -> str:
    """Return the values of the job's secrets as its engine passes them on. Raises PlanError without one of them."""
    if not planned.secrets and not planned.notify:
        return ""
    from drumline.control.settings import receivers
    from drumline.control.submission import submitted_secrets

    with locate_problems(job):
        return submitted_secrets.find_text(planned.secrets, receivers.find_addresses(planned.notify))


def _run_where_it_ran(job: Command, run: RunOptions) -> RunOptions:
    """Have a job of ``drumline run`` that was shown or stored run in its folder again. Raises PlanError."""
    folder = (
        ""
        if run != AS_WRITTEN or getattr(job, "code", None)
        else str(job.properties.get(run_folder.WORKING_FOLDER) or "")
    )
    if folder and not os.path.isdir(folder):
        raise PlanError(f"there is no {folder}, where the job ran", "--set code=FOLDER")
    return run._replace(in_place=folder) if folder else run


def _take_code(job: Command, run: RunOptions, root: str) -> tuple[str, list[str]]:
    if job._includes and not job._snapshots:
        job._snapshots, said = take_code(job)
        return _take_code(job, run, root)[0], said
    before = job._snapshots.get("code", "")
    if before and root == home():
        return before, []
    code = code_of(job, run) if not before else os.path.join(home(), "snapshots", before)
    if not code:
        return "", []
    if not before:
        check_secret_files(code, ())
    from drumline.control.assets import code as code_assets
    from drumline.staging.snapshot.take import take_snapshot

    taken = take_snapshot(code, root, slow_code.get())
    return taken.digest, code_assets.warnings_of(taken, root)
