"""Requests by programs of the job: commands on other nodes, and reports of the launcher that starts the ranks."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from drumline.contract import messages as m
from drumline.contract.record import NamedTuple, compile_late
from drumline.node.launcher import launcher_log
from drumline.supervisor.deciding import happenings as h
from drumline.supervisor.deciding import policy as p
from drumline.supervisor.explaining import exit_messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from drumline.contract.folder import RunFolder
    from drumline.contract.plan import Plan
    from drumline.supervisor.attempt.connections import AgentConnections


_DAEMON = compile_late(r"(?:^|[\s/])(orted|prted|hydra_pmi_proxy|hydra_bstrap_proxy)\s")
_PRTED_KILLED = 255
"""With which the outer of prted's two processes ends when the inner, the daemon proper, was killed. Source: prted.c."""


class _RemoteCommand(NamedTuple):
    """
    A command that one node asked another for. ``daemon``: the name of the MPI daemon that it is, without which ranks
    cannot go on; empty for another command. ``of_launcher``: it is one of the job's own launcher. ``is_hung_up``: it
    was told to end, since its caller was killed.
    """

    node: int
    caller: int
    target: int
    of_launcher: bool
    daemon: str
    is_hung_up: bool = False


class RemoteCommands:
    """
    Commands that run on one node for a program of another. ``find_node``: the node of a host name, seen from a node.
    ``launcher``: takes in what is said of the program that starts the ranks.
    """

    def __init__(
        self,
        plan: Plan,
        connections: AgentConnections,
        find_node: Callable[[str, int], int | None],
        handle: Callable[[h.Happening], None],
        launcher: LauncherReports,
    ) -> None:
        self.launcher = launcher
        self._launcher = plan.launcher
        self._connections = connections
        self._find_node = find_node
        self._handle = handle
        self._count = 0
        self._lost_daemon: h.Broken | None = None
        self._running: dict[int, _RemoteCommand] = {}
        """By the number by which the agents of both nodes know it."""

        self._of_callers: dict[tuple[int, int], set[int]] = {}
        """The numbers of those that run, by node and caller."""

    def start(self, node: int, message: m.CommandRequested) -> None:
        target = self._find_node(message.host, node)
        if target is None:
            self._connections.send(node, m.AnswerCaller(message.caller, 255, None, not_ours=True))
            return
        self._count += 1
        found = _DAEMON.search(message.command)
        daemon = found[1] if found else ""
        self._running[self._count] = _RemoteCommand(node, message.caller, target, message.of_launcher, daemon)
        if daemon and not message.of_launcher:
            self._tell_daemons(None)
        self._of_callers.setdefault((node, message.caller), set()).add(self._count)
        back = (message.address, message.port, message.token)
        command = m.RunCommand(self._count, *back, message.command, message.has_input)
        if not self._connections.send(target, command):
            self.end(target, m.CommandEnded(command.id, 255, None, "the node is gone"))

    def end(self, node: int, message: m.CommandEnded) -> None:
        """Tell the caller that its command has ended."""
        command = self._running.pop(message.id, None)
        if command is None:
            return
        caller = (command.node, command.caller)
        self._of_callers[caller].discard(message.id)
        if not self._of_callers[caller]:
            del self._of_callers[caller]
        self._connections.send(command.node, m.AnswerCaller(command.caller, message.code, message.signal))
        if not (command.daemon or command.of_launcher):
            return
        name = self._launcher.name if self._launcher else "the command's MPI"
        what = f"the daemon of {name} on node {node}"
        if command.daemon == "prted" and message.code == _PRTED_KILLED:
            reason = f"{what} was killed: prted exited with code {message.code}"
        else:
            reason = exit_messages.describe_program_end(what, message)
        code = _exit_code(message)
        lost = h.Broken(node, reason, code, 0.0 if code > 128 else h.BROKEN_DELAY_S)
        if not command.of_launcher:
            was_killed = code > 128 and not (command.is_hung_up and code == 128 + signal.SIGTERM)
            self._tell_daemons(lost if was_killed else self._lost_daemon)
        elif message.code != 0:
            self._handle(lost)

    def _tell_daemons(self, lost: h.Broken | None) -> None:
        """Tell how many daemons of MPIs that the job's own command runs there are, one of which was ``lost``."""
        self._lost_daemon = lost
        count = sum(bool(command.daemon) and not command.of_launcher for command in self._running.values())
        self._handle(h.DaemonsChanged(count, lost))

    def hang_up(self, node: int, message: m.CallerGone) -> None:
        """End the commands of a caller that was killed."""
        for number in sorted(self._of_callers.get((node, message.caller), ())):
            command = self._running[number] = self._running[number]._replace(is_hung_up=True)
            self._connections.send(command.target, m.EndCommand(number))


class LauncherReports:
    """The end of the launcher, and mistakes that it makes with ranks."""

    def __init__(self, plan: Plan, folder: RunFolder, handle: Callable[[h.Happening], None]) -> None:
        self._name = plan.launcher.name if plan.launcher else "the launcher"
        self._relative_log = plan.launcher.log if plan.launcher else ""
        self._log = os.path.join(folder.path, self._relative_log) if plan.launcher else ""
        self._handle = handle

    def note_exit(self, node: int, message: m.LauncherExited) -> None:
        reason = "" if message.code == 0 else exit_messages.describe_program_end(self._name, message)
        killed = message.signal is not None
        self._handle(h.LauncherEnded(node, reason, _exit_code(message), killed, self._quote(message.said)))

    def note_abandoned(self, node: int, message: m.RankAbandoned) -> None:
        reason = f"{self._name} ended rank {message.rank} on node {node}"
        quoted = self._quote(launcher_log.read_words(self._log))
        self._handle(h.Broken(node, reason + quoted, 1, p.ABANDONED_DELAY_S))

    def _quote(self, said: str) -> str:
        # Nodes that share no files have it in a folder of their own, which the run folder gets later.
        shown = self._log if os.path.exists(self._log) else self._relative_log
        return exit_messages.quote_launcher(said, shown)

    def note_misplaced(self, node: int, message: m.RankMisplaced) -> None:
        where = f"rank {message.rank} on node {node}, where it does not belong"
        self._handle(h.Broken(node, f"{self._name} started {where}", 1))


def _exit_code(how: m.CommandEnded | m.LauncherExited) -> int:
    """Return the code as a shell has it; 1 for a program that did not start, or ended well too early."""
    return 128 + how.signal if how.signal else how.code or 1
