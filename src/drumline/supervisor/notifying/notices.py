"""The notices about a job: the events that are told, to whom, and the start of the process that does so."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from typing import TYPE_CHECKING, Any

from drumline.contract import events as e
from drumline.contract import status
from drumline.linux import kernel

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from drumline.contract.folder import RunFolder

LIMIT_S = 20.0
"""For all receivers of one notice, with every attempt to reach them."""

URL_PREFIX = "notify:"
"""Before the name of a receiver, whose address is passed on like a secret."""

_MOST_REASON = 1000
_LEAST_SECRET = 4
"""Characters of a value that is masked; a shorter one is in any text."""


class JobNotices:
    """
    The notices of one job. ``receivers``: as in ``Plan.notify``. ``secrets``: the addresses of receivers by their names
    after ``URL_PREFIX``, and values that must be in no text.
    """

    def __init__(
        self, folder: RunFolder, receivers: Sequence[Mapping[str, Any]], secrets: Mapping[str, str]
    ) -> None:
        self._folder = folder
        self._receivers = receivers
        self._secrets = secrets
        self._ends: list[int] = []
        """Pipes, each at its end when a process that sends has ended."""

    def take(self, event: e.Event) -> None:
        """Tell those who want to know of such an event. Returns at once. Never raises."""
        kinds = kinds_of(event)
        wanted = [one for one in self._receivers if kinds.intersection(one["on"])]
        if not wanted:
            return
        try:
            receivers = [
                {**receiver, "url": self._secrets.get(URL_PREFIX + str(receiver["name"]), "")}
                for receiver in wanted
            ]
            self._start({**self._describe(event, kinds), "receivers": receivers})
        except OSError as error:
            print(f"could not notify: {error}", file=sys.stderr, flush=True)

    def wait(self) -> None:
        """Wait for what is being sent, where this process's end would be that of the senders."""
        for end in self._ends:
            # Not select.select, which takes no descriptor above 1023.
            poller = select.poll()
            poller.register(end, select.POLLIN)
            poller.poll(LIMIT_S * 1000)
            os.close(end)
        self._ends.clear()

    def _describe(self, event: e.Event, kinds: set[str]) -> dict[str, Any]:
        ended = event if isinstance(event, e.JobEnded) else None
        reason = str(getattr(event, "reason", ""))
        return {
            "folder": self._folder.path,
            "job": self._folder.name,
            "event": "failure" if "failure" in kinds else next(iter(kinds)),
            "status": ended.status if ended else status.RUNNING,
            "exit_code": ended.exit_code if ended else None,
            "reason": self._mask(reason)[:_MOST_REASON],
            "host": os.uname().nodename,
            "time": event.time,
        }

    def _mask(self, text: str) -> str:
        for value in sorted(self._secrets.values(), key=len, reverse=True):
            if len(value) >= _LEAST_SECRET:
                text = text.replace(value, "***")
        return "".join(one if one.isprintable() or one == "\n" else " " for one in text)

    def _start(self, notice: Mapping[str, Any]) -> None:
        """
        Start the process that sends. It outlives this one, and what ends everything below this one. Raises OSError.
        """
        reader, writer = os.pipe()
        end, held = os.pipe()
        # Else this process would adopt it, and end it with the job.
        kernel.adopt_orphans(wanted=False)
        try:
            child = os.fork()
            if child == 0:
                self._become_sender(reader, held)
            os.waitpid(child, 0)
        finally:
            kernel.adopt_orphans()
            os.close(reader)
            os.close(held)
        self._ends.append(end)
        with os.fdopen(writer, "wb") as file:
            file.write(json.dumps(notice).encode())

    def _become_sender(self, reader: int, held: int) -> None:
        """Become the process that sends notices; never returns."""
        try:
            os.setsid()
            if os.fork():
                os._exit(0)
            signal.set_wakeup_fd(-1)
            kernel.become_ordinary()
            log = os.path.join(self._folder.system_logs, "notifications.log")
            output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
            for target, source in ((0, reader), (1, output), (2, output)):
                os.dup2(source, target)
            os.set_inheritable(held, True)
            program = [sys.executable, "-P", "-m", "drumline.supervisor.notifying"]
            os.execv(program[0], program)  # noqa: S606 - our own module
        finally:
            os._exit(1)


def kinds_of(event: e.Event) -> set[str]:
    """Return the kinds of notices that an event is: ``end``, ``failure``, ``hang``, ``preemption``; none for most."""
    if isinstance(event, e.JobEnded):
        return {"end", "failure"} if event.status == status.FAILED else {"end"}
    if isinstance(event, e.JobHung):
        return {"hang"}
    return {"preemption"} if isinstance(event, e.Preempted) else set()
