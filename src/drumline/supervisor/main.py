"""
The life of a supervisor: wait for nodes, put everything in place, run the ranks, leave nothing, write the end.

On this machine it is nobody's child and in a session of its own: the command that submitted the job may go away.
As a step of somebody else's batch job it may be killed with its nodes and started again with others, on the same run
folder; it then goes on where the events end.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from typing import TYPE_CHECKING

from drumline.contract import events as e
from drumline.contract import identity, status
from drumline.contract.errors import DrumlineError
from drumline.contract.folder import WORKSPACE, private_folder, write_once
from drumline.contract.outcome import fold
from drumline.contract.plan import Plan
from drumline.contract.user import user
from drumline.engines.table import engine
from drumline.node import descendants, kernel, mounts
from drumline.supervisor import policy as p
from drumline.supervisor.attempts import Attempts, left_in
from drumline.supervisor.clocks import wall_time
from drumline.supervisor.loop import Loop
from drumline.supervisor.own_folder import OwnFolder
from drumline.supervisor.services import Services
from drumline.tracking import mlflow_files, runs

_RESERVE_BYTES = 4096

if TYPE_CHECKING:
    from collections.abc import Callable

    from drumline.engines.base import Nodes


_LEFT = p.Finish("", 0, "")
"""Of a supervisor that another one follows, with other nodes."""

_NOT_OURS_CODE = 3


def be_ready() -> None:
    """Import what a job on this machine will need, while there is no job yet."""
    import ctypes  # noqa: F401
    import pwd  # noqa: F401
    import resource  # noqa: F401
    import shutil  # noqa: F401

    import drumline.engines.local.engine
    import drumline.engines.local.nodes  # noqa: F401


def supervise(path: str, *, batch: bool = False) -> int:
    """
    Run the job of that run folder to its end; the exit code of this process. Never raises.

    ``batch``: this process is the batch step of an engine, ends with the job's exit code, and may be started again.
    """
    try:
        folder = OwnFolder(path)
    except OSError:
        return 1  # It was removed before it was begun.
    try:
        _stand_alone(folder, batch=batch)
        kernel.set_name("drumline-job")
        kernel.adopt_orphans()
        wake = _readable_on_signal(batch=batch)
        outcome = fold(folder.read_events())
        if outcome.is_final:
            return 0  # So late that somebody took it for dead, and wrote so: what is written stays.
        if batch:
            other = engine(outcome.engine).claim(folder)
            if other:
                _say(other)
                return _NOT_OURS_CODE
        if not _take(folder, batch=batch):
            return 0  # Whoever submitted the job was cut off, and it was started once more.
        folder.write(folder.reserve, " " * _RESERVE_BYTES)
        end = _run(folder, wake)
        if end is _LEFT:
            return 0
    except DrumlineError as error:
        end = p.Finish(status.FAILED, 1, error.message)
    except BaseException as error:  # noqa: BLE001 - the top of a process: nothing above would say it
        _say_traceback()
        log = os.path.join(folder.system_logs, "supervisor.log")
        end = p.Finish(status.FAILED, 1, f"the supervisor failed ({error!r}); see {log}")
    if batch and folder.read_json(folder.supervisor) not in (None, identity.of(os.getpid())):
        _say("another supervisor has this job by now: its end is that one's to write")
        return _NOT_OURS_CODE
    _write_end(folder, end)
    return end.exit_code if batch else 0


def _take(folder: OwnFolder, *, batch: bool) -> bool:
    """Write down who looks after the job; False where another does. In a batch job the next one takes its place."""
    me = json.dumps(identity.of(os.getpid()))
    if batch:
        folder.write(folder.supervisor, me)
        return True
    try:
        write_once(folder.supervisor, me)
    except FileExistsError:
        return False
    return True


def _write_end(folder: OwnFolder, end: p.Finish) -> None:
    """The one event that must find room: what was reserved for it is given up first."""
    with contextlib.suppress(OSError):
        os.unlink(folder.reserve)
    event = e.JobEnded(wall_time(), end.status, end.exit_code, end.reason, end.rank, end.node, end.verdict)
    try:
        folder.append(event)
    except OSError as error:
        _say(f"could not record {event}: {error}")


def _say(text: str) -> None:
    """To the supervisor's log, if there is room: that is on the same disk as everything else."""
    with contextlib.suppress(OSError, ValueError):
        print(text, file=sys.stderr, flush=True)


def _say_traceback() -> None:
    import traceback

    _say(traceback.format_exc())


