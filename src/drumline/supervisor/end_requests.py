"""Requests to end the job: a file in its run folder, a signal to its supervisor, or the removal of the folder."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from drumline.engines.base import TIME_LIMIT
from drumline.supervisor.deciding.happenings import Canceled

if TYPE_CHECKING:
    from drumline.engines.base import Preemption, SignalMeaning
    from drumline.supervisor.supervised_folder import SupervisedFolder


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
