"""
Processes of a node that are no ranks: the launcher, and what it or another program of the job asks of the agent by the
launcher socket: to start a rank, to have a command run on another node, to note an experiment of DeepSpeed's autotuner.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import TYPE_CHECKING, Any

from drumline.contract import events as e
from drumline.contract import installed_mpi
from drumline.contract import messages as m
from drumline.contract.record import NamedTuple
from drumline.contract.words import read_count
from drumline.node.agent import processes
from drumline.node.agent.environment import SHARED_MEMORY_VARIABLES
from drumline.node.agent.processes import StdinRelays
from drumline.node.launcher import launcher_log, ssh_shim
from drumline.node.launcher.launcher_socket import LauncherSocket

if TYPE_CHECKING:
    import select
    from collections.abc import Callable, Sequence

    from drumline.node.agent.environment import JobEnvironment
    from drumline.node.agent.processes import Children
    from drumline.node.agent.ranks import Ranks


_END_S = 1.0
"""For a launcher and its daemons, when all ranks are gone."""

_END_POLL_S = 0.005

_MOST_EXPERIMENTS = 2000
"""Of which the supervisor is told; any process of the job can ask."""

_MOST_TEXT = 500

_LIBRARY_POLL_S, _LIBRARY_LIMIT_S = 0.2, 120.0
"""Between looks for the library of a rank's MPI, and for all of them, from the start of the rank."""

_NOT_OF_MPI = (b"PWD", b"OLDPWD", b"SHLVL", b"_", *map(os.fsencode, SHARED_MEMORY_VARIABLES))
"""What shells on the way change, and what Open MPI passes on of node 0, although each node has its own."""