def _run(folder: OwnFolder, wake: int) -> p.Finish:
    plan = Plan.read(folder.plan)
    # What the ranks start finds the job's own workspace, whatever that of our surroundings was.
    os.environ.pop(WORKSPACE, None)
    if plan.workspace:
        os.environ[WORKSPACE] = plan.workspace
    nodes = engine(plan.engine).nodes(plan, folder)
    try:
        return _wait(nodes, folder, wake, "before it started") or _run_on(nodes, folder, plan, wake)
    finally:
        # What a killed agent left was adopted by this process; it goes before the cores are anybody else's.
        _end_all(folder)
        _quietly(nodes.release)


def _end_all(folder: OwnFolder) -> None:
    """What is below this process. What is mounted goes first, since who would unmount it is ended as well."""
    mounts.clear(folder.path)
    descendants.end_all(0.0)
    mounts.clear(folder.path)


def _wait(nodes: Nodes, folder: OwnFolder, wake: int, when: str) -> p.Finish | None:
    """Until the nodes are there: None. Else how the job ended."""
    granted = nodes.wait(
        lambda reason: folder.append(e.JobWaiting(wall_time(), reason)),
        lambda: _cancel_request(folder) is not None,
        wake,
    )
    request = _cancel_request(folder)
    if request is None and granted:
        return None
    by = request.by if request else "its supervisor"
    folder.append(e.CancelRequested(wall_time(), by))
    return p.Finish(status.CANCELED, p.CANCELED_CODE, f"canceled by {by} {when}")


def _run_on(nodes: Nodes, folder: OwnFolder, plan: Plan, wake: int) -> p.Finish:
    past = Past(folder)
    over = _kept_end(folder) if plan.uploads else None
    if over:
        # The supervisor before this one was killed while it wrote outputs to their places.
        return _conclude(folder, _tracked(folder, plan), wake, over)
    canceled = _prepare(folder, plan, wake, past)
    if canceled:
        return canceled
    if past.was_cut_off:
        reason = f"its nodes were taken away by {plan.engine.capitalize()} before it could say more"
        cut_off = p.Finish(status.FAILED, p.PREEMPTED_CODE, reason, kind="preemption")
        _note_attempt(folder, plan, len(past.attempts), cut_off, at=past.last_sign(plan))
        past = Past(folder)
    folder.append(e.JobStarting(wall_time()))
    plan = _tracked(folder, plan)
    end = _attempt(nodes, folder, plan, wake, past)
    if end is _LEFT:
        return end
    if plan.uploads:
        _quietly(lambda: folder.write(folder.ended, json.dumps(end._asdict())))
    return _conclude(folder, plan, wake, end)


def _kept_end(folder: OwnFolder) -> p.Finish | None:
    """How the last attempt ended, where there is to be no other."""
    try:
        end = p.Finish(**(folder.read_json(folder.ended) or {}))
    except TypeError:
        return None
    return end if end.status in status.TERMINAL else None


def _conclude(folder: OwnFolder, plan: Plan, wake: int, end: p.Finish) -> p.Finish:
    """After the last attempt; how the job ended with that."""
    if plan.uploads:
        end = _upload(folder, plan, wake, end)
    _quietly(lambda: runs.end(folder, plan, end.status, lambda why: _warn_of_tracking(folder, why)))
    if end.status == status.COMPLETED and plan.registers:
        from drumline.supervisor import registration

        _quietly(lambda: registration.register(folder, plan.registers))
    return end


def _tracked(folder: OwnFolder, plan: Plan) -> Plan:
    """With the variables of its run, which is there from here on."""
    tracked = [plan]
    _quietly(
        lambda: tracked.append(runs.begin(folder, plan, user(), lambda why: _warn_of_tracking(folder, why)))
    )
    return tracked[-1]


def _warn_of_tracking(folder: OwnFolder, why: str) -> None:
    folder.append(e.ServiceStarted(wall_time(), runs.NAME, runs.NAME, error=why))


def _prepare(folder: OwnFolder, plan: Plan, wake: int, past: Past) -> p.Finish | None:
    """Code, data and environment in place; how the job ended where it was canceled meanwhile. Raises NodeError."""
    in_place = plan.cwd == folder.code or plan.copies or plan.folders
    helped = bool(plan.fetches) or plan.build is not None
    if past.has_started and helped:
        from drumline.supervisor import preparation

        # Between two lives of this job the cache may have been emptied.
        helped = preparation.is_needed(plan)
    if not helped and (past.has_started or not in_place):
        return None
    folder.append(e.JobPreparing(wall_time()))
    helpers = None
    if helped:
        from drumline.supervisor import preparation

        helpers = preparation.begin(folder, plan)
    try:
        if in_place and not past.has_started:
            from drumline.staging import workplace

            if past.has_prepared:
                workplace.clear(folder, plan)
            workplace.prepare(folder, plan)
        if helpers is None or helpers.wait(lambda: _cancel_request(folder) is not None, wake):
            return None
    finally:
        if helpers is not None:
            helpers.end()
    request = _cancel_request(folder)
    by = request.by if request else "its user"
    folder.append(e.CancelRequested(wall_time(), by))
    return p.Finish(status.CANCELED, p.CANCELED_CODE, f"canceled by {by} before it started")


