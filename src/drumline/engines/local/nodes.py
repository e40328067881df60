"""The nodes that this machine plays for one job: an agent each, an address each, a scratch folder each."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

from drumline.contract import identity
from drumline.contract.errors import EngineError
from drumline.contract.folder import RunFolder, base_home
from drumline.engines.base import Network, Taken
from drumline.engines.local import machine
from drumline.engines.local.line import Entry, Line
from drumline.node import agent, cgroups, kernel, leftovers, scratch
from drumline.node.inotify import Inotify
from drumline.node.warm import place, worth

if TYPE_CHECKING:
    from collections.abc import Callable

    from drumline.contract.plan import Plan

_LOOK_AGAIN_S = 0.5
"""
While first in line: the holders' ends wake us at once, this is for everything else. Those behind look less often, so
that a thousand of them cost next to nothing; the one that starts wakes the next.
"""

_LONGEST_S = 120.0
_LOOK_FOR_CANCEL_S = 2.0
"""Whoever cancels a job wakes its supervisor, where that is on the same machine."""


class LocalNodes:
    shares_machine = True
    replaces_lost = False
    listen_address = "127.0.0.1"
    interface = "lo"
    join_timeout_s = 60.0

    def __init__(self, plan: Plan, folder: RunFolder) -> None:
        self._plan = plan
        self._folder = folder
        self._who = identity.of(os.getpid()) or {}
        self._gpus = machine.gpus()
        self._line = Line(
            os.path.join(base_home(), "engines", "local", identity.host()), len(machine.cores()), self._gpus
        )
        self._granted: tuple[str, ...] = ()
        self._pids: dict[int, int] = {}
        self._pidfds: dict[int, int] = {}
        self._inotify: dict[int, Inotify] = {}
        """
        By node, what its agent watches files with. This process has them too: the last one to close one waits for the
        kernel, and here, at its end, nobody waits for this process.
        """

        self._scratch: dict[int, str] = {}
        self._memory: list[str] = []
        self._cgroups: dict[int, str] = {}
        self.keeper = "" if plan.warm == "off" else place.folder(base_home(), identity.host())

    def wait(self, on_wait: Callable[[str], None], canceled: Callable[[], bool], wake: int) -> bool:
        wanted_gpus = min(sum(node.gpu_count for node in self._plan.nodes), len(self._gpus))
        cores = min(self._plan.cores_wanted, len(machine.cores()))
        entry = Entry(self._plan.job, self._who, cores, wanted_gpus, folder=self._folder.path)
        told = ""
        while (blocked := self._line.advance(entry)) is not None:
            if blocked.reason != told:
                told = blocked.reason
                on_wait(told)
            self._clear_dropped()
            again = time.monotonic() + min(_LONGEST_S, _LOOK_AGAIN_S * (1 + blocked.ahead) ** 1.5)
            while not _wait_for_any(blocked.holders, wake, again) and not canceled():
                pass
            if canceled():
                self._line.leave(self._who)
                return False
        self._clear_dropped()
        self._granted = entry.gpus
        return True

    def _clear_dropped(self) -> None:
        for entry in self._line.dropped:
            leftovers.clear(RunFolder(entry.folder) if entry.folder else RunFolder.of(entry.job, base_home()))
        self._line.dropped.clear()

    def address(self, node: int) -> str:
        """127.0.0.1, 127.0.0.2, ...: on Linux all of 127.0.0.0/8 is this machine."""
        return f"127.0.{(node + 1) // 255}.{(node + 1) % 255}"

    def gpus(self, node: int) -> str:
        count = self._plan.nodes[node].gpu_count
        if not self._granted or not count:
            return ""
        before = sum(other.gpu_count for other in self._plan.nodes[:node])
        share = [self._granted[(before + index) % len(self._granted)] for index in range(count)]
        return ",".join(dict.fromkeys(share))

    def start_agents(self, port: int, secret: str) -> None:
        # Of an attempt before this one, agents that did not leave in time have been ended by now.
        _close(list(self._pidfds.values()))
        self._pids.clear()
        self._pidfds.clear()
        self._remove()
        for task in self._plan.nodes:
            self._scratch[task.node] = _scratch_path(task.node)
            self._cgroups[task.node] = cgroups.place_for(os.path.basename(self._scratch[task.node]))
        if self._plan.launcher is not None:
            self._memory = [path for path in map(scratch.memory_of, self._scratch.values()) if path]
        self._have_keeper()
        folders = [*self._scratch.values(), *self._memory]
        # Written down before they are made: whoever is killed in between leaves nothing unknown.
        known = [*folders, *filter(None, self._cgroups.values())]
        self._folder.write(self._folder.scratch, "".join(f"{path}\n" for path in known))
        for path in folders:
            _make_scratch(path)
        self._make_inotify()
        # A SIGTERM that comes before the agent has handlers of its own would go to those of the supervisor.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM,))
        for task in self._plan.nodes:
            pid = cgroups.fork(self._cgroups[task.node])
            if pid == 0:
                self._be_agent(task.node, port, secret)
            self._pids[task.node] = pid
            self._pidfds[task.node] = os.pidfd_open(pid)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _make_inotify(self) -> None:
        """Anew for each attempt: an agent that was killed has left something to watch in its own."""
        for before in self._inotify.values():
            before.close()
        self._inotify.clear()
        for task in self._plan.nodes:
            # Where there is none, the agent looks.
            with contextlib.suppress(OSError):
                self._inotify[task.node] = Inotify()

    def _have_keeper(self) -> None:
        """Of warm interpreters, where this job may want one. It is no orphan of ours: it stays when we end."""
        plan = self._plan
        words = [*plan.argv, *(word for task in plan.ranks for word in task.argv)]
        if not self.keeper or plan.container or "python" not in " ".join(words):
            return
        if plan.warm == "auto" and not worth.may_gain(words, plan.cwd):
            return
        # The last of them is for the agents, which are forks of this process, and would each load it.
        from drumline.node.warm import beginning, nursery  # noqa: F401

        kernel.adopt_orphans(wanted=False)
        try:
            with contextlib.suppress(OSError):
                beginning.ensure(self.keeper)
        finally:
            kernel.adopt_orphans()

    def _be_agent(self, node: int, port: int, secret: str) -> None:
        """In the child, which never returns."""
        code = 1
        try:
            os.setsid()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            log = os.path.join(self._folder.system_logs, f"node-{node}.log")
            output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(output, 1)
            os.dup2(output, 2)
            # The supervisor's own descriptors, its listening socket above all.
            inotify = self._inotify.get(node)
            kernel.close_inherited(kept=inotify.descriptor if inotify else 2)
            kernel.set_name(f"drumline-node-{node}")
            own = (self.address(node), self._scratch[node], self._cgroups[node])
            agent.serve((self.listen_address, port), secret, node, *own, starter=agent.Starter(inotify))
            code = 0
        except BaseException:  # noqa: BLE001 - the top of a process: nothing above would say it
            import traceback

            traceback.print_exc()
        finally:
            # On a full disk what could not be logged is still in the buffer, and a flush fails; the agent must end.
            with contextlib.suppress(BaseException):
                sys.stderr.flush()
            os._exit(code)

    def agents(self) -> dict[int, int]:
        return dict(self._pidfds)

    def ended(self, node: int) -> str:
        os.close(self._pidfds.pop(node))
        try:
            _, wait_status = os.waitpid(self._pids.pop(node), 0)
        except ChildProcessError:
            return "is gone"
        code = os.waitstatus_to_exitcode(wait_status)
        if code != 0:
            # Nobody is there who would end them; ranks of other nodes may take their grace.
            cgroups.end(self._cgroups.get(node, ""))
            leftovers.end_orphans(self._scratch[node])
        if code < 0:
            return f"was killed by {_name_of(-code)}"
        return "ended" if code == 0 else f"crashed; see {self._folder.system_logs}/node-{node}.log"

    def end_agent(self, node: int) -> None:
        pidfd = self._pidfds.get(node)
        if pidfd is not None:
            signal.pidfd_send_signal(pidfd, signal.SIGTERM)

    def joined(self, node: int, hello: dict[str, Any]) -> None:
        """All is known of this machine."""

    def network(self) -> Network | None:
        return None

    def taken(self, node: int | None, by: str) -> Taken:
        return Taken("cancel", by) if node is None else Taken("node preemption", by)

    def failed_to_join(self) -> dict[int, str]:
        return {}

    def has_told_ranks(self) -> bool:
        return False

    def gone(self, node: int) -> str:
        return "closed its connection"

    def back_in_line(self, end_kind: str, *, progressed: bool) -> str:
        return "wait" if end_kind == "preemption" else "here"

    def release(self) -> None:
        self._remove()
        self._line.leave(self._who)

    def _remove(self) -> None:
        """Control groups, and what is left in them, then folders."""
        for path in self._cgroups.values():
            cgroups.end(path)
        for path in (*self._scratch.values(), *self._memory):
            scratch.remove(path)


def _wait_for_any(holders: tuple[dict[str, object], ...], wake: int, deadline: float) -> bool:
    """
    Until one of them ends, or ``wake`` is readable, or the deadline (monotonic seconds); False for a moment that has
    passed without any of that.
    """
    pidfds = [pidfd for holder in holders if (pidfd := identity.open_pidfd(holder)) is not None]
    try:
        if len(pidfds) < len(holders):
            return True
        poller = select.poll()
        for descriptor in (wake, *pidfds):
            poller.register(descriptor, select.POLLIN)
        left_s = max(0.0, deadline - time.monotonic())
        ready = [descriptor for descriptor, _ in poller.poll(min(left_s, _LOOK_FOR_CANCEL_S) * 1000)]
        if wake in ready:
            os.read(wake, 512)
        return bool(ready) or left_s <= _LOOK_FOR_CANCEL_S
    finally:
        _close(pidfds)


def _close(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _scratch_path(node: int) -> str:
    """
    A folder for temporary files, with a short path: Unix sockets in it have 108 bytes for theirs.
    """
    parent = os.environ.get("TMPDIR") or "/tmp"  # noqa: S108 - with a random name, made exclusively
    return os.path.join(parent, f"drumline-{os.urandom(4).hex()}-n{node}")


def _make_scratch(path: str) -> None:
    """For this user alone. Raises EngineError."""
    try:
        os.mkdir(path, 0o700)
    except OSError as error:
        raise EngineError(f"no scratch folder {path}: {error.strerror}", "set TMPDIR") from error


def _name_of(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"
