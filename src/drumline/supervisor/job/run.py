"""One job, from waiting for its nodes to its end, and its attempts: each runs all ranks, while another can help."""

from __future__ import annotations

import contextlib
import json
import os
import time
from typing import TYPE_CHECKING

from drumline.contract import events as e
from drumline.contract import status
from drumline.contract.errors import describe_os_error
from drumline.contract.folder import WORKSPACE, private_folder
from drumline.contract.plan import Plan
from drumline.contract.process_identity import user
from drumline.contract.rank_variables import restore_trust
from drumline.engines.engine_table import engine
from drumline.linux import descendants, mounts
from drumline.supervisor.attempt.loop import Loop
from drumline.supervisor.clocks import wall_time
from drumline.supervisor.deciding import happenings as h
from drumline.supervisor.deciding.restarts import RestartPolicy, list_files
from drumline.supervisor.job import preparing
from drumline.supervisor.job.preparing import JobHistory, cancel_job, mount_inputs, prepare, upload_outputs
from drumline.supervisor.supervised_folder import log_traceback, run_quietly
from drumline.tracking import mlflow_files, runs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drumline.engines.base import NextAttempt, Nodes
    from drumline.supervisor.helpers.service_programs import ServicePrograms
    from drumline.supervisor.supervised_folder import EndRequests, SupervisedFolder


def run_job(folder: SupervisedFolder, requests: EndRequests, secrets: Mapping[str, str]) -> h.Finish:
    """Wait for nodes, run the job on them, and give them back clean. Raises DrumlineError, OSError."""
    plan = Plan.read(folder.plan)
    if plan.notify:
        from drumline.supervisor.notifying.notices import JobNotices

        folder.notices = JobNotices(folder, plan.notify, secrets)
    secrets = {name: secrets[name] for name in plan.secrets if name in secrets}
    for name in plan.secrets:
        # Helpers and warm interpreters start with the variables of this process.
        os.environ.pop(name, None)
    lost = [name for name in plan.secrets if name not in secrets]
    if lost:
        return h.Finish(
            status.FAILED, 1, f"its secrets were lost before it started: {', '.join(lost)}; submit it again"
        )
    restore_trust(os.environ)
    # Ranks find the job's own workspace, whatever that of this process was.
    os.environ.pop(WORKSPACE, None)
    if plan.workspace:
        os.environ[WORKSPACE] = plan.workspace
    nodes = engine(plan.engine).nodes(plan, folder)
    requests.explain_by(nodes.preemption)
    try:
        canceled = wait_for_nodes(nodes, folder, requests, "before it started")
        return canceled or _run_on(nodes, folder, plan, requests, secrets)
    finally:
        # This process has adopted what a killed agent left; that goes before the cores are another job's.
        end_descendants(folder)
        run_quietly(nodes.release)


def _run_on(
    nodes: Nodes, folder: SupervisedFolder, plan: Plan, requests: EndRequests, secrets: Mapping[str, str]
) -> h.Finish:
    history = JobHistory(folder)
    over = None
    if plan.uploads:
        with contextlib.suppress(TypeError):
            over = h.Finish(**(folder.read_json(folder.ended) or {}))
    if over and over.status in status.TERMINAL:
        # The supervisor before this one was killed while it uploaded outputs.
        return _finish(folder, _start_tracking(folder, plan), requests, over)
    canceled = prepare(folder, plan, requests, history)
    if canceled:
        return canceled
    if history.was_interrupted:
        reason = f"its nodes were taken away by {plan.engine.capitalize()} before it could say more"
        taken = h.Finish(status.FAILED, h.PREEMPTED_CODE, reason, kind="preemption")
        note_attempt(folder, plan, len(history.attempts), taken, at=history.find_last_sign(plan))
        history = JobHistory(folder)
    folder.append(e.JobStarting(wall_time()))
    plan = _start_tracking(folder, plan)
    end = AttemptSeries(nodes, folder, plan, requests, history, secrets).run()
    if end is HANDED_OVER:
        return end
    if plan.uploads:
        run_quietly(lambda: folder.write(folder.ended, json.dumps(end._asdict())))
    return _finish(folder, plan, requests, end)