def _upload(folder: OwnFolder, plan: Plan, wake: int, end: p.Finish) -> p.Finish:
    """Its outputs where they are to be; how the job ended with that."""
    from drumline.supervisor import preparation

    is_complete, was_canceled = end.status == status.COMPLETED, end.status == status.CANCELED
    if not is_complete and not any(one.always for one in plan.uploads):
        return end
    folder.append(e.JobFinalizing(wall_time()))

    def gives_up() -> bool:
        request = _cancel_request(folder)
        return request is not None and (request.at_once or not was_canceled)

    try:
        limit_s = plan.grace_s if was_canceled else None
        if preparation.upload(
            folder, plan, always_only=not is_complete, canceled=gives_up, wake=wake, limit_s=limit_s
        ):
            return end
    except (DrumlineError, OSError) as error:
        if is_complete:
            return p.Finish(status.FAILED, 1, getattr(error, "message", "") or str(error))
        return end._replace(reason=f"{end.reason}; {getattr(error, 'message', error)}")
    what = "its outputs were not written to their places"
    request = _cancel_request(folder)
    if is_complete and request is not None:
        folder.append(e.CancelRequested(wall_time(), request.by))
        return p.Finish(status.CANCELED, p.CANCELED_CODE, f"canceled by {request.by}; {what}")
    return end._replace(reason=f"{end.reason}; {what}")


def _attempt(nodes: Nodes, folder: OwnFolder, plan: Plan, wake: int, past: Past) -> p.Finish:
    """One attempt after the other, while that can help."""
    attempts = Attempts(plan.max_restarts, plan.restart_on)
    attempts.go_on_after(past.attempts)
    left_s = None if plan.timeout_s is None else max(0.0, plan.timeout_s - past.ran_s)
    beside = Services(folder, plan)
    places = [folder.outputs, *plan.folders, *_quietly_listed(lambda: mlflow_files.metrics_of(plan))]
    while True:
        number = attempts.number
        counts = bool(plan.max_restarts) or not nodes.shares_machine
        before = left_in(places) if counts else frozenset()
        _quietly(beside.start)
        unmounted = _mount(folder, plan)
        if unmounted:
            return unmounted
        loop = Loop(
            folder,
            plan,
            nodes,
            wake,
            lambda: _cancel_request(folder),
            attempt=number,
            timeout_s=left_s,
            signals=_notices,
        )
        end = loop.run()
        if left_s is not None and loop.ranks_started is not None:
            left_s = max(0.0, left_s - (time.monotonic() - loop.ranks_started))
        progressed = counts and left_in(places) != before
        again = end
        if end.kind == "node" and nodes.replaces_lost and loop.ranks_started is not None:
            decision = attempts.with_other_nodes(end, progressed=progressed)
            again = end._replace(kind="node preemption")
        else:
            decision = attempts.after(end, progressed=progressed)
        if not decision.again:
            return decision.end
        request = _cancel_request(folder)
        if request is not None:
            return p.Finish(status.CANCELED, p.CANCELED_CODE, f"canceled by {request.by}")
        # What a killed agent left was adopted by this process.
        _end_all(folder)
        where = nodes.back_in_line(end.kind, progressed=progressed)
        if where not in ("here", "wait", "leave"):
            return end._replace(reason=f"{end.reason}; {where}")
        try:
            canceled = _prepare_next(
                nodes, folder, plan, number, again, wake, where, progressed=progressed if counts else None
            )
        except OSError as error:
            # Such as a full disk. Nothing of the next attempt has begun.
            why = f"it could not be started again: {error.strerror or error}"
            return end._replace(reason=f"{end.reason}; {why}")
        if canceled:
            return canceled


def _mount(folder: OwnFolder, plan: Plan) -> p.Finish | None:
    """Inputs that are read as they are needed; how the job ended where one could not be mounted."""
    if not plan.fetches:
        return None
    from drumline.supervisor.mounts import Mounts

    try:
        Mounts(folder, plan).begin(lambda: _cancel_request(folder) is not None)
    except (DrumlineError, OSError) as error:
        return p.Finish(status.FAILED, 1, getattr(error, "message", "") or str(error))
    return None


