"""The jobs that a driver looks after."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import select
import time
from typing import TYPE_CHECKING, Any

from drumline.contract import events as e
from drumline.contract import identity, status
from drumline.contract.errors import DrumlineError, NotFoundError
from drumline.contract.folder import RunFolder
from drumline.contract.outcome import Outcome, fold
from drumline.contract.record import NamedTuple
from drumline.control import cancel, jobs
from drumline.control.driver import cut_off
from drumline.control.driver.outputs import link_output, output_path
from drumline.supervisor.own_folder import OwnFolder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drumline.spec.job import Job

__all__ = ["MOST_AT_ONCE", "Children", "End", "link_output", "output_path", "read_graph"]

MOST_AT_ONCE = 32
"""Jobs of one driver that are submitted and have not ended: each costs a process that stands in line."""

_LOOK_S = 1.0
_LOOK_ELSEWHERE_S = 3.0
_LOOK_SOON_S = 0.2
_LOOK_NOW_S = 0.01
_NEW_S = 1.0
"""A job that was started just now has a supervisor soon, or has ended."""

_MOST_NAME = 255
_TRIES = 10


class End(NamedTuple):
    """How the whole ended."""

    status: str
    exit_code: int
    reason: str


class RemovedError(DrumlineError):
    """The run folder of the whole was removed: there is nothing left to write to, and nobody to tell."""


class Children:
    """Steps under way, as the events of the driver's folder have it."""

    def __init__(self, folder: RunFolder, wake: int) -> None:
        self.folder = folder
        self._own = OwnFolder(folder.path)
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
        """By name, those that were started, ended or not: StepOutcomes."""
        return self._outcome.steps

    @property
    def status_before(self) -> str:
        """Of the whole, as a driver before this one has left it."""
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
        wanted = job.name or self._name_for(step)
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
            if not problem or not cut_off.is_others(RunFolder.of(job.name), self.folder.name):
                break
        if problem:
            self.note(e.StepEnded(time.time(), step, status.FAILED, problem))

    def is_there(self, step: str) -> bool:
        """
        Of a step that was started: whether its job is, whose submission is completed where it was cut off. If not, its
        name may be another's.
        """
        name = self.steps[step].job
        return bool(name) and cut_off.completed(RunFolder.of(name), self.folder.name)

    def _start(self, job: Job) -> str:
        """Empty, or why it was not."""
        from drumline.control.driver.fork import fork_supervisor
        from drumline.control.submit import submit

        try:
            # What is checked of a job was checked of all steps before the first began.
            submit(job, start=fork_supervisor, check=False)  # type: ignore[arg-type]
        except DrumlineError as error:
            return error.message
        except OSError as error:
            return f"it could not be submitted: {error.strerror or error}: {error.filename}"
        return ""

    def _name_for(self, step: str) -> str:
        name = f"{self.folder.name}-{step}"
        if len(name) <= _MOST_NAME:
            return name
        digest = hashlib.sha256(name.encode()).hexdigest()[:12]
        return f"{name[: _MOST_NAME - 13]}-{digest}"

    def _free_name(self, wanted: str) -> str:
        """Not that of a job which somebody else submitted."""
        name, number = wanted, 1
        while os.path.lexists(RunFolder.of(name).path):
            number += 1
            end = f"-{number}"
            name = wanted[: _MOST_NAME - len(end)] + end
        return name

    # looking after

    def outcome_of(self, step: str) -> Outcome:
        """Failed, of one whose run folder was removed."""
        try:
            return jobs.outcome_of(jobs.folder_of(self.steps[step].job))
        except NotFoundError:
            gone = Outcome()
            gone.status, gone.reason, gone.exit_code = status.FAILED, "its run folder was removed", 1
            return gone

    def ended(self) -> Iterator[tuple[str, Outcome]]:
        """Those under way that have ended since; whoever asks notes it. Asked often, it looks seldom."""
        now = time.monotonic()
        for name in self.under_way:
            if self._is_quiet(name, now):
                continue
            outcome = self.outcome_of(name)
            # Another driver may have taken the place of one that ended.
            self._forget(name)
            if outcome.is_final:
                self._elsewhere.discard(name)
                yield name, outcome
                continue
            if outcome.engine not in ("", "local"):
                self._elsewhere.add(name)
            self._next_look[name] = now + (_LOOK_ELSEWHERE_S if name in self._elsewhere else self._soon(name))

    def _soon(self, name: str) -> float:
        """For one that has no supervisor yet, or none any more."""
        is_new = time.time() - (self.steps[name].started or 0.0) < _NEW_S
        return _LOOK_NOW_S if is_new else _LOOK_SOON_S

    def _is_quiet(self, name: str, now: float) -> bool:
        """Whether nothing can have happened to it that is worth a look."""
        pidfd = self._pidfds.get(name)
        if pidfd is None:
            return self._next_look.get(name, 0.0) > now
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        return not poll.poll(0)

    def _forget(self, name: str) -> None:
        pidfd = self._pidfds.pop(name, None)
        if pidfd is not None:
            os.close(pidfd)

    def wait(self, longest_s: float = _LOOK_S) -> None:
        """Until a job's supervisor ends, somebody wakes the driver, or so many seconds have gone."""
        for name in self.under_way:
            if name not in self._pidfds and name not in self._elsewhere:
                folder = RunFolder.of(self.steps[name].job)
                pidfd = identity.open_pidfd(folder.read_json(folder.supervisor))
                if pidfd is not None:
                    self._pidfds[name] = pidfd
                else:
                    longest_s = min(longest_s, self._soon(name))
        poll = select.poll()
        for descriptor in (self._wake, *self._pidfds.values()):
            poll.register(descriptor, select.POLLIN)
        ready = poll.poll(max(0.0, longest_s) * 1000)
        if any(descriptor == self._wake for descriptor, _ in ready):
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake, 4096)

    def cancel(self, step: str, by: str, *, at_once: bool = False) -> None:
        """Ask for the end of its job; again is no error."""
        with contextlib.suppress(DrumlineError, OSError):
            cancel.cancel(self.steps[step].job, at_once=at_once, by=by)

    def pass_on_cancel(self) -> None:
        """Where somebody wants the whole to end: ask all that are under way to. Raises RemovedError."""
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
        """Nobody could see or end the steps any more: they are not listed by themselves."""
        if self._own.is_gone():
            for name in self.under_way:
                self.cancel(name, f"whoever removed the run folder of job {self.folder.name}", at_once=True)
            raise RemovedError("the run folder was removed")

    def cancel_request(self) -> dict[str, Any] | None:
        """What somebody left who wants the whole to end."""
        if not os.path.exists(self.folder.cancel):
            return None
        return self.folder.read_json(self.folder.cancel) or {}


def read_graph(folder: RunFolder) -> dict[str, Any]:
    """Raises DrumlineError for a file that was damaged."""
    try:
        with open(folder.graph, encoding="utf-8") as file:
            data = json.load(file)
    except (OSError, ValueError, RecursionError) as error:
        raise DrumlineError(f"{folder.graph} cannot be read: {error}") from error
    if not isinstance(data, dict):
        raise DrumlineError(f"{folder.graph} is damaged")
    return data
