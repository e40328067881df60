"""The jobs that a driver looks after, and those whose submission was cut off, because the driver at it was killed."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any

from drumline.contract import events as e
from drumline.contract import process_identity, status
from drumline.contract.errors import DrumlineError, EngineError, NotFoundError, describe_os_error
from drumline.contract.folder import RunFolder, load_plain
from drumline.contract.outcome import Outcome, fold
from drumline.contract.record import NamedTuple
from drumline.contract.secrets import list_names
from drumline.control.jobs import ending, lookup, recovery
from drumline.control.jobs.recovery import recover
from drumline.control.submission import run_folder, submitted_secrets
from drumline.engines.engine_table import engine, is_elsewhere
from drumline.supervisor.supervised_folder import SupervisedFolder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drumline.spec.jobs.job import Job


MOST_AT_ONCE = 32
"""Jobs of one driver that are submitted and have not ended: each costs a process that stands in line."""

_POLL_S = 1.0
_POLL_ELSEWHERE_S = 3.0
_POLL_SOON_S = 0.2
_POLL_NOW_S = 0.01
_NEW_JOB_S = 1.0
"""A job that was started just now has a supervisor soon, or has ended."""

_MOST_NAME = 255
_TRIES = 10


class End(NamedTuple):
    """The end of a pipeline or a sweep."""

    status: str
    exit_code: int
    reason: str


class RemovedError(DrumlineError):
    """The run folder of the pipeline or sweep was removed."""


class ChildJobs:
    """The steps of a pipeline or sweep, by the events of its folder."""

    def __init__(self, folder: RunFolder, wake: int) -> None:
        self.folder = folder
        self._own = SupervisedFolder(folder.path)
        self._wake = wake
        self._outcome = fold(folder.read_events())
        self._top = str((folder.read_json(folder.graph) or {}).get("top") or folder.name)
        self._pidfds: dict[str, int] = {}
        """Of the supervisors, or drivers, of steps under way; readable when those end."""

        self._next_look: dict[str, float] = {}
        self.canceled_by = ""
        """Who wanted the whole to end, as far as was seen."""

        self._elsewhere: set[str] = set()
        """Steps whose jobs are not this machine's."""

    @property
    def steps(self) -> dict[str, Any]:
        """Return the steps that were started, ended or not, by name: StepOutcomes."""
        return self._outcome.steps

    @property
    def status_before(self) -> str:
        """Return the status of the pipeline or sweep when this driver began."""
        return self._outcome.status

    @property
    def under_way(self) -> list[str]:
        return [name for name, step in self.steps.items() if not step.status]

    @property
    def has_room(self) -> bool:
        return len(self.under_way) < MOST_AT_ONCE

    def note(self, event: e.StepStarted | e.StepEnded) -> None:
        """Append the event, and count it. Raises OSError, RemovedError."""
        self._end_if_removed()
        self.folder.append(event)
        fold([event], self._outcome)

    # submitting

    def submit(self, step: str, job: Job, detail: dict[str, Any] | None = None) -> None:
        """
        Start the step's job, or go on where a driver before this one was killed at it: it runs once. The job's name is
        ``job.name``, else made of the whole's and the step's; another where that is taken.

        One that cannot be submitted has ended: Failed, with what is wrong.
        """
        wanted = job.name or f"{self.folder.name}-{step}"
        if len(wanted) > _MOST_NAME:
            digest = hashlib.sha256(wanted.encode()).hexdigest()[:12]
            wanted = f"{wanted[: _MOST_NAME - 13]}-{digest}"
        known = self.steps.get(step)
        if known is not None and (known.status or self.is_there(step)):
            return
        job.parent_job_name = self.folder.name
        job._top_job = self._top
        for _ in range(_TRIES):
            # Said before it is done: whoever comes next finds the job by this name, or starts it.
            job.name = self._free_name(wanted)
            self.note(e.StepStarted(time.time(), step, job.name, detail))
            problem = self._start(job)
            if not problem or not belongs_to_another(RunFolder.for_job(job.name), self.folder.name):
                break
        if problem:
            self.note(e.StepEnded(time.time(), step, status.FAILED, problem))

    def is_there(self, step: str) -> bool:
        """
        Return whether the job of a step that was started is there; a submission that was cut off is completed.

        If it is not there, its name may be another's.
        """
        name = self.steps[step].job
        return bool(name) and complete_submission(RunFolder.for_job(name), self.folder.name)

    def _start(self, job: Job) -> str:
        """Submit the job; return why that failed, or an empty text."""
        # Not needed by the guard, which the submitting command waits for.
        from drumline.control.submission.submit import submit

        try:
            # What is checked of a job was checked of all steps before the first began.
            # A fork has the secrets of all steps in its memory, and so has what it forks and leaves behind.
            start = None if submitted_secrets.given.get() else fork_supervisor
            submit(job, start=start, check=False)  # type: ignore[arg-type]
        except DrumlineError as error:
            return error.message
        except OSError as error:
            return f"it could not be submitted: {describe_os_error(error)}"
        return ""

    def _free_name(self, wanted: str) -> str:
        """Return a name that no other job has."""
        name, number = wanted, 1
        while os.path.lexists(RunFolder.for_job(name).path):
            number += 1
            end = f"-{number}"
            name = wanted[: _MOST_NAME - len(end)] + end
        return name

    # looking after

    def outcome_of(self, step: str) -> Outcome:
        """Recover the step's job and return its outcome: Failed if its run folder was removed."""
        try:
            return recover(lookup.folder_of(self.steps[step].job))
        except NotFoundError:
            gone = Outcome()
            gone.status, gone.reason, gone.exit_code = status.FAILED, "its run folder was removed", 1
            return gone

    def collect_ended(self) -> Iterator[tuple[str, Outcome]]:
        """Yield the steps that have ended since; the caller records that. Jobs are polled at intervals."""
        now = time.monotonic()
        for name in self.under_way:
            if self._is_quiet(name, now):
                continue
            outcome = self.outcome_of(name)
            # Another driver may have taken the place of one that ended.
            pidfd = self._pidfds.pop(name, None)
            if pidfd is not None:
                os.close(pidfd)
            if outcome.is_final:
                self._elsewhere.discard(name)
                yield name, outcome
                continue
            if outcome.engine not in ("", "local"):
                self._elsewhere.add(name)
            self._next_look[name] = now + (_POLL_ELSEWHERE_S if name in self._elsewhere else self._soon(name))

    def _soon(self, name: str) -> float:
        """Return the interval for a job that has no supervisor yet, or no longer."""
        is_new = time.time() - (self.steps[name].started or 0.0) < _NEW_JOB_S
        return _POLL_NOW_S if is_new else _POLL_SOON_S

    def _is_quiet(self, name: str, now: float) -> bool:
        """Return whether nothing can have happened to the job since it was last polled."""
        pidfd = self._pidfds.get(name)
        if pidfd is None:
            return self._next_look.get(name, 0.0) > now
        return not ending.wait_until_readable((pidfd,), 0.0)

    def wait(self, longest_s: float = _POLL_S) -> None:
        """Wait until a job's supervisor ends, this driver is woken, or the time is over."""
        for name in self.under_way:
            if name not in self._pidfds and name not in self._elsewhere:
                folder = RunFolder.for_job(self.steps[name].job)
                pidfd = process_identity.open_pidfd(folder.read_json(folder.supervisor))
                if pidfd is not None:
                    self._pidfds[name] = pidfd
                else:
                    longest_s = min(longest_s, self._soon(name))
        ending.wait_until_readable((self._wake, *self._pidfds.values()), longest_s)
        if ending.wait_until_readable((self._wake,), 0.0):
            os.read(self._wake, 4096)

    def cancel(self, step: str, by: str, *, at_once: bool = False) -> None:
        """Request the end of the step's job; may be called again."""
        with contextlib.suppress(DrumlineError, OSError):
            ending.cancel(self.steps[step].job, at_once=at_once, by=by)

    def pass_on_cancel(self) -> None:
        """Cancel the steps under way if the pipeline or sweep was canceled. Raises RemovedError."""
        self._end_if_removed()
        request = self.cancel_request()
        if request is None:
            return
        if not self.canceled_by:
            self.canceled_by = str(request.get("by") or "its user")
            if self.status_before != status.CANCEL_REQUESTED:
                self.folder.append(e.CancelRequested(time.time(), self.canceled_by))
        for name in self.under_way:
            self.cancel(name, self.canceled_by, at_once=bool(request.get("at_once")))

    def _end_if_removed(self) -> None:
        """Cancel the steps and raise RemovedError if the run folder was removed: steps are not listed by themselves."""
        if self._own.is_gone():
            for name in self.under_way:
                self.cancel(name, f"whoever removed the run folder of job {self.folder.name}", at_once=True)
            raise RemovedError("the run folder was removed")

    def cancel_request(self) -> dict[str, Any] | None:
        """Return the cancel request; None without one."""
        if not os.path.exists(self.folder.cancel):
            return None
        return self.folder.read_json(self.folder.cancel) or {}


