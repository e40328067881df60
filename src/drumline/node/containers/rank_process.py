"""
A rank's process where the rank runs in a container: it starts the engine's client, stands for the program that runs
inside, and ends with its exit code.

    rank_process.py TOLD WORD...    TOLD: JSON, as ``rank_containers.wrap_command`` makes it; then the program

It adopts what the engine starts, so all of that is below it. A SIGTERM is passed on as an agent passes one on to a rank
without a container (``descendants.ask_to_end``), with one difference: a shell that would end of it is told after what
it has started, because a container ends with its first process, and everything in it at once.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import stat
import sys
from typing import Any

sys.path.append(os.path.abspath(os.path.join(__file__, "../../../..")))

from drumline.contract.words import format_size
from drumline.linux import descendants, kernel, process_usage
from drumline.node.containers import rank_containers

_ENGINE_FAILED = 125
_ENDING_POLL_S = 0.05
_IDLE_S = 5.0
_REAP_TIMEOUT_S = 1.0
"""For what watched the container, when that has ended."""

_MAX_NOTES_BYTES = 1 << 20
_SIGNALS = (signal.SIGTERM, signal.SIGCHLD, signal.SIGINT, signal.SIGHUP)


def main() -> int:
    told: dict[str, Any] = json.loads(sys.argv[1])
    kernel.adopt_orphans()
    state = told["state"] = told["state"] or os.path.join(os.environ["DRUMLINE_RUN_FOLDER"], ".containers")
    os.makedirs(state, 0o700, exist_ok=True)
    try:
        return ContainedRank(told, sys.argv[2:]).run()
    except (OSError, ValueError) as error:
        print(f"the container could not be started: {error}", file=sys.stderr)
        return _ENGINE_FAILED


class ContainedRank:
    def __init__(self, told: dict[str, Any], program: list[str]) -> None:
        self._told = told
        self._pid_file = rank_containers.get_pid_file(told["state"], os.getpid())
        self._facts = rank_containers.gather_facts(told, self._pid_file)
        self._argv = rank_containers.build_command_line(told, self._facts, program)
        self._env = rank_containers.build_variables(told, os.environ)
        self._wants_end = False
        # With handlers, by which the agent sees that this process deals with SIGTERM.
        self._awake, writer = os.pipe()
        for descriptor in (self._awake, writer):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for number in _SIGNALS:
            signal.signal(number, self._on_signal)
        self._asked: set[int] = set()
        self._last_told = False
        self._inner = 0
        self._has_ended = False
        """Whether the engine's client has seen the end, so that nothing of the container is left."""

    def run(self) -> int:
        """Run the program in its container until it has ended; return its exit code. Raises OSError, ValueError."""
        if rank_containers.has_private_memory(self._told, self._facts):
            wanted, there = map(format_size, (self._told["shm_bytes"], self._facts.shared_bytes))
            text = f"shm_size: {wanted} is more than the {there} of this machine, which its processes share"
            print(f"{text}; each rank has its own instead", file=sys.stderr)
        record = self._record()
        try:
            client = self._start()
            code = self._wait_for(client)
            self._learn_inner()
            self._reap()
            self._own_notes()
        finally:
            with contextlib.suppress(OSError):
                os.unlink(self._pid_file)
        if self._has_ended:
            with contextlib.suppress(OSError):
                os.unlink(record)
        return code

    def _on_signal(self, number: int, _frame: object) -> None:
        self._wants_end = self._wants_end or number == signal.SIGTERM

    def _sleep(self, seconds: float) -> None:
        """Sleep, or until a signal has come."""
        if select.select([self._awake], [], [], seconds)[0]:
            os.read(self._awake, 4096)

    def _record(self) -> str:
        """Record the container, so that others remove it where this process is killed; return the record's path."""
        path = os.path.join(self._told["state"], self._facts.name)
        if self._told["kind"] in rank_containers.ENGINES:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            os.write(descriptor, f"{self._told['kind']}\n{os.getpid()}\n".encode())
            os.close(descriptor)
        return path

    def _start(self) -> int:
        me = os.getpid()
        pid = os.fork()
        if pid:
            return pid
        try:
            kernel.die_with_parent(signal.SIGKILL, me)
            for number in (*_SIGNALS, signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(number, signal.SIG_DFL)
            os.execve(self._argv[0], self._argv, self._env)  # noqa: S606 - the engine
        except OSError as error:
            os.write(2, f"could not start {self._argv[0]!r}: {error.strerror}\n".encode())
        finally:
            os._exit(_ENGINE_FAILED)

    def _wait_for(self, client: int) -> int:
        while True:
            self._sleep(_ENDING_POLL_S if self._wants_end else _IDLE_S)
            for one in descendants.reap_children():
                if one.pid == client:
                    code = one.exit_code
                    self._has_ended = code >= 0 and code != _ENGINE_FAILED
                    return code if code >= 0 else 128 - code
            if self._wants_end:
                self._ask_to_end()

    def _ask_to_end(self) -> None:
        """Ask first what the shells have started to end, and when that is gone, the shells."""
        self._learn_inner()
        if not self._inner:
            return  # It is still on its way.
        if not self._asked:
            now, later = choose_told_first(self._inner)
            self._asked = set(now)
            self._last_told = not later
            _send_sigterm(now, self._told["kind"], self._facts.name)
        elif not self._last_told and not any(map(process_usage.is_running, self._asked)):
            self._last_told = True
            _send_sigterm(
                [self._inner, *descendants.list_descendants(self._inner)],
                self._told["kind"],
                self._facts.name,
            )

    def _learn_inner(self) -> None:
        if not self._inner:
            self._inner = rank_containers.read_number(self._pid_file)

    def _reap(self) -> None:
        """Reap the processes that watched the container; their usage shows how much memory it has used."""
        for _ in range(int(_REAP_TIMEOUT_S / _ENDING_POLL_S)):
            descendants.reap_children()
            if not descendants.has_children():
                return
            self._sleep(_ENDING_POLL_S)

    def _own_notes(self) -> None:
        """Make this process the author of the notes of the first process in the container."""
        path = os.environ.get("DRUMLINE_FAILURES", "")
        if not self._inner or not path:
            return
        with contextlib.suppress(OSError, ValueError):
            descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
            with open(descriptor, "r+b") as file:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    return
                lines = [
                    _rename_author(line, self._inner) for line in file.read(_MAX_NOTES_BYTES).splitlines()
                ]
                file.seek(0)
                file.truncate()
                file.write(b"".join(line + b"\n" for line in lines))


def choose_told_first(first: int) -> tuple[list[int], bool]:
    """
    Return which of a container's processes to tell to end, and whether more are to be told later.

    A shell is not told that would end of it while something runs below, nor a process below one that handles the
    signal.
    """
    told: list[int] = []
    waiting = [first]
    later = False
    while waiting:
        pid = waiting.pop()
        below = descendants.list_children(pid)
        handles, shell = descendants.handles_sigterm(pid), descendants.is_shell(pid)
        if shell and not handles and below:
            later = True
        else:
            told.append(pid)
        if not handles or shell:
            waiting += below
    return told, later


def _send_sigterm(pids: list[int], kind: str, name: str) -> None:
    refused = False
    for pid in pids:
        try:
            if _is_ours(pid):
                os.kill(pid, signal.SIGTERM)
        except ProcessLookupError:
            continue
        except PermissionError:
            refused = True
    if refused and kind in rank_containers.ENGINES:
        # Processes of another user inside: its engine may signal them.
        os.spawnlp(os.P_WAIT, kind, kind, "kill", "--signal", "TERM", name)  # noqa: S606


def _is_ours(pid: int) -> bool:
    """Return whether a process is of our run: its number came from a file that the job can write."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            variables = file.read()
    except PermissionError:
        return True  # Then nor can it be signalled.
    except OSError:
        return False
    marker = os.fsencode(f"DRUMLINE_RUN_FOLDER={os.environ.get('DRUMLINE_RUN_FOLDER', '')}")
    return marker in variables.split(b"\0")


def _rename_author(line: bytes, inner: int) -> bytes:
    one = json.loads(line)
    for key in ("pid", "parent"):
        if one.get(key) == inner:
            one[key] = os.getpid()
    return json.dumps(one).encode()


if __name__ == "__main__":
    sys.exit(main())
