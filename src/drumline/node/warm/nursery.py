"""
What an agent knows of warm interpreters: it asks the keeper for one, and has the nursery that it gets start its ranks.

A rank is then a child of the nursery, which waits for it when the agent says so, and ends with everything below it when
the agent is gone. For signals, and for what there is, the agent looks below the nursery as below itself.
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

from drumline.node.descendants import Ended
from drumline.node.failures import HOOK
from drumline.node.warm import command, frames, imports, place, surroundings
from drumline.node.warm.tasks import Born

if TYPE_CHECKING:
    from collections.abc import Sequence

    from drumline.node.warm.command import Program
    from drumline.node.warm.imports import Found
    from drumline.node.warm.tasks import Task

_TIMEOUT_S = 30.0
"""For an answer of a process that does nothing else; a machine may be busy."""

_MOST_WAIT_S = 360.0

_STOPPED_S = 1.0
"""Without an answer for so long, it may be that somebody has stopped it."""

_SHADOWS = (".py", ".pyc", ".so")


class Request:
    """To a keeper, which may take as long as the imports take. Raises command.NotWarm, where that is known before."""

    def __init__(self, keeper: str, mode: str, tasks: Sequence[Task]) -> None:
        self.began = time.monotonic()
        self.programs = [command.parse(task.argv, task.env, task.cwd) for task in tasks]
        first = self.programs[0]
        if any(one.env.get("PYTHONPATH", "").split(os.pathsep)[0] != HOOK for one in self.programs):
            raise command.NotWarm("the command's Python does not have Drumline's hook")
        if any(one[:3] != first[:3] for one in self.programs):
            raise command.NotWarm("the ranks of a node run different programs")
        self._found = imports.of_program(first)
        if mode != "on" and not any(_is_foreign(one.module) for one in self._found.imports):
            raise command.NotWarm(_nothing(self._found))
        # What a rank is started with, and what its interpreter may not have.
        self._split = surroundings.split([one.env for one in self.programs])
        try:
            self.peer = place.connect(keeper)
        except OSError as error:
            raise command.NotWarm(f"there is no keeper: {error.strerror or error}") from error
        frames.send(self.peer, {"spec": self._spec(first, tasks[0].cores), "ranks": len(tasks)})
        self.peer.settimeout(_TIMEOUT_S)

    def is_overdue(self) -> bool:
        """Whether it would have refused by now, if it was running."""
        return time.monotonic() - self.began > _MOST_WAIT_S

    def fileno(self) -> int:
        """Readable when there is an answer."""
        return self.peer.fileno()

    @property
    def until(self) -> str:
        return self._found.until

    def _spec(self, program: Program, cores: Sequence[int]) -> dict[str, Any]:
        env = self._split.env
        paths = env.get("PYTHONPATH", "").split(os.pathsep) if env.get("PYTHONPATH") else []
        is_relative = any(not os.path.isabs(path) for path in paths)
        return {
            "python": command.resolve(program),
            "argv0": program.python,
            "flags": list(program.flags),
            "target": list(program.target),
            "env": env,
            "cwd": program.cwd,
            # How many there are is what libraries take for the number of their threads.
            "cores": list(cores),
            # A path of modules that depends on the folder.
            "bound": program.cwd if is_relative else "",
            "imports": _steps(self._found),
            "left_out": sorted(imports.LEFT_OUT),
            "asked": sorted({one.module.partition(".")[0] for one in self._found.imports}),
            "free": self._split.free,
            "differs": self._split.differs,
            "skip": [],
        }

    def answer(self) -> Nursery:
        """What it answered. Raises command.NotWarm with why not, OSError."""
        with self.peer:
            if not select.select([self.peer], [], [], 0)[0]:
                raise command.NotWarm(f"the keeper has not answered for {_MOST_WAIT_S:.0f} s")
            try:
                said = frames.receive(self.peer)
                if "unfit" in said:
                    raise command.NotWarm(said["unfit"] or "the keeper refused")
                peer = socket.socket(fileno=frames.receive_descriptor(self.peer))
            except (ConnectionError, ValueError, TimeoutError) as error:
                raise command.NotWarm(f"the keeper did not answer: {error}") from error
        try:
            nursery = Nursery(peer, said)
        except BaseException:
            peer.close()
            raise
        try:
            self._check(said)
        except BaseException:
            nursery.close()
            raise
        return nursery

    def _check(self, said: dict[str, Any]) -> None:
        for name in said["reads"]:
            if any(name in program.env for program in self.programs):
                raise command.NotWarm(f"{name} is looked at while modules are imported")
        hidden = _hidden(self._found.folder, said["names"])
        if hidden:
            raise command.NotWarm(f"{hidden} stands beside the program, in the place of an installed module")

    def close(self) -> None:
        self.peer.close()


class Nursery:
    """Forks ranks. ``facts``: of the warm interpreter, as the keeper has them."""

    def __init__(self, peer: socket.socket, facts: dict[str, Any]) -> None:
        peer.settimeout(_TIMEOUT_S)
        self._peer = peer
        self._pidfd = os.pidfd_open(int(facts["nursery"]))
        self._alive: set[int] = set()
        self._is_gone = False
        self.lost: set[int] = set()
        """Ranks that ended because it did."""

        self.aside = 0
        self.facts = facts
        self.pid = int(facts["nursery"])

    def start(self, tasks: Sequence[Task], programs: Sequence[Program]) -> list[Born]:
        """All at once, each with its program. Raises OSError when the nursery is gone."""
        ranks = [_order(task, programs[index]) for index, task in enumerate(tasks)]
        try:
            frames.send(self._peer, {"do": "start", "ranks": ranks})
            started = frames.receive(self._peer)["started"]
        except ValueError as error:
            raise ConnectionError(str(error)) from error
        self._alive |= {one["pid"] for one in started}
        return [
            Born(task.rank, started[index]["pid"], started[index]["error"], started[index]["cold"])
            for index, task in enumerate(tasks)
        ]

    def reap(self) -> list[Ended]:
        """What of its children has ended since, orphans of ranks among them; does not block for longer than that."""
        if not self._is_gone:
            try:
                frames.send(self._peer, {"do": "reap"})
                if not select.select([self._peer], [], [], _STOPPED_S)[0]:
                    signal.pidfd_send_signal(self._pidfd, signal.SIGCONT)
                ended = [Ended(*one) for one in frames.receive(self._peer)["ended"]]
            except (OSError, ValueError):
                self._give_up()
            else:
                self._alive -= {one.pid for one in ended}
                return ended
        # It was killed, and its ranks with it.
        gone = [pid for pid in self._alive if not _is_running(pid)]
        self._alive -= set(gone)
        self.lost |= set(gone)
        return [Ended(pid, int(signal.SIGKILL), 0, 0.0) for pid in gone]

    def _give_up(self) -> None:
        """It does not answer: if it is still there, it and its ranks end."""
        self._is_gone = True
        with contextlib.suppress(OSError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def close(self) -> None:
        """It ends, and all that is below it."""
        self._peer.close()
        self._is_gone = True
        if self._pidfd >= 0:
            # It sees that we are gone when it runs.
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGCONT)
            os.close(self._pidfd)
            self._pidfd = -1


def _steps(found: Found) -> list[list[Any]]:
    """Imports, and between them what the program sets: no module, but a name and its value."""
    steps: list[list[Any]] = []
    for index, one in enumerate(found.imports):
        steps += [["", [name, found.sets[name]], ""] for name, after in found.after.items() if after == index]
        steps.append(list(one))
    return steps


def _order(task: Task, program: Program) -> dict[str, Any]:
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


def _is_foreign(module: str) -> bool:
    """Whether it is not of the standard library."""
    return module.partition(".")[0] not in getattr(sys, "stdlib_module_names", ())


def _nothing(found: Found) -> str:
    return f"nothing to import ahead; {found.until}" if found.until else "nothing to import ahead"


def _hidden(folder: str, names: Sequence[str]) -> str:
    """What in the program's own folder would be imported in the place of one of these."""
    known = set(names)
    try:
        entries = os.listdir(folder)
    except OSError:
        return ""
    for entry in entries:
        name = entry.partition(".")[0]
        if name not in known:
            continue
        if entry.endswith(_SHADOWS):
            return entry
        if os.path.isdir(os.path.join(folder, entry)) and any(
            os.path.exists(os.path.join(folder, entry, "__init__" + end)) for end in _SHADOWS
        ):
            return entry + os.sep
    return ""


def _is_running(pid: int) -> bool:
    with contextlib.suppress(OSError, IndexError), open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    return False