def _finish(folder: SupervisedFolder, plan: Plan, requests: EndRequests, end: h.Finish) -> h.Finish:
    """Upload outputs, end tracking and register assets after the last attempt; return how the job ended with that."""
    if plan.uploads:
        end = upload_outputs(folder, plan, requests, end)
    run_quietly(lambda: runs.end(folder, plan, end.status, lambda why: _warn_of_tracking(folder, why)))
    if end.status == status.COMPLETED and plan.registers:
        run_quietly(lambda: preparing.register(folder, plan.registers))
    return end


def _start_tracking(folder: SupervisedFolder, plan: Plan) -> Plan:
    """Begin the job's run in MLflow; return the plan with the variables of that run."""
    tracked = [plan]
    run_quietly(
        lambda: tracked.append(runs.begin(folder, plan, user(), lambda why: _warn_of_tracking(folder, why)))
    )
    return tracked[-1]


def _warn_of_tracking(folder: SupervisedFolder, why: str) -> None:
    folder.append(e.ServiceStarted(wall_time(), runs.NAME, runs.NAME, error=why))


HANDED_OVER = h.Finish("", 0, "")
"""The end of a supervisor that another one follows, with other nodes."""


def wait_for_nodes(
    nodes: Nodes, folder: SupervisedFolder, requests: EndRequests, when: str
) -> h.Finish | None:
    """Block until the nodes are there: None. Else return how the job ended."""
    granted = nodes.allocation.wait(
        lambda reason: folder.append(e.JobWaiting(wall_time(), reason)), requests.is_there, requests.wake
    )
    request = requests.read()
    if request is None and granted:
        return None
    return cancel_job(folder, request.by if request else "its supervisor", when)


def end_descendants(folder: SupervisedFolder) -> None:
    """End everything below this process. Mounts go first, since the processes that unmount them are ended as well."""
    mounts.unmount_below(folder.path)
    descendants.end_descendants(0.0)
    mounts.unmount_below(folder.path)


