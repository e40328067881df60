"""The nodes that this machine plays for one job: an agent, an address and a scratch folder for each."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from typing import TYPE_CHECKING, Any

from drumline.contract import process_identity
from drumline.contract.channel import SILENCE_S
from drumline.contract.errors import EngineError
from drumline.contract.folder import base_home
from drumline.engines.base import AgentProcesses, AgentStarter, NodeFacts
from drumline.linux import cgroups, kernel
from drumline.linux.inotify import Inotify
from drumline.node import leftovers, scratch
from drumline.node.agent import agent
from drumline.node.warm import rank_starter

if TYPE_CHECKING:
    from drumline.contract.folder import RunFolder
    from drumline.contract.plan import Plan
    from drumline.engines.local.queue import LocalAllocation


class LocalAgents(AgentStarter):
    """Forks the agents of one job, each with an address and a scratch folder of its own."""

    server_address = "127.0.0.1"
    """Of the supervisor, as its agents see it."""

    join_timeout_s = 60.0
    silence_s = SILENCE_S
    warm_pool = None

    def __init__(self, plan: Plan, folder: RunFolder) -> None:
        self._plan = plan
        self._folder = folder
        self._pids: dict[int, int] = {}
        self._pidfds: dict[int, int] = {}
        self._inotify: dict[int, Inotify] = {}
        """
        By node, with which its agent watches files. This process has them too: the last process to close one waits for
        the kernel, and nobody waits for this process to end.
        """

        self._scratch: dict[int, str] = {}
        self._memory: list[str] = []
        self._cgroups: dict[int, str] = {}

    def listen(self) -> socket.socket:
        return socket.create_server((self.server_address, 0), backlog=1024)

    def start(self, port: int, secret: str) -> AgentProcesses:
        # Agents of an attempt before this one that did not leave in time have been ended by now.
        for pidfd in self._pidfds.values():
            os.close(pidfd)
        self._pids.clear()
        self._pidfds.clear()
        self._remove_folders()
        for task in self._plan.nodes:
            # A short path: those of Unix sockets have 108 bytes.
            name = f"drumline-{os.urandom(4).hex()}-n{task.node}"
            self._scratch[task.node] = os.path.join(os.environ.get("TMPDIR") or "/tmp", name)  # noqa: S108
            self._cgroups[task.node] = self._choose_group(task.node, name)
        self._memory = self._choose_memory() if self._plan.launcher is not None else []
        if self._plan.wants_launcher_sockets:
            # For the agents, which are forks of this process, and would each load it.
            from drumline.node.agent import launching  # noqa: F401
        self._ensure_warm_pool()
        folders = [*self._scratch.values(), *self._memory]
        # Written down before they are made: a supervisor that is killed in between leaves nothing unknown.
        known = [*folders, *filter(None, self._cgroups.values()), *self._list_more_groups()]
        self._folder.write(self._folder.scratch, "".join(f"{path}\n" for path in known))
        for path in folders:
            try:
                os.mkdir(path, 0o700)
            except OSError as error:
                raise EngineError(f"no scratch folder {path}: {error.strerror}", "set TMPDIR") from error
        self._make_inotify()
        # A SIGTERM that comes before the agent has handlers of its own would go to those of the supervisor.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM,))
        for task in self._plan.nodes:
            pid = cgroups.fork_in_group(self._cgroups[task.node])
            if pid == 0:
                self._be_agent(task.node, port, secret)
            self._pids[task.node] = pid
            self._pidfds[task.node] = os.pidfd_open(pid)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return AgentProcesses(dict(self._pidfds))

    def _choose_group(self, node: int, name: str) -> str:
        """Return the path of a node's control group, in which all that it runs is ended; empty for none."""
        return cgroups.choose_group_path(name)

    def _list_more_groups(self) -> list[str]:
        """List further control groups of the nodes."""
        return []

    def _choose_memory(self) -> list[str]:
        """Return a folder of each node in this machine's shared memory."""
        return [path for path in map(scratch.choose_shared_memory_folder, self._scratch.values()) if path]

    def _make_inotify(self) -> None:
        """Make new ones for each attempt: a killed agent has left watches in its own."""
        for before in self._inotify.values():
            before.close()
        self._inotify.clear()
        for task in self._plan.nodes:
            # Without one, the agent polls.
            with contextlib.suppress(OSError):
                self._inotify[task.node] = Inotify()

    def _ensure_warm_pool(self) -> None:
        """Start the pool of warm interpreters, where this job may want one. It outlives this process."""
        plan = self._plan
        words = [*plan.argv, *(word for task in plan.ranks for word in task.argv)]
        if plan.warm == "off" or plan.container or "python" not in " ".join(words):
            return
        if plan.warm == "auto" and not rank_starter.may_import_third_party(words, plan.cwd):
            return
        # The agents need the fork server: they are forks of this process, and would each load it.
        from drumline.node.warm import fork_server, pool_folder, pool_start  # noqa: F401

        self.warm_pool = pool_folder.choose_pool_folder(base_home(), process_identity.name_machine())
        kernel.adopt_orphans(wanted=False)
        try:
            with contextlib.suppress(OSError):
                pool_start.ensure_pool(self.warm_pool, anew=bool(plan.secrets or plan.notify))
        finally:
            kernel.adopt_orphans()

    def _be_agent(self, node: int, port: int, secret: str) -> None:
        """Run the agent in the forked child; never returns."""
        code = 1
        try:
            os.setsid()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            kernel.append_output(os.path.join(self._folder.system_logs, f"node-{node}.log"))
            self._enter_node(node)
            # The supervisor's own descriptors, its listening socket above all.
            inotify = self._inotify.get(node)
            kernel.close_inherited_descriptors(kept=inotify.descriptor if inotify else 2)
            kernel.set_process_name(f"drumline-node-{node}")
            self._serve((self.server_address, port), secret, node, agent.Starter(inotify))
            code = 0
        except BaseException:  # noqa: BLE001 - the top of a process: nothing above would say it
            import traceback

            traceback.print_exc()
        finally:
            os._exit(code)

    def _enter_node(self, node: int) -> None:
        """Have the agent's process, which this is, begin its life on its node."""

    def _serve(self, server: tuple[str, int], secret: str, node: int, starter: agent.Starter) -> None:
        """Be the agent of a node, in its process."""
        own = (_address_of(node), self._scratch[node], self._cgroups[node])
        agent.serve(server, secret, node, *own, starter=starter)

    def reap(self, node: int) -> str:
        os.close(self._pidfds.pop(node))
        try:
            _, wait_status = os.waitpid(self._pids.pop(node), 0)
        except ChildProcessError:
            return "is gone"
        code = os.waitstatus_to_exitcode(wait_status)
        if code != 0:
            # Its ranks have no agent that would end them; ranks of other nodes may take their grace.
            cgroups.kill_group(self._cgroups.get(node, ""))
            leftovers.end_orphans(self._scratch[node])
        if code < 0:
            return f"was killed by {_name_of(-code)}"
        return "ended" if code == 0 else f"crashed; see {self._folder.system_logs}/node-{node}.log"

    def end(self, node: int) -> None:
        pidfd = self._pidfds.get(node)
        if pidfd is not None:
            signal.pidfd_send_signal(pidfd, signal.SIGTERM)

    def hold(self, node: int, *, wanted: bool) -> None:
        pidfd = self._pidfds.get(node)
        if pidfd is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGSTOP if wanted else signal.SIGCONT)

    def clear(self) -> None:
        self._remove_folders()

    def _remove_folders(self) -> None:
        # Folders go last: processes that are left in a control group may write to them.
        for path in self._cgroups.values():
            cgroups.kill_group(path)
        for path in (*self._scratch.values(), *self._memory):
            scratch.remove_scratch(path)


class LocalFacts(NodeFacts):
    """All nodes are this machine. ``allocation``: which GPUs it was granted is known once it has them."""

    interface = "lo"
    clocks_differ = False
    are_separate = False

    def __init__(self, plan: Plan, allocation: LocalAllocation) -> None:
        super().__init__(plan)
        self._allocation = allocation

    def gpus(self, node: int) -> str:
        granted = self._allocation.gpus
        count = self._plan.nodes[node].gpu_count
        if not granted or not count:
            return ""
        before = sum(other.gpu_count for other in self._plan.nodes[:node])
        share = [granted[(before + index) % len(granted)] for index in range(count)]
        return ",".join(dict.fromkeys(share))

    def identify(self, pid: int) -> dict[str, Any] | None:
        return process_identity.identify_process(pid)


def _address_of(node: int) -> str:
    """Return 127.0.0.1, 127.0.0.2, ...: on Linux all of 127.0.0.0/8 is this machine."""
    return f"127.0.{(node + 1) // 255}.{(node + 1) % 255}"


def _name_of(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"
