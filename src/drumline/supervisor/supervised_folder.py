"""
The run folder in the hands of its supervisor, requests to end the job that come there or as signals, and the log.

People may remove the folder, or give its name to another job, at any time.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections import deque
from typing import TYPE_CHECKING

from drumline.contract import events as e
from drumline.contract import process_identity
from drumline.contract.folder import RunFolder
from drumline.engines.base import TIME_LIMIT
from drumline.supervisor.deciding.happenings import Canceled

if TYPE_CHECKING:
    from collections.abc import Callable

    from drumline.engines.base import Preemption, SignalMeaning
    from drumline.supervisor.notifying.notices import JobNotices


_MOST_LOST = 1000


class SupervisedFolder(RunFolder):
    """A run folder that is written only while it is still this supervisor's. Raises OSError where there is none."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._inode = os.stat(path).st_ino
        self._me = process_identity.identify_process(os.getpid())
        self.notices: JobNotices | None = None
        """Who is told of some events."""

        self._lost: deque[e.Event] = deque(maxlen=_MOST_LOST)
        """Events that found no room, in their order."""

    def is_gone(self) -> bool:
        """Return whether it was removed or replaced; False while that cannot be seen."""
        try:
            inode = os.stat(self.path).st_ino
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError:
            return False
        # Some file systems, such as sshfs, give a folder a new number now and then.
        if inode != self._inode and self.read_json(self.supervisor) == self._me:
            self._inode = inode
        return inode != self._inode

    def append(self, event: e.Event) -> None:
        """
        Append an event. Raises OSError where the folder was removed, or there is no room for the end of the job or of
        an attempt; a job goes on without every other event, which the next one that finds room brings along. The end of
        the job does not wait for them.
        """
        self._check_not_gone()
        try:
            if not isinstance(event, e.JobEnded):
                self.append_lost()
            super().append(event)
        except OSError as error:
            if isinstance(event, (e.AttemptEnded, e.JobEnded)):
                raise
            self._lost.append(event)
            print(f"could not record {event}: {error}", file=sys.stderr)
        if self.notices is not None:
            self.notices.take(event)

    def append_lost(self) -> None:
        """Append the events that found no room. Raises OSError where there is still none, or no folder."""
        while self._lost:
            self._check_not_gone()
            super().append(self._lost[0])
            self._lost.popleft()

    def write(self, path: str, text: str) -> None:
        self._check_not_gone()
        super().write(path, text)

    def _check_not_gone(self) -> None:
        if self.is_gone():
            raise FileNotFoundError(errno.ENOENT, "the run folder was removed", self.path)


# Requests to end the job: a file in its run folder, a signal to its supervisor, or the removal of the folder.


class EndRequests:
    """
    Handles the signals of this process from now on. ``batch``: it is an engine's batch step, whose signals the engine
    has to explain (``explain_by``).
    """

    def __init__(self, folder: SupervisedFolder, *, batch: bool = False) -> None:
        self._folder = folder
        self._signals: list[int] = []
        """Each plain SIGTERM, where this process is no batch step."""

        self._notices: list[str] = []
        """In a batch step: a text for each signal that was not explained yet, in the order in which they came."""

        self._preemption: Preemption | None = None
        self._canceled: Canceled | None = None
        """By a signal that the engine has explained so."""

        self.meanings: list[SignalMeaning] = []
        """Of signals to this process, for the attempt that takes them out."""

        self.wake, self._writer = os.pipe()
        """Becomes readable with every signal, of which SIGUSR1 says that there is a request to read."""

        os.set_blocking(self._writer, False)
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        if batch:
            signal.signal(signal.SIGTERM, lambda *_: self._notices.append("a SIGTERM to its supervisor"))
            signal.signal(signal.SIGUSR2, lambda *_: self._notices.append(TIME_LIMIT))
        else:
            signal.signal(signal.SIGTERM, lambda number, _: self._signals.append(number))
        signal.signal(signal.SIGUSR1, lambda *_: None)
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        # The process that started this one may have blocked signals for the moment.
        signal.pthread_sigmask(signal.SIG_SETMASK, ())

    def explain_by(self, preemption: Preemption) -> None:
        """Have signals explained from now on, those that have come included."""
        self._preemption = preemption

    def explain(self, node: int | None, by: str) -> SignalMeaning:
        """Explain a signal to the agent of a node, or to this process (None). A cancel is a request that stays."""
        assert self._preemption is not None, "agents come after the engine's nodes"
        meaning = self._preemption.explain_signal(node, by)
        if meaning.kind == "cancel":
            self._canceled = Canceled(meaning.by, at_once=False, grace_s=meaning.grace_s)
        return meaning

    def read(self) -> Canceled | None:
        """Return the request that there is; without a run folder nobody can see or end the job any more."""
        while self._notices and self._preemption is not None:
            self.meanings.append(self.explain(None, self._notices.pop(0)))
        if self._folder.is_gone():
            return Canceled("whoever removed its run folder", at_once=True)
        if os.path.exists(self._folder.cancel):
            request = self._folder.read_json(self._folder.cancel) or {}
            return Canceled(str(request.get("by", "its user")), bool(request.get("at_once")))
        if self._signals:
            return Canceled(f"a {signal.Signals(self._signals[0]).name} to its supervisor", at_once=False)
        return self._canceled

    def is_there(self) -> bool:
        return self.read() is not None


# The supervisor's log, and steps whose failure goes there and nowhere else.


def log(text: str) -> None:
    """Write to the log, which ``kernel.append_output`` has made."""
    print(text, file=sys.stderr, flush=True)


def log_traceback() -> None:
    """Write the traceback of the exception that is being handled."""
    import traceback

    log(traceback.format_exc())


def run_quietly(step: Callable[[], object]) -> None:
    """Run a step that is not worth a job, such as leaving the queue. Ranks may have damaged any file meanwhile."""
    try:
        step()
    except Exception:  # noqa: BLE001 - see above; the log has it
        log_traceback()
