"""Putting code, data and environment in place before the ranks start, and uploading outputs after the last attempt."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

from drumline.contract import events as e
from drumline.contract import status
from drumline.contract.errors import DrumlineError, describe_os_error
from drumline.contract.outcome import fold
from drumline.contract.process_identity import user
from drumline.supervisor.clocks import wall_time
from drumline.supervisor.deciding import happenings as h

if TYPE_CHECKING:
    from collections.abc import Iterable

    from drumline.contract.folder import RunFolder
    from drumline.contract.plan import Plan, Registration
    from drumline.supervisor.supervised_folder import EndRequests, SupervisedFolder


def prepare(
    folder: SupervisedFolder, plan: Plan, requests: EndRequests, history: JobHistory
) -> h.Finish | None:
    """Put everything in place; return how the job ended where it was canceled meanwhile. Raises NodeError."""
    in_place = plan.cwd == folder.code or plan.copies or plan.folders
    helped = bool(plan.fetches) or plan.build is not None
    if history.has_started and helped:
        from drumline.supervisor.helpers import preparation

        # The cache may have been emptied since an earlier supervisor prepared the job.
        helped = preparation.is_needed(plan)
    if not helped and (history.has_started or not in_place):
        return None
    folder.append(e.JobPreparing(wall_time()))
    helpers = None
    if helped:
        from drumline.supervisor.helpers import preparation

        helpers = preparation.begin_preparation(folder, plan)
    try:
        if in_place and not history.has_started:
            from drumline.staging import run_setup

            if history.has_prepared:
                run_setup.clear_run(folder, plan)
            run_setup.prepare_run(folder, plan)
        if helpers is None or helpers.wait(requests.is_there, requests.wake):
            return None
    finally:
        if helpers is not None:
            helpers.end()
    request = requests.read()
    return cancel_job(folder, request.by if request else "its user", "before it started")


def cancel_job(folder: SupervisedFolder, by: str, when: str) -> h.Finish:
    """Record that the job was canceled before its ranks could be; return how it ended."""
    folder.append(e.CancelRequested(wall_time(), by))
    return h.Finish(status.CANCELED, h.CANCELED_CODE, f"canceled by {by} {when}")


def mount_inputs(folder: SupervisedFolder, plan: Plan, requests: EndRequests) -> h.Finish | None:
    """Mount the inputs that are read on demand; return how the job ended where one could not be mounted."""
    if not plan.fetches:
        return None
    from drumline.supervisor.helpers.preparation import Mounts

    try:
        Mounts(folder, plan).begin(requests.is_there)
    except (DrumlineError, OSError) as error:
        return h.Finish(status.FAILED, 1, getattr(error, "message", "") or str(error))
    return None


def upload_outputs(folder: SupervisedFolder, plan: Plan, requests: EndRequests, end: h.Finish) -> h.Finish:
    """Upload the outputs of a job that ended so; return how it ended with that."""
    from drumline.supervisor.helpers import preparation

    is_complete, was_canceled = end.status == status.COMPLETED, end.status == status.CANCELED
    if not is_complete and not any(one.always for one in plan.uploads):
        return end
    folder.append(e.JobFinalizing(wall_time()))

    def gives_up() -> bool:
        request = requests.read()
        return request is not None and (request.at_once or not was_canceled)

    try:
        limit_s = plan.grace_s if was_canceled else None
        if preparation.upload_outputs(
            folder,
            plan,
            always_only=not is_complete,
            canceled=gives_up,
            wake=requests.wake,
            limit_s=limit_s,
        ):
            return end
    except (DrumlineError, OSError) as error:
        if is_complete:
            return h.Finish(status.FAILED, 1, getattr(error, "message", "") or str(error))
        return end._replace(reason=f"{end.reason}; {getattr(error, 'message', error)}")
    what = "its outputs were not written to their places"
    request = requests.read()
    if is_complete and request is not None:
        folder.append(e.CancelRequested(wall_time(), request.by))
        return h.Finish(status.CANCELED, h.CANCELED_CODE, f"canceled by {request.by}; {what}")
    return end._replace(reason=f"{end.reason}; {what}")


# The named outputs of a job that has completed, as assets. What cannot be registered fails no job; it is said.


def register(folder: RunFolder, wanted: Iterable[Registration]) -> None:
    """Register the outputs that are not yet. Raises OSError when not even that can be written down."""
    before = fold(folder.read_events()).registered
    for one in wanted:
        done = before.get(one.output)
        if done is not None and not done.away:
            continue
        away = not os.path.isdir(one.home)
        if away and done is not None:
            continue
        version, error = ("", f"this machine does not see {one.home}") if away else _register(folder, one)
        folder.append(e.OutputRegistered(time.time(), one.output, one.name, version, error, away))


def _register(folder: RunFolder, one: Registration) -> tuple[str, str]:
    """Register an output; return its version, and why it has none."""
    if os.path.isabs(one.path) and not os.path.exists(one.path):
        return "", "the job did not write it"
    before = _made_before(folder, one)
    if before:
        return before, ""
    try:
        return _create(folder, one), ""
    except FileExistsError:
        return one.version, f"there is version {one.version} of {one.name} already"
    except DrumlineError as error:
        return one.version, error.message
    except OSError as error:
        return one.version, describe_os_error(error)


def _made_before(folder: RunFolder, one: Registration) -> str:
    """Return the version that a supervisor made of it, and could not record before it was killed; empty for none."""
    from drumline.store.asset_versions import Records

    records = Records(one.home, one.kind)
    try:
        newest = records.find(one.name, "latest")
        known = records.read(one.name, one.version or newest).get("properties") or {}
    except (DrumlineError, OSError):
        return ""
    ours = (known.get("drumline.job"), known.get("drumline.output")) == (folder.name, one.output)
    return (one.version or newest) if ours else ""


def _create(folder: RunFolder, one: Registration) -> str:
    from drumline.store.asset_versions import Records

    values = {
        "type": one.type,
        "path": one.path,
        "description": one.description,
        "properties": {"drumline.job": folder.name, "drumline.output": one.output},
        "created_by": user(),
    }
    given = {key: value for key, value in values.items() if value}
    return Records(one.home, one.kind).create(one.name, one.version or None, given)


# The part of a job that an earlier supervisor has run, as its events tell it.


class JobHistory:
    """Attempts and preparations before this supervisor's own."""

    def __init__(self, folder: SupervisedFolder) -> None:
        self.attempts: list[e.AttemptEnded] = []
        self.has_prepared = self.has_started = False
        self.was_interrupted = False
        """Whether an attempt had begun whose end is not known."""

        self.ran_s = 0.0
        """How long ranks have run in all attempts."""

        self._folder = folder
        self._last = 0.0
        began = None
        for event in folder.read_events():
            self._last = event.time
            if isinstance(event, e.JobPreparing):
                self.has_prepared = True
            elif isinstance(event, e.JobStarting):
                self.has_started = self.was_interrupted = True
            elif isinstance(event, e.RankStarted):
                began = began or event.time
            elif isinstance(event, e.AttemptEnded):
                self.attempts.append(event)
                self.ran_s += max(0.0, event.time - began) if began else 0.0
                self.was_interrupted, began = False, None

    def find_last_sign(self, plan: Plan) -> float:
        """Return when the job's events or its ranks' logs last changed, in seconds since 1970."""
        times = [self._last]
        for task in plan.ranks:
            with contextlib.suppress(OSError):
                times.append(os.stat(os.path.join(self._folder.path, task.log)).st_mtime)
        return max(times)
