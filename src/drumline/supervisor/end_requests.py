"""Requests to end the job: a file in its run folder, a signal to its supervisor, or the removal of the folder."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from drumline.engines.base import TIME_LIMIT
from drumline.supervisor.deciding.happenings import Canceled

if TYPE_CHECKING:
    from drumline.supervisor.supervised_folder import SupervisedFolder


class EndRequests:
    """
    Handles the signals of this process from now on. ``batch``: it is an engine's batch step, whose signals the engine
    has to explain.
    """

    def __init__(self, folder: SupervisedFolder, *, batch: bool = False) -> None:
        self._folder = folder
        self._signals: list[int] = []
        """Each plain SIGTERM, where this process is no batch step."""

        self.notices: list[str] = []
        """In a batch step: a text for each signal, in the order in which they came."""

        self.wake, self._writer = os.pipe()
        """Becomes readable with every signal, of which SIGUSR1 says that there is a request to read."""

        os.set_blocking(self._writer, False)
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        if batch:
            signal.signal(signal.SIGTERM, lambda *_: self.notices.append("a SIGTERM to its supervisor"))
            signal.signal(signal.SIGUSR2, lambda *_: self.notices.append(TIME_LIMIT))
        else:
            signal.signal(signal.SIGTERM, lambda number, _: self._signals.append(number))
        signal.signal(signal.SIGUSR1, lambda *_: None)
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        # The process that started this one may have blocked signals for the moment.
        signal.pthread_sigmask(signal.SIG_SETMASK, ())

    def read(self) -> Canceled | None:
        """Return the request that there is; without a run folder nobody can see or end the job any more."""
        if self._folder.is_gone():
            return Canceled("whoever removed its run folder", at_once=True)
        if os.path.exists(self._folder.cancel):
            request = self._folder.read_json(self._folder.cancel) or {}
            return Canceled(str(request.get("by", "its user")), bool(request.get("at_once")))
        if self._signals:
            return Canceled(f"a {signal.Signals(self._signals[0]).name} to its supervisor", at_once=False)
        return None

    def is_there(self) -> bool:
        return self.read() is not None