def _prepare_next(
    nodes: Nodes,
    folder: OwnFolder,
    plan: Plan,
    number: int,
    end: p.Finish,
    wake: int,
    where: str,
    *,
    progressed: bool | None,
) -> p.Finish | None:
    """
    After an attempt; how the job ended where there is no other after all. ``where`` as of Nodes.back_in_line. Raises
    OSError.
    """
    _note_attempt(folder, plan, number, end, progressed=progressed)
    if where == "leave":
        folder.append(e.JobWaiting(wall_time(), f"{plan.engine.capitalize()} starts it again"))
        return _LEFT
    if where == "wait":
        # Others in line go first. What one node had is still this job's, for the one that replaces it.
        _quietly(nodes.release)
        canceled = _wait(nodes, folder, wake, "after it was preempted")
        if canceled:
            return canceled
    folder.append(e.JobStarting(wall_time()))
    return None


def _note_attempt(
    folder: OwnFolder,
    plan: Plan,
    number: int,
    end: p.Finish,
    *,
    at: float | None = None,
    progressed: bool | None = None,
) -> None:
    """``at``: when it ended, in seconds since 1970; None: now. Raises OSError."""
    when = wall_time() if at is None else at
    how = (end.exit_code, end.reason, end.rank, end.node, end.verdict, end.kind)
    folder.append(e.AttemptEnded(when, number, *how, progressed))
    _put_logs_aside(folder, plan, number)


class Past:
    """What a supervisor before this one has done, by its events."""

    def __init__(self, folder: OwnFolder) -> None:
        self.attempts: list[e.AttemptEnded] = []
        self.has_prepared = self.has_started = False
        self.was_cut_off = False
        """Whether an attempt had begun, of whose end nothing is known."""

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
                self.has_started = self.was_cut_off = True
            elif isinstance(event, e.RankStarted):
                began = began or event.time
            elif isinstance(event, e.AttemptEnded):
                self.attempts.append(event)
                self.ran_s += max(0.0, event.time - began) if began else 0.0
                self.was_cut_off, began = False, None

    def last_sign(self, plan: Plan) -> float:
        """When something was last heard of the job, by its events or its ranks' logs, in seconds since 1970."""
        times = [self._last]
        for task in plan.ranks:
            with contextlib.suppress(OSError):
                times.append(os.stat(os.path.join(self._folder.path, task.log)).st_mtime)
        return max(times)


def _put_logs_aside(folder: OwnFolder, plan: Plan, attempt: int) -> None:
    """The next attempt has logs of its own, at the same places."""
    for task in plan.ranks:
        log = os.path.join(folder.path, task.log)
        aside = os.path.join(os.path.dirname(log), f"attempt-{attempt}")
        with contextlib.suppress(FileNotFoundError):
            private_folder(aside)
            os.rename(log, os.path.join(aside, os.path.basename(log)))


def _quietly_listed(step: Callable[[], str]) -> list[str]:
    try:
        found = step()
    except Exception:  # noqa: BLE001 - as in _quietly
        _say_traceback()
        return []
    return [found] if found else []


def _quietly(step: Callable[[], None]) -> None:
    """What is not worth a job: its metrics' run, its place in line. Ranks may have damaged any file meanwhile."""
    try:
        step()
    except Exception:  # noqa: BLE001 - see above; it is said in the log
        _say_traceback()


_signaled: list[int] = []
"""By a plain SIGTERM, where this process is its own master."""

_notices: list[str] = []
"""In a batch step: what came, for its engine to say what it means."""


def _cancel_request(folder: OwnFolder) -> p.Canceled | None:
    """
    By the file that ``drumline job cancel`` writes, by a plain SIGTERM to this process, or by removing the run folder:
    then nobody can see or end the job any more.
    """
    if folder.is_gone():
        return p.Canceled("whoever removed its run folder", at_once=True)
    if os.path.exists(folder.cancel):
        request = folder.read_json(folder.cancel) or {}
        return p.Canceled(str(request.get("by", "its user")), bool(request.get("at_once")))
    if _signaled:
        return p.Canceled(f"a {signal.Signals(_signaled[0]).name} to its supervisor", at_once=False)
    return None


def _readable_on_signal(*, batch: bool = False) -> int:
    """A descriptor that becomes readable when this process is asked to end, or to look for a request."""
    from drumline.engines.base import TIME_LIMIT

    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    if batch:
        signal.signal(signal.SIGTERM, lambda *_: _notices.append("a SIGTERM to its supervisor"))
        signal.signal(signal.SIGUSR2, lambda *_: _notices.append(TIME_LIMIT))
    else:
        signal.signal(signal.SIGTERM, lambda number, _: _signaled.append(number))
    signal.signal(signal.SIGUSR1, lambda *_: None)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # Whoever started us may have blocked signals for the moment.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    return reader


def _stand_alone(folder: OwnFolder, *, batch: bool = False) -> None:
    """A session of its own, and output to its log."""
    if not batch:  # What ends a batch step may know it by its session.
        os.setsid()
    kernel.stand_alone(os.path.join(folder.system_logs, "supervisor.log"))
