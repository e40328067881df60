"""
Starting a rank: a session of its own, its output straight to its file, dying with its agent; which have ended; and the
input of commands that other nodes ask for.

Called from the agent's main thread alone (``kernel.die_with_parent`` says why).
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import socket
from typing import TYPE_CHECKING

from drumline.contract.words import format_size
from drumline.linux import descendants, kernel

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from drumline.node.warm.rank_starter import WarmRankStarter


NOT_FOUND = 127
NOT_EXECUTABLE = 126
"""Exit codes of a program that could not be started, as shells have them."""


_CONNECT_TIMEOUT_S = 10.0


class StartedProcess:
    """A process that was forked, and may still fail to become its program."""

    def __init__(self, pid: int, report: int) -> None:
        self.pid = pid
        self._report = report

    def error(self) -> str:
        """Return why the process could not start; empty when it did. Blocks until that is known; to be called once."""
        with os.fdopen(self._report, "rb") as report:
            return report.read().decode(errors="replace")


def start_process(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: str,
    cores: Sequence[int],
    log: str = "",
    back: tuple[str, int, str] | None = None,
    feed: int = -1,
    host_name: str = "",
) -> StartedProcess:
    """
    Fork, and become ``argv`` in the child. Raises OSError when not even that is possible.

    Output goes to ``log``, or to (address, port, token) in ``back``, over a connection for output and one for errors.
    ``feed``: the descriptor to read input from; none: there is no input. ``host_name``: what it takes this machine to
    be called, where the kernel allows that.
    """
    reader, writer = os.pipe()
    agent = os.getpid()
    pid = os.fork()
    if pid:
        os.close(writer)
        return StartedProcess(pid, reader)
    try:
        if host_name:
            kernel.take_host_name(host_name)
        # A session of its own, so that no terminal and no stranger's signal reaches it.
        os.setsid()
        kernel.die_with_parent(signal.SIGKILL, agent)
        kernel.become_ordinary()
        if back:
            _connect_streams(back, feed)
        else:
            _open_log(log)
        os.chdir(cwd)
        if cores:
            # Cores that are not there, as in a smaller container, are no reason not to train.
            with contextlib.suppress(OSError):
                os.sched_setaffinity(0, cores)
        os.execvpe(argv[0], list(argv), dict(env))  # noqa: S606 - the user's own program
    except BaseException as error:  # noqa: BLE001 - whatever it is, the agent is told
        code = NOT_EXECUTABLE if isinstance(error, PermissionError) else NOT_FOUND
        os.write(writer, _explain(error, argv, env, cwd, log).encode(errors="backslashreplace"))
        os._exit(code)
    finally:
        os._exit(NOT_FOUND)


def _open_log(log: str) -> None:
    # Straight to the file: a pipe that nobody empties would block training.
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)


def _connect_streams(back: tuple[str, int, str], feed: int) -> None:
    os.dup2(feed if feed >= 0 else os.open(os.devnull, os.O_RDONLY), 0)
    address, port, token = back
    for number, target in ((b"1", 1), (b"2", 2)):
        with socket.create_connection((address, port), _CONNECT_TIMEOUT_S) as peer:
            peer.settimeout(None)
            peer.sendall(token.encode() + number)
            os.dup2(peer.fileno(), target)


def _explain(error: BaseException, argv: Sequence[str], env: Mapping[str, str], cwd: str, log: str) -> str:
    if not isinstance(error, OSError):
        what = str(error) if isinstance(error, ValueError) else repr(error)
        return f"could not start {argv[0]!r}: {what}"
    if error.filename and error.filename in (cwd, log):
        return f"{error.strerror}: {error.filename}"
    more = ""
    if error.errno == errno.E2BIG:
        more = _describe_longest(argv, env)
    elif error.errno == errno.ENOENT:
        more = _describe_interpreter(argv[0])
    return f"could not start {argv[0]!r}: {error.strerror}{more}"


_MOST_STRING = 1 << 17
"""Of one argument or variable. Source: execve(2), MAX_ARG_STRLEN."""


def _describe_longest(argv: Sequence[str], env: Mapping[str, str]) -> str:
    """Describe the longest of what a program is started with, which the kernel has refused."""
    sizes = {f"the variable {name}": len(os.fsencode(f"{name}={value}")) + 1 for name, value in env.items()}
    sizes["the command"] = max(len(os.fsencode(word)) + 1 for word in argv)
    longest = max(sizes, key=lambda name: sizes[name])
    if sizes[longest] > _MOST_STRING:
        return (
            f": {longest} has {format_size(sizes[longest])}, the most for one is {format_size(_MOST_STRING)}"
        )
    return (
        f": variables and command have {format_size(sum(sizes.values()))} together; the longest is {longest}"
    )


def _describe_interpreter(path: str) -> str:
    """Describe why a script that is there could not be found: its interpreter is not."""
    try:
        with open(path, "rb") as script:
            first = script.readline(256)
    except OSError:
        return ""
    if not first.startswith(b"#!"):
        return ""
    if first.endswith(b"\r\n"):
        return "; the script has Windows line ends (CRLF); save it with those of Unix"
    return f": its interpreter {first[2:].decode(errors='replace').strip()!r}"


# which have ended, and in which order


class Children:
    """
    The agent's children, those of ``warm.fork_server`` included. Each has a descriptor in ``poller`` until it ends.
    """

    def __init__(self, poller: select.epoll, warm: WarmRankStarter) -> None:
        self._poller = poller
        self._warm = warm
        self._pidfds: dict[int, int] = {}
        self._early: list[descendants.EndedProcess] = []
        """Ends that were seen before they could be told."""

    def watch(self, pid: int) -> None:
        self._pidfds[pid] = os.pidfd_open(pid)
        self._poller.register(self._pidfds[pid], select.EPOLLIN)

    def forget(self, pid: int) -> bool:
        """Return False for a process that was not watched: an orphan of a rank."""
        pidfd = self._pidfds.pop(pid, None)
        if pidfd is None:
            return False
        self._poller.unregister(pidfd)
        os.close(pidfd)
        return True

    def has_failed(self, ready: Sequence[int]) -> bool:
        """Return whether a child whose descriptor is ready has ended otherwise than well. Nothing is reaped by it."""
        return any(self._has_failed(pid) for pid, pidfd in self._pidfds.items() if pidfd in ready)

    def _has_failed(self, pid: int) -> bool:
        """
        Return whether that child has ended otherwise than well; ours is not reaped yet, a fork server's is told later.
        """
        try:
            ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            if self._warm.fork_server:
                self._early += self._warm.fork_server.reap()
            return any(one.pid == pid and one.exit_code != 0 for one in self._early)
        return ended is not None and ended.si_status != 0

    def reap(self, ready: Sequence[int] = (), until: int | None = None) -> list[descendants.EndedProcess]:
        """
        Return those that have ended, in that order; orphans of ranks too.

        ``ready``: descriptors in the order in which things happened to them; what happened from the place ``until`` on
        is returned later.
        """
        if until is not None and not set(ready[:until]) & set(self._pidfds.values()):
            return []
        order = {descriptor: index for index, descriptor in enumerate(ready)}
        ended = [*self._early, *descendants.reap_children(self._warm.fork_server)]
        self._early = []
        places = {one.pid: order.get(self._pidfds.get(one.pid, -1), len(order)) for one in ended}
        ended.sort(key=lambda one: places[one.pid])
        if until is not None:
            self._early = [one for one in ended if places[one.pid] >= until]
            ended = [one for one in ended if places[one.pid] < until]
        return ended

    def end_all(
        self,
        grace_s: float,
        told: Collection[int],
        told_until: float | None,
        is_urgent: Callable[[], bool],
    ) -> tuple[list[descendants.EndedProcess], list[int]]:
        """End all as ``descendants.end_descendants`` does; the ends that were not told before come first."""
        ended, survivors = descendants.end_descendants(
            grace_s, told=told, told_until=told_until, is_urgent=is_urgent, other=self._warm.fork_server
        )
        early, self._early = self._early, []
        return [*early, *ended], survivors


# The standard input of commands that programs of other nodes ask for: from a connection, through a pipe.
#
# The connection itself must not be a command's standard input. A bash that sees a socket there takes itself for started
# by rshd, and below a shell of level 0 (cron, systemd, ``env -i``) it then reads ``~/.bashrc``, which changes its
# variables.


_CHUNK_BYTES = 1 << 16


class StdinRelays:
    """All of one agent, served by its loop."""

    def __init__(self, poller: select.epoll) -> None:
        self._poller = poller
        self._of: dict[int, _StdinRelay] = {}
        """By descriptor: both ends of each that is registered now."""

    def open(self, address: str, port: int, token: str) -> int:
        """
        Connect there, and return the descriptor to read from, which the caller closes. A connection that fails is an
        input that ends. Raises OSError when there are no descriptors left.
        """
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        try:
            peer = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        except OSError:
            os.close(reader)
            os.close(writer)
            raise
        peer.setblocking(False)
        peer.connect_ex((address, port))
        relay = _StdinRelay(peer, writer, token.encode() + b"0")
        self._register(relay, peer.fileno(), select.EPOLLOUT)
        # Without a wish of ours it is ready when nobody reads any more.
        self._register(relay, writer, 0)
        return reader

    def _register(self, relay: _StdinRelay, descriptor: int, events: int) -> None:
        self._of[descriptor] = relay
        self._poller.register(descriptor, events)

    def hear(self, ready: set[int]) -> None:
        """Serve those of the descriptors that are ours."""
        for descriptor in ready & self._of.keys():
            relay = self._of.get(descriptor)
            if relay is not None and not self._move(relay, descriptor):
                self._close(relay)

    def _move(self, relay: _StdinRelay, descriptor: int) -> bool:
        """Move input on; False when the relay is over."""
        try:
            if descriptor == relay.writer:
                return bool(relay.pending) and self._pass_on(relay)
            if relay.greeting:
                relay.peer.sendall(relay.greeting)
                relay.greeting = b""
                self._poller.modify(descriptor, select.EPOLLIN)
                return True
            relay.pending = relay.peer.recv(_CHUNK_BYTES)
            return bool(relay.pending) and self._pass_on(relay)
        except BlockingIOError:
            return True
        except OSError:
            return False

    def _pass_on(self, relay: _StdinRelay) -> bool:
        """Write as much as the pipe takes; more is read when all of it has gone."""
        with contextlib.suppress(BlockingIOError):
            relay.pending = relay.pending[os.write(relay.writer, relay.pending) :]
        peer = relay.peer.fileno()
        if relay.pending and peer in self._of:
            # Not even its end is asked for: that would be told again and again.
            del self._of[peer]
            self._poller.unregister(peer)
            self._poller.modify(relay.writer, select.EPOLLOUT)
        elif not relay.pending and peer not in self._of:
            self._register(relay, peer, select.EPOLLIN)
            self._poller.modify(relay.writer, 0)
        return True

    def _close(self, relay: _StdinRelay) -> None:
        for descriptor in (relay.peer.fileno(), relay.writer):
            if self._of.pop(descriptor, None) is not None:
                self._poller.unregister(descriptor)
        relay.peer.close()
        os.close(relay.writer)


class _StdinRelay:
    def __init__(self, peer: socket.socket, writer: int, greeting: bytes) -> None:
        self.peer = peer
        self.writer = writer
        self.greeting = greeting
        """What is sent as soon as the connection is there; empty once it was."""

        self.pending = b""
        """What was read and does not fit into the pipe yet."""
