"""
The agent's side of warm starts: it asks the warm pool for a fork server, which starts its ranks.

A rank is then a child of the fork server, which waits for it when the agent says so, and ends with everything below it
when the agent is gone. For signals, and for what there is, the agent looks below the fork server as below itself.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
import time
from typing import TYPE_CHECKING, Any

from drumline.linux import limits, namespaces, process_usage
from drumline.linux.descendants import EndedProcess
from drumline.node.hook_folder import HOOK
from drumline.node.warm import imports, pool_folder, shell_command
from drumline.node.warm.ranks import StartedRank, split_variables

if TYPE_CHECKING:
    from collections.abc import Sequence

    from drumline.node.warm.ranks import Task
    from drumline.node.warm.shell_command import Program

_ANSWER_TIMEOUT_S = 30.0
"""For an answer of a process that does nothing else; a machine may be busy."""

_MAX_WAIT_S = 360

_STOPPED_AFTER_S = 1.0
"""Without an answer for so long, it may be that somebody has stopped it."""

_MODULE_ENDINGS = (".py", ".pyc", ".so")


class PoolRequest:
    """
    A request to a warm pool, which may take as long as the imports take. Raises NotWarm where the answer is known
    before.
    """

    def __init__(self, pool: str, mode: str, tasks: Sequence[Task]) -> None:
        self.began = time.monotonic()
        self.programs = [shell_command.parse_command(task.argv, task.env, task.cwd) for task in tasks]
        first = self.programs[0]
        if any(one.env.get("PYTHONPATH", "").split(os.pathsep)[0] != HOOK for one in self.programs):
            raise shell_command.NotWarm("the command's Python does not have Drumline's hook")
        if any(one[:3] != first[:3] for one in self.programs):
            raise shell_command.NotWarm("the ranks of a node run different programs")
        self._found = imports.find_imports(first)
        standard = getattr(sys, "stdlib_module_names", ())
        self._packages = {step.module.partition(".")[0] for step in self._found.imports if step.module}
        if mode != "on" and self._packages.issubset(standard):
            until = f"; {self._found.until}" if self._found.until else ""
            raise shell_command.NotWarm(f"nothing to import ahead{until}")
        # What a rank is started with, and what its interpreter may not have.
        self._split = split_variables([one.env for one in self.programs], tasks[0].secrets)
        self._check_secrets(first, tasks)
        try:
            self.peer = pool_folder.connect_to_pool(pool)
        except OSError as error:
            raise shell_command.NotWarm(f"there is no warm pool: {error.strerror or error}") from error
        pool_folder.send(self.peer, {"spec": self._spec(first, tasks[0].cores), "ranks": len(tasks)})
        self.peer.settimeout(_ANSWER_TIMEOUT_S)

    def _check_secrets(self, program: Program, tasks: Sequence[Task]) -> None:
        """Raise NotWarm where an interpreter would keep a secret under another name, as after ``export B=$A``."""
        values = [task.env[name] for task in tasks for name in task.secrets if name in task.env]
        texts = [*self._split.env.values(), program.python, *program.flags, *program.target, program.cwd]
        texts += [text for step in self._found.imports for text in (str(step), *step.names)]
        if any(value in text for value in values for text in texts):
            raise shell_command.NotWarm("a secret of the job is in more than its own variable")

    def is_overdue(self) -> bool:
        """Return whether the pool would have refused by now, if it was running."""
        return time.monotonic() - self.began > _MAX_WAIT_S

    def fileno(self) -> int:
        """Return a descriptor that is readable when there is an answer."""
        return self.peer.fileno()

    @property
    def until(self) -> str:
        return self._found.until

    def _spec(self, program: Program, cores: Sequence[int]) -> dict[str, Any]:
        env = self._split.env
        paths = env.get("PYTHONPATH", "").split(os.pathsep) if env.get("PYTHONPATH") else []
        is_relative = any(not os.path.isabs(path) for path in paths)
        return {
            "python": shell_command.find_interpreter(program),
            "argv0": program.python,
            "flags": list(program.flags),
            "target": list(program.target),
            "env": env,
            "cwd": program.cwd,
            # How many there are is what libraries take for the number of their threads.
            "cores": list(cores),
            # A path of modules that depends on the folder.
            "bound": program.cwd if is_relative else "",
            "imports": self._found.imports,
            "left_out": sorted(imports.LEFT_OUT),
            "asked": sorted(self._packages),
            "free": self._split.free,
            "differs": self._split.differs,
            "skip": [],
        }

    def answer(self) -> ForkServer:
        """Return the fork server that the pool gave. Raises NotWarm with the reason why not, OSError."""
        with self.peer:
            if not select.select([self.peer], [], [], 0)[0]:
                raise shell_command.NotWarm(f"the warm pool has not answered for {_MAX_WAIT_S} s")
            try:
                said = pool_folder.receive(self.peer)
                if "unfit" in said:
                    raise shell_command.NotWarm(said["unfit"] or "the warm pool refused")
                peer = socket.socket(fileno=pool_folder.receive_descriptor(self.peer))
            except (ConnectionError, ValueError, TimeoutError) as error:
                raise shell_command.NotWarm(f"the warm pool did not answer: {error}") from error
        try:
            fork_server = ForkServer(peer, said)
        except BaseException:
            peer.close()
            raise
        try:
            self._check(said)
        except BaseException:
            fork_server.close()
            raise
        return fork_server

    def _check(self, said: dict[str, Any]) -> None:
        for name in said["reads"]:
            if any(name in program.env for program in self.programs):
                raise shell_command.NotWarm(f"{name} is looked at while modules are imported")
        hidden = _find_shadow(self._found.folder, said["names"])
        if hidden:
            raise shell_command.NotWarm(
                f"{hidden} stands beside the program, in the place of an installed module"
            )

    def close(self) -> None:
        self.peer.close()


class ForkServer:
    """Forks ranks. ``facts``: of the warm interpreter, as the warm pool has them."""

    def __init__(self, peer: socket.socket, facts: dict[str, Any]) -> None:
        peer.settimeout(_ANSWER_TIMEOUT_S)
        self._peer = peer
        self._pidfd = os.pidfd_open(int(facts["fork_server"]))
        self._alive: set[int] = set()
        self._is_gone = False
        self.lost: set[int] = set()
        """Ranks that ended because it did."""

        self.aside = 0
        self.facts = facts
        self.pid = int(facts["fork_server"])

    def start(self, tasks: Sequence[Task], programs: Sequence[Program]) -> list[StartedRank]:
        """Start all ranks at once, each with its program. Raises OSError if the fork server is gone."""
        ranks = [_describe_rank(task, programs[index]) for index, task in enumerate(tasks)]
        try:
            pool_folder.send(self._peer, {"do": "start", "ranks": ranks})
            started = pool_folder.receive(self._peer)["started"]
        except ValueError as error:
            raise ConnectionError(str(error)) from error
        self._alive |= {one["pid"] for one in started}
        return [
            StartedRank(task.rank, started[index]["pid"], started[index]["error"], started[index]["cold"])
            for index, task in enumerate(tasks)
        ]

    def limit_open_files(self) -> None:
        """
        Give its ranks our own limit of open files: it has the warm pool's, or one that an import has set, which stays.

        Raises OSError.
        """
        import resource

        ours = resource.getrlimit(resource.RLIMIT_NOFILE)
        theirs = resource.prlimit(self.pid, resource.RLIMIT_NOFILE)
        if theirs != ours and theirs[0] == self.facts["open_files"]:
            resource.prlimit(self.pid, resource.RLIMIT_NOFILE, ours)

    def enter_node(self) -> None:
        """Bring it to the isolated node that this process is on. Raises NotWarm, OSError."""
        limits.join_own_groups(self.pid)
        opened = namespaces.open_own()
        try:
            message = {"do": "enter", "names": [name for _, name in opened]}
            pool_folder.send(self._peer, message, *[descriptor for descriptor, _ in opened])
            failure = pool_folder.receive(self._peer)["failure"]
        finally:
            for descriptor, _ in opened:
                os.close(descriptor)
        if failure:
            raise shell_command.NotWarm(f"its fork server could not be brought to the node: {failure}")

    def reap(self) -> list[EndedProcess]:
        """Return which of its children have ended since, orphans of ranks among them; does not wait for more."""
        if not self._is_gone:
            try:
                pool_folder.send(self._peer, {"do": "reap"})
                if not select.select([self._peer], [], [], _STOPPED_AFTER_S)[0]:
                    signal.pidfd_send_signal(self._pidfd, signal.SIGCONT)
                ended = [EndedProcess(*one) for one in pool_folder.receive(self._peer)["ended"]]
            except (OSError, ValueError):
                self._give_up()
            else:
                self._alive -= {one.pid for one in ended}
                return ended
        # It was killed, and its ranks with it.
        gone = [pid for pid in self._alive if not process_usage.is_running(pid)]
        self._alive -= set(gone)
        self.lost |= set(gone)
        return [EndedProcess(pid, -signal.SIGKILL, 0, 0.0) for pid in gone]

    def _give_up(self) -> None:
        """Kill a fork server that does not answer, and with it its ranks."""
        self._is_gone = True
        with contextlib.suppress(OSError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def close(self) -> None:
        """End it and everything below it."""
        self._peer.close()
        self._is_gone = True
        if self._pidfd >= 0:
            # It sees that we are gone when it runs.
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGCONT)
            os.close(self._pidfd)
            self._pidfd = -1


def _describe_rank(task: Task, program: Program) -> dict[str, Any]:
    return {
        "argv": [program.python, *program.flags, *program.target, *program.args],
        "args": list(program.args),
        "env": program.env,
        "cwd": program.cwd,
        "log": task.log,
        "cores": list(task.cores),
        # For the case that it must be started cold after all.
        "command": list(task.argv),
        "variables": task.env,
        "folder": task.cwd,
    }


def _find_shadow(folder: str, names: Sequence[str]) -> str:
    """Return what in the program's own folder would be imported instead of one of these modules."""
    known = set(names)
    try:
        entries = os.listdir(folder)
    except OSError:
        return ""
    for entry in entries:
        name = entry.partition(".")[0]
        if name not in known:
            continue
        if entry.endswith(_MODULE_ENDINGS):
            return entry
        if os.path.isdir(os.path.join(folder, entry)) and any(
            os.path.exists(os.path.join(folder, entry, "__init__" + end)) for end in _MODULE_ENDINGS
        ):
            return entry + os.sep
    return ""
