"""
The outcome of a job so far: its events, and a look at what is still alive.

Nothing here writes, ends or starts anything, so it works on a folder that cannot be written to and from another
machine; ``recovery`` does the rest.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from drumline.contract import events as e
from drumline.contract import process_identity, status
from drumline.contract.errors import NotFoundError
from drumline.contract.outcome import fold
from drumline.contract.record import NamedTuple
from drumline.control.times import utc
from drumline.engines.engine_table import engine, is_elsewhere

if TYPE_CHECKING:
    from collections.abc import Collection

    from drumline.contract.folder import RunFolder
    from drumline.contract.outcome import Outcome

_SUPERVISOR_START_S = 60.0
"""
After this a job without a supervisor never had one, though its maker lives or cannot be seen. A hundred submissions at
once take many seconds.
"""

_DRIVER_START_S = 5.0

_NEVER_STARTED = "its supervisor did not start; it or the process that submitted the job was killed"
KILLED = "its supervisor was killed, or the machine restarted"

_MANY_BYTES = 1 << 20
"""Of events; where there are fewer, all are read each time, in some 30 ms."""


class Examined(NamedTuple):
    """The outcome of a job, and what its events lack."""

    outcome: Outcome
    end: e.JobEnded | None = None
    """The end that nobody was left to write down; the outcome has it already."""

    lacks_driver: bool = False
    """Of a pipeline or a sweep: it does not go on by itself."""


def fold_events(folder: RunFolder) -> Outcome:
    """Return the outcome by the events alone. Of very many, a process reads each once."""
    if not has_many_events(folder):
        return fold(folder.read_events())
    from drumline.control.jobs.many_events import outcomes

    return outcomes.read(folder)


def has_many_events(folder: RunFolder) -> bool:
    try:
        return os.stat(folder.events).st_size >= _MANY_BYTES
    except OSError:
        return False


def read_outcome(folder: RunFolder) -> Outcome:
    """Return what became of the job so far. It has ended as well when nothing is left that could write that down."""
    return examine(folder).outcome


def examine(folder: RunFolder, *, may_withdraw: bool = False) -> Examined:
    """
    Return the outcome of the job, and what ``recovery.recover`` would have to do. Raises NotFoundError for a job whose
    run folder was removed meanwhile.

    ``may_withdraw``: as of ``Engine.view_job``; without it nothing changes.
    """
    known = fold_events(folder)
    if known.is_final:
        return Examined(known)
    if known.kind != "command":
        return _examine_driven(folder, known)
    if is_elsewhere(known.engine):
        return _ask_engine(folder, known, may_withdraw)
    if _is_looked_after(folder, known, _SUPERVISOR_START_S):
        known.reason = explain_stop(folder) or known.reason
        return Examined(known)
    # Its last event may have been written between our look at the file and our look at the process.
    known = fold_events(folder)
    if known.is_final:
        return Examined(known)
    if not folder.exists():
        raise NotFoundError(f"there is no job {folder.name!r}")
    reason = KILLED if folder.read_json(folder.supervisor) else _NEVER_STARTED
    return _add_end(known, e.JobEnded(_last_sign(folder), status.FAILED, 1, reason))


def _add_end(known: Outcome, end: e.JobEnded) -> Examined:
    return Examined(fold([end], known), end)


def _last_sign(folder: RunFolder) -> float:
    """Return when the job's last event was written, in seconds since 1970."""
    try:
        return os.stat(folder.events).st_mtime
    except OSError:
        return time.time()


def _examine_driven(folder: RunFolder, known: Outcome) -> Examined:
    """Examine a pipeline or a sweep. Its steps go on without a driver."""
    is_driven = _is_looked_after(folder, known, _DRIVER_START_S)
    known.reason = explain_stop(folder) or known.reason
    return Examined(known, lacks_driver=not is_driven)


def _ask_engine(folder: RunFolder, known: Outcome, may_withdraw: bool) -> Examined:
    """Examine a job whose supervisor may be on another machine, or nowhere yet, or no more."""
    view = engine(known.engine).view_job(folder, may_withdraw=may_withdraw and is_writable(folder))
    if view is None or view.state == "runs":
        # It has its nodes, and its supervisor tells more; if it is held up, that is not the supervisor's to see.
        known.reason = (view.reason if view else "") or known.reason
        return Examined(known)
    if view.state == "gone":
        known = fold_events(folder)
        if known.is_final:
            return Examined(known)
        request = folder.read_json(folder.cancel)
        reason = view.reason
        if request is not None and (view.status == status.CANCELED or known.started is None):
            view = view._replace(status=status.CANCELED, exit_code=130)
            reason = f"canceled by {request.get('by', 'its user')}" + (
                "" if known.started else " before it started"
            )
        return _add_end(known, e.JobEnded(time.time(), view.status, view.exit_code, reason))
    if view.state == "unknown":
        known.reason = view.reason
    else:
        is_canceled = os.path.exists(folder.cancel)
        waiting = status.QUEUED if view.state == "waits" else status.STARTING
        known.status = status.CANCEL_REQUESTED if is_canceled else waiting
        known.reason = view.reason
    return Examined(known)


def explain_pruned(outcome: Outcome, parts: Collection[str]) -> str:
    """Return when the first of these parts of its run folder was pruned, as ``pruned on TIME``; empty if none was."""
    times = [when for part, when in outcome.pruned.items() if part in parts]
    return f"pruned on {utc(min(times))}" if times else ""


def is_writable(folder: RunFolder) -> bool:
    """Return whether events can be added to those of the job."""
    return os.access(folder.events, os.W_OK)


def explain_stop(folder: RunFolder) -> str:
    """Return why the supervisor or driver of a job does nothing; empty unless it was stopped on this machine."""
    who = folder.read_json(folder.supervisor)
    if not who or not process_identity.is_stopped(who):
        return ""
    pid = who["pid"]
    return f"process {pid}, which looks after it, was stopped (SIGSTOP); kill -CONT {pid} lets it go on"


def _is_looked_after(folder: RunFolder, known: Outcome, start_s: float) -> bool:
    """Return whether the job has its supervisor or driver, or may still get one."""
    has_lost_maker = folder.has_lost_maker()
    # Read last: a maker that is no more may have handed the job over since its file was read.
    who = folder.read_json(folder.supervisor)
    if who is None and not has_lost_maker:
        return time.time() - (known.created or 0.0) < start_s
    return process_identity.is_alive(who)
