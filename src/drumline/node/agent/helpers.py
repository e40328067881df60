"""The processes of a node that are no ranks: the launcher, and commands that programs of other nodes ask for."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING, Any

from drumline.contract import messages as m
from drumline.contract.record import NamedTuple
from drumline.node.agent import processes
from drumline.node.launcher import launcher_log
from drumline.node.launcher.stdin_relays import StdinRelays

if TYPE_CHECKING:
    import select
    from collections.abc import Sequence

    from drumline.node.agent.children import Children
    from drumline.node.agent.environment import JobEnvironment

_LAUNCHER = 0
"""The number of the launcher; commands of other nodes have those that the supervisor gave them."""

_DAEMON = "prted "
"""Of Open MPI 5, which tells the nodes of a machine by host names alone; other programs would look such a name up."""


class _Helper(NamedTuple):
    number: int
    process: processes.StartedProcess


class Helpers:
    """Processes that help ranks; their standard input is served with the agent's other descriptors."""

    def __init__(self, environment: JobEnvironment, children: Children, poller: select.epoll) -> None:
        self._environment = environment
        self._children = children
        self._poller = poller
        self._by_pid: dict[int, _Helper] = {}
        self._relays: StdinRelays | None = None
        self._log = ""
        """The launcher's."""

    def pids(self) -> list[int]:
        return list(self._by_pid)

    def hear(self, ready: Sequence[int]) -> None:
        """Pass on what came for their standard input."""
        if self._relays:
            self._relays.hear(set(ready))

    def start_launcher(self, launcher: m.LauncherTask) -> None:
        variables = {**self._environment.helper_variables(), **launcher.env}
        self._log = launcher.log
        self._start(_LAUNCHER, launcher.argv, variables, log=launcher.log)

    def run_command(self, message: m.RunCommand) -> None:
        """Run what a program of another node asks for; its streams go there directly."""
        back = (message.address, message.port, message.token)
        argv = ["/bin/bash", "-c", message.command]
        launch = self._environment.launch
        name = launch.host_name if launch.by_launcher or _DAEMON in message.command else ""
        feed = self._relay(*back) if message.has_input else -1
        try:
            variables = self._environment.helper_variables()
            self._start(message.id, argv, variables, back=back, feed=feed, host_name=name)
        finally:
            if feed >= 0:
                os.close(feed)

    def _relay(self, address: str, port: int, token: str) -> int:
        if self._relays is None:
            self._relays = StdinRelays(self._poller)
        return self._relays.open(address, port, token)

    def _start(self, number: int, argv: list[str], variables: dict[str, str], **streams: Any) -> None:
        launch = self._environment.launch
        process = processes.start_process(argv, env=variables, cwd=launch.cwd, cores=launch.cores, **streams)
        self._children.watch(process.pid)
        self._by_pid[process.pid] = _Helper(number, process)

    def end_command(self, message: m.EndCommand) -> None:
        for pid, helper in self._by_pid.items():
            if helper.number == message.id:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGTERM)

    def note_end(self, pid: int, code: int) -> m.LauncherExited | m.CommandEnded | None:
        """Return what is told of the end of one; None for another process."""
        helper = self._by_pid.pop(pid, None)
        if helper is None:
            return None
        exit_code, number = (code, None) if code >= 0 else (None, -code)
        error = helper.process.error()
        if helper.number == _LAUNCHER:
            said = "" if code == 0 else launcher_log.read_words(self._log)
            return m.LauncherExited(exit_code, number, error, said)
        return m.CommandEnded(helper.number, exit_code, number, error)
