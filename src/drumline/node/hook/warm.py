"""
An interpreter that is held in the middle of its own start, with what its program imports imported, and its forks.

``sitecustomize.py`` calls ``serve`` in a process that was started as a rank's is, ``python [flags] train.py``, with the
number of a socket in ``DRUMLINE_WARM_SERVER``. It imports what it is told to and waits. For each agent it forks a
*fork server*; for each rank the fork server forks, and in that child ``serve`` returns: the interpreter goes on as if
nothing had been, with the environment, arguments, descriptors and working folder of the rank. So the rank's
``__main__``, its path, its flags and its tracebacks are the interpreter's own doing, and there is nothing here to
imitate.

Whatever goes wrong in that child before it returns: it executes the rank's own command instead, and says why.

It runs in users' environments: the standard library alone, Python 3.9 or newer. Messages are JSON behind their length
in four bytes (``node/warm/pool_folder.py``).
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import select
import signal
import socket
import struct
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Optional

VARIABLE = "DRUMLINE_WARM_SERVER"

_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36

_END_TIMEOUT_S = 60.0
_STRAYS_TIMEOUT_S = 5.0


def serve(own: Callable[[str, str], dict[str, Any]]) -> None:
    """
    Serve the pool; returns in ranks only. Ends with the process that holds the other end of the socket.

    ``own`` gives the names that a file beside this one defines.
    """
    pool = socket.socket(fileno=int(os.environ.pop(VARIABLE)))
    pool.set_inheritable(False)
    task = _receive(pool)
    if task is None:
        os._exit(0)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    imports, rank = own("warm_imports.py", "drumline_warm"), own("warm_rank.py", "drumline_warm")
    state = imports["State"](task, own("warm_watch.py", "drumline_warm"))
    try:
        state.script = rank["Script"](task["target"])
        report = state.warm_up()
    except BaseException as error:  # noqa: BLE001 - whatever an import raises
        why = (
            str(error)
            if isinstance(error, imports["UnfitError"])
            else "%s: %s" % (type(error).__name__, error)
        )
        _send(pool, {"unfit": why[:500], "tainted": state.tainted, "closure": state.closure()})
        os._exit(0)
    with_names = ["drumline-warm:", os.path.basename(sys.executable), *task["target"]]
    try:
        rank["show"](with_names, dict(os.environ))
    except OSError:
        pass  # It is a rank's first try that says so.
    # What was imported is never looked at again by a rank's collector, nor copied for it: at its end above all.
    gc.collect()
    gc.freeze()
    # Who tells all of a job to end, as Slurm does, means its ranks: each takes them in when it is one.
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT, signal.SIGHUP))
    _send(pool, {"ready": report})
    _prctl(_PR_SET_NAME, b"drumline-warm")
    one = _wait(pool, state, own)
    rank["become"](one, state)


def _wait(pool: socket.socket, state: Any, own: Callable[[str, str], dict[str, Any]]) -> dict[str, Any]:
    """Fork a fork server whenever one is asked for. Returns in a rank alone: what it is to be."""
    fork_servers: dict[int, int] = {}
    poller = select.poll()
    poller.register(pool, select.POLLIN)
    while True:
        ready = [number for number, _ in poller.poll()]
        for pidfd, pid in list(fork_servers.items()):
            if pidfd in ready:
                poller.unregister(pidfd)
                os.close(pidfd)
                del fork_servers[pidfd]
                _end_strays(set(fork_servers.values()))
                _send(pool, {"ended": pid})
        if pool.fileno() not in ready:
            continue
        message = _receive(pool)
        if message is None:
            os._exit(0)
        changed = state.stale()
        _, (descriptor, *_rest), _, _ = socket.recv_fds(pool, 1, 1)
        if changed:
            _send(pool, {"stale": changed})
            os._exit(0)
        pid = os.fork()
        if pid == 0:
            pool.close()
            for pidfd in fork_servers:
                os.close(pidfd)
            del poller
            one = _serve_agent(socket.socket(fileno=descriptor), own)
            if one is not None:
                return one
            os._exit(0)
        os.close(descriptor)
        pidfd = os.pidfd_open(pid)
        fork_servers[pidfd] = pid
        poller.register(pidfd, select.POLLIN)
        _send(pool, {"fork_server": pid})


def _end_strays(fork_servers: set[int]) -> None:
    """End the processes that a killed fork server has left; they are ours now."""
    deadline = time.monotonic() + _STRAYS_TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid:
            continue
        strays = [child for child in _children(os.getpid()) if child not in fork_servers]
        if not strays:
            return
        for child in strays:
            _kill(child)
        time.sleep(0.001)


def _serve_agent(agent: socket.socket, own: Callable[[str, str], dict[str, Any]]) -> Optional[dict[str, Any]]:
    """Serve one agent; in a rank, where everything else has been left behind, what that is to be."""
    os.setsid()
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    _prctl(_PR_SET_NAME, b"drumline-ranks")
    while True:
        try:
            message = _receive(agent)
        except OSError:
            message = None
        if message is None:
            _end_all()
            return None
        if message["do"] == "start":
            reports: list[tuple[int, int]] = []
            for one in message["ranks"]:
                reader, writer = os.pipe()
                fork_server, pid = os.getpid(), os.fork()
                if pid == 0:
                    os.close(reader)
                    for _, other in reports:
                        os.close(other)
                    agent.close()
                    return {**one, "report": writer, "fork_server": fork_server}
                os.close(writer)
                reports.append((pid, reader))
            _send(agent, {"started": [_outcome(pid, reader) for pid, reader in reports]})
        elif message["do"] == "enter":
            _send(agent, {"failure": own("warm_node.py", "drumline_warm")["enter"](agent, message["names"])})
        else:
            _send(agent, {"ended": _reap()})


def _outcome(pid: int, reader: int) -> dict[str, Any]:
    with os.fdopen(reader, "rb") as report:
        said = report.read().decode(errors="replace")
    kind, _, text = said.partition(" ")
    return {"pid": pid, "error": text if kind == "error" else "", "cold": text if kind == "cold" else ""}


def _reap() -> list[list[Any]]:
    ended: list[list[Any]] = []
    while True:
        try:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended.append(
            [pid, os.waitstatus_to_exitcode(status), usage.ru_maxrss << 10, usage.ru_utime + usage.ru_stime]
        )


def _end_all() -> None:
    """End everything below: the agent is gone, and nothing of its job may be left."""
    deadline = time.monotonic() + _END_TIMEOUT_S
    while time.monotonic() < deadline:
        for pid in _below(os.getpid()):
            _kill(pid)
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.001)
        except ChildProcessError:
            return


def _receive(peer: socket.socket) -> Optional[dict[str, Any]]:
    """Receive the next message; None at the end of the connection."""
    head = _exactly(peer, 4)
    if head is None:
        return None
    body = _exactly(peer, struct.unpack("!I", head)[0])
    message: Optional[dict[str, Any]] = None if body is None else json.loads(body)
    return message


def _exactly(peer: socket.socket, count: int) -> Optional[bytes]:
    found = b""
    while len(found) < count:
        more = peer.recv(count - len(found))
        if not more:
            return None
        found += more
    return found


def _send(peer: socket.socket, message: dict[str, Any]) -> None:
    body = json.dumps(message).encode()
    try:
        peer.sendall(struct.pack("!I", len(body)) + body)
    except OSError:
        pass  # Whoever is gone is seen to be at the next read.


def _prctl(option: int, value: Any) -> None:
    argument = ctypes.c_char_p(value) if isinstance(value, bytes) else ctypes.c_ulong(value)
    ctypes.CDLL(None).prctl(option, argument, 0, 0, 0)


def _content(path: str) -> str:
    try:
        with open(path, errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _children(pid: int) -> list[int]:
    try:
        tasks = os.listdir("/proc/%d/task" % pid)
    except OSError:
        return []
    return [int(one) for task in tasks for one in _content("/proc/%d/task/%s/children" % (pid, task)).split()]


def _below(pid: int) -> list[int]:
    found: list[int] = []
    waiting = [pid]
    while waiting:
        below = _children(waiting.pop())
        found += below
        waiting += below
    return found


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        pass