class AttemptSeries:
    """
    Runs attempts on the nodes of one job. ``history``: of the attempts before, if there were any. ``secrets``: more
    variables of the ranks, which are in no file.
    """

    def __init__(
        self,
        nodes: Nodes,
        folder: SupervisedFolder,
        plan: Plan,
        requests: EndRequests,
        history: JobHistory,
        secrets: Mapping[str, str],
    ) -> None:
        self._nodes = nodes
        self._folder = folder
        self._plan = plan
        self._requests = requests
        self._secrets = secrets
        self._restarts = RestartPolicy(plan.max_restarts, plan.restart_on)
        self._restarts.replay(history.attempts)
        self._left_s = None if plan.timeout_s is None else max(0.0, plan.timeout_s - history.ran_s)
        """What is left of the job's time limit."""

        self._services: ServicePrograms | None = None
        self._needs_progress = bool(plan.max_restarts) or nodes.allocation.needs_progress
        self._watched_folders = [folder.outputs, *plan.folders, *_find_metrics(plan)]

    def run(self) -> h.Finish:
        """Run one attempt after the other. Blocks. Raises EngineError, OSError."""
        while True:
            before = self._list_results()
            run_quietly(self._start_services)
            unmounted = mount_inputs(self._folder, self._plan, self._requests)
            if unmounted:
                return unmounted
            number = self._restarts.number
            loop = Loop(
                self._folder,
                self._plan,
                self._nodes,
                self._requests,
                attempt=number,
                timeout_s=self._left_s,
                secrets=self._secrets,
            )
            end = loop.run()
            if self._left_s is not None and loop.ranks_started is not None:
                self._left_s = max(0.0, self._left_s - (time.monotonic() - loop.ranks_started))
            progressed = self._needs_progress and self._list_results() != before
            over = self._end_or_restart(number, end, progressed, had_ranks=loop.ranks_started is not None)
            if over:
                return over

    def _start_services(self) -> None:
        if not self._plan.services:
            return
        if self._services is None:
            # Few jobs have any, and every launch would import it.
            from drumline.supervisor.helpers.service_programs import ServicePrograms

            self._services = ServicePrograms(self._folder, self._plan)
        self._services.start()

    def _list_results(self) -> frozenset[tuple[str, int, int]]:
        return list_files(self._watched_folders) if self._needs_progress else frozenset()

    def _end_or_restart(
        self, number: int, end: h.Finish, progressed: bool, *, had_ranks: bool
    ) -> h.Finish | None:
        """Return how the job ended after attempt ``number``; None: everything is ready for another attempt."""
        recorded = end
        kind_of_loss = self._nodes.allocation.lost_node_kind
        if end.kind == "node" and kind_of_loss != end.kind and had_ranks:
            decision = self._restarts.decide_after_loss(end, progressed=progressed)
            recorded = end._replace(kind=kind_of_loss)
        else:
            decision = self._restarts.decide_after(end, progressed=progressed)
        if not decision.again:
            return decision.end
        request = self._requests.read()
        if request is not None:
            return h.Finish(status.CANCELED, h.CANCELED_CODE, f"canceled by {request.by}")
        # This process has adopted what a killed agent left.
        end_descendants(self._folder)
        following = self._nodes.allocation.decide_next(end.kind, progressed=progressed)
        if following.where == "nowhere":
            return end._replace(reason=f"{end.reason}; {following.reason}")
        try:
            note_attempt(
                self._folder,
                self._plan,
                number,
                recorded,
                progressed=progressed if self._needs_progress else None,
            )
            return self._get_nodes(following)
        except OSError as error:
            # Such as a full disk. Nothing of the next attempt has begun.
            why = f"it could not be started again: {describe_os_error(error)}"
            return end._replace(reason=f"{end.reason}; {why}")

    def _get_nodes(self, following: NextAttempt) -> h.Finish | None:
        """Get the nodes of the next attempt; return how the job ended without. Raises OSError."""
        if following.where == "new supervisor":
            who = self._plan.engine.capitalize()
            self._folder.append(e.JobWaiting(wall_time(), f"{who} starts it again"))
            return HANDED_OVER
        if following.where == "queue":
            # Other jobs in the queue go first.
            run_quietly(self._nodes.release)
            canceled = wait_for_nodes(self._nodes, self._folder, self._requests, "after it was preempted")
            if canceled:
                return canceled
        self._folder.append(e.JobStarting(wall_time()))
        return None


def note_attempt(
    folder: SupervisedFolder,
    plan: Plan,
    number: int,
    end: h.Finish,
    *,
    at: float | None = None,
    progressed: bool | None = None,
) -> None:
    """Record the end of an attempt. ``at``: seconds since 1970; None: now. Raises OSError."""
    when = wall_time() if at is None else at
    how = (end.exit_code, end.reason, end.rank, end.node, end.verdict, end.kind)
    folder.append(e.AttemptEnded(when, number, *how, progressed))
    _move_logs(folder, plan, number)


def _move_logs(folder: SupervisedFolder, plan: Plan, attempt: int) -> None:
    """Move the logs of an attempt to a folder of their own: the next one writes to the same paths."""
    for task in plan.ranks:
        log = os.path.join(folder.path, task.log)
        aside = os.path.join(os.path.dirname(log), f"attempt-{attempt}")
        with contextlib.suppress(FileNotFoundError):
            private_folder(aside)
            os.rename(log, os.path.join(aside, os.path.basename(log)))


def _find_metrics(plan: Plan) -> list[str]:
    """Return the folder with the metrics of the job's run, where there is one."""
    try:
        found = mlflow_files.metrics_of(plan)
    except Exception:  # noqa: BLE001 - as in run_quietly
        log_traceback()
        return []
    return [found] if found else []
