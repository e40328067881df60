"""One job, from waiting for its nodes to its end."""

from __future__ import annotations

import contextlib
import json
import os
from typing import TYPE_CHECKING

from drumline.contract import events as e
from drumline.contract import status
from drumline.contract.folder import WORKSPACE
from drumline.contract.plan import Plan
from drumline.contract.process_identity import user
from drumline.contract.rank_variables import restore_trust
from drumline.engines.engine_table import engine
from drumline.supervisor.clocks import wall_time
from drumline.supervisor.deciding import happenings as h
from drumline.supervisor.job import preparing
from drumline.supervisor.job.attempts import (
    HANDED_OVER,
    AttemptSeries,
    end_descendants,
    note_attempt,
    wait_for_nodes,
)
from drumline.supervisor.job.preparing import JobHistory, prepare, upload_outputs
from drumline.supervisor.supervised_folder import run_quietly
from drumline.tracking import runs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drumline.engines.base import Nodes
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