class Launching:
    """
    Handles launchers and their requests on this node. ``address``: of this node, for other nodes. ``tell`` sends a
    message to the supervisor. Raises OSError.
    """

    def __init__(
        self,
        environment: JobEnvironment,
        address: str,
        children: Children,
        ranks: Ranks,
        poller: select.epoll,
        tell: Callable[[m.FromAgent], object],
    ) -> None:
        self._environment = environment
        self._address = address
        self._ranks = ranks
        self._tell = tell
        self.helpers = Helpers(environment, children, poller)
        self.socket = LauncherSocket(environment.scratch, address, self._on_request, self._on_gone)
        self.socket.register(poller)
        environment.bin = self.socket.bin
        self._expected: dict[int, m.RankLaunch] = {}
        """The ranks that the launcher has still to ask for."""

        self._shims: dict[int, int] = {}
        """By rank, the caller that stands for it."""

        self._asking: set[int] = set()
        """The callers that have asked for a command."""

        self._launcher_kind = ""
        """Whose launcher it is; empty: not known, or its ranks have been looked at."""

        self._library_due = self._library_until = 0.0
        self._experiments: dict[int, str] = {}
        """By caller, the experiment that it has begun."""

        self._experiment_count = 0

    def begin(self) -> None:
        """Expect the ranks of this node, and start their launcher where it belongs here."""
        launch = self._environment.launch
        self._expected = {rank.rank: rank for rank in launch.ranks}
        self.socket.expect(self._expected)
        if launch.launcher:
            self.helpers.start_launcher(launch.launcher)

    def hear(self, ready: Sequence[int]) -> None:
        """Serve those of the descriptors that are ours. Raises OSError."""
        self.socket.hear(set(ready))
        if self._launcher_kind:
            self._look_for_library()

    def _look_for_library(self) -> None:
        """Tell of a library of another MPI, once: its ranks would not know of each other, and end well all the same."""
        from drumline.node.diagnostics import waits

        now = time.monotonic()
        pid = next(iter(self._ranks.by_pid), None)
        if pid is None or now < self._library_due:
            return
        self._library_due = now + _LIBRARY_POLL_S
        libraries = sorted(waits.list_mpi_libraries(pid))
        other = installed_mpi.find_other_library(self._launcher_kind, libraries)
        if other:
            kind = installed_mpi.recognize_library(other)
            self._tell(m.OtherMpiSeen(self._ranks.by_pid[pid], self._launcher_kind, other, kind))
        if libraries or now > self._library_until:
            self._launcher_kind = ""

    def _on_request(self, caller: int, words: list[bytes]) -> None:
        if words[0] == b"rank" and self._environment.launch.by_launcher:
            self._start_rank(caller, words[1:])
        elif (
            words[0] in (b"shell", b"daemon") and len(words) == 6 and words[2].isdigit() and len(words[2]) < 6
        ):
            host, port, token, command, has_input = (os.fsdecode(word) for word in words[1:])
            self._asking.add(caller)
            back = (self._address, int(port), token)
            of_launcher = words[0] == b"daemon"
            self._tell(m.CommandRequested(caller, of_launcher, host, *back, command, bool(has_input)))
        elif words[0] == b"experiment" and len(words) == 5:
            self._note_experiment(
                caller, *(word.decode("utf-8", "replace")[:_MOST_TEXT] for word in words[1:])
            )
        else:
            self.socket.answer(caller, "refused")

    def _start_rank(self, caller: int, environment: list[bytes]) -> None:
        """Start a rank, with what its MPI added to or changed in the variables of the node."""
        given = dict(word.split(b"=", 1) for word in environment if b"=" in word)
        names = [name for name in installed_mpi.RANK_NAMES if given.get(name.encode(), b"").isdigit()]
        number = int(given[names[0].encode()]) if names else -1
        rank = self._expected.pop(number, None)
        if rank is None:
            self._tell(m.RankMisplaced(number))
            return
        known = self._environment.helper_variables()
        added = {
            os.fsdecode(name): os.fsdecode(value)
            for name, value in given.items()
            if name not in _NOT_OF_MPI and known.get(os.fsdecode(name)) != os.fsdecode(value)
        }
        self._launcher_kind = installed_mpi.RANK_NAMES[names[0]]
        self._library_until = time.monotonic() + _LIBRARY_LIMIT_S
        self._shims[number] = caller
        self._ranks.start_for_launcher(rank, added)

    def _note_experiment(self, caller: int, name: str, number: str, status: str, reason: str) -> None:
        """Tell the supervisor that an experiment begins, or, with a ``status``, that this caller's has ended."""
        if caller in self._experiments:
            del self._experiments[caller]
            self._tell(e.ExperimentEnded(time.monotonic(), name, status, reason))
            self.socket.answer(caller, "noted")
        elif status or self._experiment_count >= _MOST_EXPERIMENTS:
            self.socket.answer(caller, "refused")
        else:
            self._experiment_count += 1
            self._experiments[caller] = name
            self._tell(e.ExperimentBegan(time.monotonic(), name, read_count(number)))

    def _on_gone(self, caller: int) -> None:
        """Tell the supervisor that a process was killed which stood for a rank, or for something that it asked for."""
        if caller in self._experiments:
            name = self._experiments.pop(caller)
            self._tell(e.ExperimentEnded(time.monotonic(), name, "Failed", "it was killed"))
        if caller in self._asking:
            self._asking.discard(caller)
            self._tell(m.CallerGone(caller))
        for rank, shim in list(self._shims.items()):
            if shim == caller:
                del self._shims[rank]
                if rank in self._ranks.by_pid.values():
                    self._tell(m.RankAbandoned(rank))

    def obey(self, message: m.RunCommand | m.EndCommand | m.AnswerCaller) -> None:
        """Obey the supervisor's message about a command or its caller. Raises OSError."""
        if isinstance(message, m.RunCommand):
            self.helpers.run_command(message)
        elif isinstance(message, m.EndCommand):
            self.helpers.end_command(message)
        else:
            self._answer_caller(message)

    def _answer_caller(self, message: m.AnswerCaller) -> None:
        """Tell one of our programs how the command ended that it asked another node for."""
        if message.caller not in self._asking:
            return
        self._asking.discard(message.caller)
        if message.not_ours:
            self.socket.answer(message.caller, ssh_shim.NOT_OURS)
        elif message.signal:
            self.socket.answer(message.caller, f"signal {message.signal}")
        else:
            self.socket.answer(message.caller, f"exited {message.code}")

    def note_end(self, rank: int, code: int) -> None:
        """Tell the launcher of a rank that ended well. Of a failure it would cut off the others before their grace."""
        shim = self._shims.pop(rank, None)
        if code == 0 and shim is not None:
            self.socket.answer(shim, "exited 0")

    def refuse_ranks(self) -> None:
        """Start none of the ranks that the launcher has not asked for yet."""
        self._expected = {}

    def list_spared(self) -> list[int]:
        """
        Return the processes that a launcher needs to end by itself: if it is told to, it takes from the ranks what they
        end with, such as a last collective; what does not end is ended with all that is left.
        """
        return self.helpers.pids() if self._environment.launch.by_launcher else []

    def let_end(self, tell_exits: Callable[[], None]) -> None:
        """Tell the shims that their ranks are gone: their launcher ends by itself, sooner than if it is told."""
        for caller in self._shims.values():
            self.socket.answer(caller, "exited 1")
        self._shims = {}
        deadline = time.monotonic() + _END_S
        while self.list_spared() and time.monotonic() < deadline:
            time.sleep(_END_POLL_S)
            tell_exits()


# the launcher, and commands for other nodes


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
        feed = -1
        if message.has_input:
            self._relays = self._relays or StdinRelays(self._poller)
            feed = self._relays.open(*back)
        try:
            variables = self._environment.helper_variables()
            self._start(message.id, argv, variables, back=back, feed=feed, host_name=name)
        finally:
            if feed >= 0:
                os.close(feed)

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
