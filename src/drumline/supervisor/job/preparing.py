"""Putting code, data and environment in place before the ranks start, and uploading outputs after the last attempt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drumline.contract import events as e
from drumline.contract import status
from drumline.contract.errors import DrumlineError
from drumline.supervisor.clocks import wall_time
from drumline.supervisor.deciding import happenings as h

if TYPE_CHECKING:
    from drumline.contract.plan import Plan
    from drumline.supervisor.end_requests import EndRequests
    from drumline.supervisor.job.history import JobHistory
    from drumline.supervisor.supervised_folder import SupervisedFolder


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
    from drumline.supervisor.helpers.mounts import Mounts

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