def read_graph(folder: RunFolder) -> dict[str, Any]:
    """Read ``graph.json``. Raises DrumlineError for a damaged file."""
    try:
        data = json.loads(load_plain(folder.graph))
    except (OSError, ValueError, RecursionError) as error:
        raise DrumlineError(f"{folder.graph} cannot be read: {error}") from error
    if not isinstance(data, dict):
        raise DrumlineError(f"{folder.graph} is damaged")
    return data


def fork_supervisor(path: str, secrets: str = "") -> None:
    """
    Start the supervisor of that run folder as a fork of the driver, which is ours, has one thread, and has its modules
    loaded. It is forked twice: it has its own session and is not this process's child.

    ``secrets``: the job's, as ``contract.secrets`` passes them on.
    """
    # Not needed by the guard.
    from drumline.supervisor.main import supervise

    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    supervisor = os.fork()
    if supervisor:
        with contextlib.suppress(OSError):  # The supervisor says so.
            RunFolder(path).hand_over(supervisor)
        os._exit(0)
    code = 1
    try:
        code = supervise(path, secrets=secrets)
    finally:
        os._exit(code)


# submissions that were cut off


_MAKING_S = 1.0
"""More than it takes from the making of a run folder to its job.yml."""

_JOB_FILE_POLL_S = 0.02


def complete_submission(folder: RunFolder, parent: str | None) -> bool:
    """
    Return whether there is a job of ``parent``, or of nobody, in that folder, which is on its way then, or has ended.

    False: there was less than a job, which is gone now, or it is another's. Blocks for a moment.
    """
    if not folder.exists() and os.path.lexists(folder.path):
        _clear(folder, parent)
    if not folder.exists() or belongs_to_another(folder, parent):
        return False
    outcome = fold(folder.read_events())
    if outcome.is_final:
        # One that was written off before it had a supervisor never began.
        is_written_off = outcome.status == status.FAILED and not is_elsewhere(outcome.engine)
        return not is_written_off or bool(folder.read_json(folder.supervisor))
    if outcome.kind != "command":
        if not process_identity.is_alive(folder.read_json(folder.supervisor)):
            names = list_names(folder.read_json(folder.graph))
            recovery.restart_driver(folder, submitted_secrets.find_held(names))
    elif is_elsewhere(outcome.engine):
        _complete_elsewhere(folder, outcome)
    elif not os.path.exists(folder.supervisor):
        # The one that is perhaps on its way and this one: the first to come has it.
        folder.adopt()
        engine(outcome.engine).submit(folder, None, _find_secrets(folder))
    return True


def belongs_to_another(folder: RunFolder, parent: str | None) -> bool:
    """Return whether the folder holds something that is not a job of ``parent``."""
    return os.path.lexists(folder.path) and lookup.read_spec(folder).get("parent_job_name") != parent


def _clear(folder: RunFolder, parent: str | None) -> None:
    """Remove a run folder that is not a job yet, unless it becomes the job of another submission meanwhile."""
    deadline = time.monotonic() + _MAKING_S
    while not os.path.exists(folder.job) and time.monotonic() < deadline:
        time.sleep(_JOB_FILE_POLL_S)
    if not folder.exists() and (not os.path.exists(folder.job) or not belongs_to_another(folder, parent)):
        run_folder.remove_folder(folder)


def _complete_elsewhere(folder: RunFolder, outcome: Outcome) -> None:
    """Submit the job again if its engine does not know it. Of two, the first to start claims the run folder."""
    chosen = engine(outcome.engine)
    look = None if os.path.exists(folder.engine) else chosen.view_job(folder, may_withdraw=True)
    if look is None or look.state not in ("unknown", "gone"):
        return
    try:
        chosen.submit(folder, None, _find_secrets(folder))
    except EngineError as error:
        run_folder.write_off(folder, error.message)


def _find_secrets(folder: RunFolder) -> str:
    """Return the values of the job's secrets; without one of them none, which its supervisor then says."""
    names = (folder.read_json(folder.plan) or {}).get("secrets")
    return submitted_secrets.find_all_or_none(names) if names else ""
