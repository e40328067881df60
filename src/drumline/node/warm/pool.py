"""
Holds warm interpreters for the jobs of a user: starts one when an agent asks for what there is none of yet, has it fork
a fork server for each agent, and ends those that nobody has used for a while, and then itself.

It is started by the supervisor of the first job, which does not adopt it, so it belongs to no job and no job's end is
its; or by an agent, for itself alone. A rank is a child of its fork server: whoever ends this process ends
no rank.

agent asks: fork server  spec, ranks   answer: fork server, pid, ... and the fork server's socket; or unfit
a person:   list; stop  pid        answer: warm; stopped
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import resource
import select
import signal
import socket
import sys
import time
from typing import Any

from drumline.node.warm import frames, pool_folder
from drumline.node.warm.interpreter import WaitingAgent, WarmInterpreter, read_available_memory_share
from drumline.node.warm.per_rank_packages import PerRankPackages, leave_out_packages

IDLE_S = 600.0
IDLE_VARIABLE = "DRUMLINE_WARM_IDLE_S"

_MAX_INTERPRETERS = 4
"""Warm interpreters at a time: each has the memory of what it imported."""

_MAX_ROUNDS = 4
"""Of imports that are tried without packages that turned out to look at what differs from rank to rank."""

_MIN_MEMORY_SHARE = 0.1
"""Of the machine's memory that is to be available; with less, what nobody uses is ended."""

_MIN_LIFE_S = 5.0
"""That a warm pool is there from when a supervisor made sure of that: its agents are about to ask."""

_MAX_IMPORT_S = 300.0
"""Then whoever waits for these imports is told to do them itself."""

_POLL_INTERVAL_S = 2.0
_PEER_TIMEOUT_S = 10.0

_MAX_CLIENTS = 256


class WarmPool:
    def __init__(self, folder: str, listener: socket.socket, lifeline: int = -1) -> None:
        self._folder = folder
        self._lifeline = lifeline
        self._listener = listener
        self._inode = os.stat(os.path.join(folder, pool_folder.SOCKET)).st_ino
        self._idle_s = _read_idle_limit_s()
        self._used = time.monotonic()
        self._warm: dict[int, WarmInterpreter] = {}
        """By the descriptor of its socket."""

        self._clients: dict[int, socket.socket] = {}
        self._unfit: dict[str, tuple[str, float]] = {}
        """By key: why, and until when that is believed."""

        self._learned = PerRankPackages(os.path.join(folder, "per_rank_packages.json"))
        self._poller = select.poll()
        self._is_told = self._had_any = False

    def replace_others(self) -> None:
        """Stop pools of other versions, which no job will ask again; what their ranks need stays until those end."""
        for path in pool_folder.list_other_versions(self._folder):
            with contextlib.suppress(OSError), pool_folder.connect_to_pool(path) as peer:
                peer.sendall(b'{"do": "stop", "pid": null}\n')
                peer.recv(1 << 16)

    def run(self) -> None:
        """Serve until nobody has asked for anything for a while, or the folder is gone. Blocks."""
        self._poller.register(self._listener, select.POLLIN)
        if self._lifeline >= 0:
            self._poller.register(self._lifeline, select.POLLIN)
        while not self._is_told and not self._is_over():
            for descriptor, _ in self._poller.poll(min(_POLL_INTERVAL_S, self._idle_s + 0.01) * 1000):
                if descriptor == self._listener.fileno():
                    self._accept()
                elif descriptor == self._lifeline:
                    self._is_told = True
                elif descriptor in self._clients:
                    self._hear_client(descriptor)
                elif descriptor in self._warm:
                    self._hear_warm(self._warm[descriptor])
            self._look()
        self._end_all()

    def _is_over(self) -> bool:
        try:
            if os.stat(os.path.join(self._folder, pool_folder.SOCKET)).st_ino != self._inode:
                return True
        except OSError:
            return True
        # One that was never asked for anything is of no use to the next job either.
        idle_s = max(self._idle_s, _MIN_LIFE_S) if self._unfit or self._had_any else _MIN_LIFE_S
        return not self._warm and not self._clients and time.monotonic() - self._used > idle_s

    def _end_all(self) -> None:
        with contextlib.suppress(OSError):
            path = os.path.join(self._folder, pool_folder.SOCKET)
            if os.stat(path).st_ino == self._inode:
                os.unlink(path)
        for one in list(self._warm.values()):
            self._end(one, "the warm pool was told to end")

    def _accept(self) -> None:
        try:
            peer, _ = self._listener.accept()
        except OSError:
            return
        self._used = time.monotonic()
        if pool_folder.read_peer_user(peer) != os.geteuid() or len(self._clients) >= _MAX_CLIENTS:
            peer.close()
            return
        peer.settimeout(_PEER_TIMEOUT_S)
        self._clients[peer.fileno()] = peer
        self._poller.register(peer, select.POLLIN)

    def _hear_client(self, descriptor: int) -> None:
        peer = self._clients.pop(descriptor)
        self._poller.unregister(descriptor)
        try:
            first = peer.recv(1, socket.MSG_PEEK)
            if first == b"{":
                self._answer_person(peer)
            elif first:
                message = frames.receive(peer)
                self._serve(WaitingAgent(peer, int(message["ranks"]), message["spec"]))
            else:
                peer.close()
        except (OSError, ValueError, KeyError, TypeError) as error:
            print(f"a request failed: {error!r}", file=sys.stderr, flush=True)
            peer.close()

    def _answer_person(self, peer: socket.socket) -> None:
        with peer, peer.makefile("rwb") as file:
            message = json.loads(file.readline(1 << 16))
            if message["do"] == "list":
                warm = [one.facts() for one in self._warm.values()]
                answer = {"pid": os.getpid(), "idle_limit_s": self._idle_s, "warm": warm}
            else:
                wanted = message.get("pid")
                ones = [one for one in self._warm.values() if wanted in (None, one.pid)]
                for one in ones:
                    self._end(one, "it was told to end")
                self._is_told = wanted is None
                answer = {"stopped": [one.pid for one in ones]}
            file.write(json.dumps(answer).encode() + b"\n")

    def _serve(self, client: WaitingAgent) -> None:
        spec, key = client.spec, _compute_key(client.spec)
        why, until = self._unfit.get(key, ("", 0.0))
        if why and time.monotonic() < until:
            self._refuse(client, why)
            return
        for one in self._warm.values():
            if one.key == key and one.suits(spec):
                if one.report is None:
                    one.waiting.append(client)
                else:
                    self._hand(one, client, reused=True)
                return
        learned = self._learned.get(key)
        self._begin(key, leave_out_packages(spec, learned) if learned else spec, [client])

    def _begin(self, key: str, spec: dict[str, Any], waiting: list[WaitingAgent], round_: int = 0) -> None:
        self._make_room()
        try:
            one = WarmInterpreter(key, spec, round_)
        except OSError as error:
            why = f"{spec['python']} cannot be held: {error.strerror}"
            self._unfit[key] = (why, time.monotonic() + IDLE_S)
            for client in waiting:
                self._refuse(client, why)
            return
        one.waiting = waiting
        self._had_any = True
        self._warm[one.peer.fileno()] = one
        self._poller.register(one.peer, select.POLLIN)

    def _make_room(self) -> None:
        idle = sorted((one for one in self._warm.values() if one.is_idle()), key=lambda one: one.used)
        while idle and len(self._warm) >= _MAX_INTERPRETERS:
            self._end(idle.pop(0), "")

    def _hear_warm(self, one: WarmInterpreter) -> None:
        try:
            message = frames.receive(one.peer)
        except (OSError, ValueError):
            self._end(one, "it ended while it imported" if one.report is None else "it has ended")
            return
        if "ready" in message:
            one.report = message["ready"]
            waiting, one.waiting = one.waiting, []
            for client in waiting:
                if one.suits(client.spec):
                    self._hand(one, client, reused=False)
                else:
                    self._serve(client)
        elif "ended" in message:
            one.users.discard(message["ended"])
            one.used = self._used = time.monotonic()
        elif "unfit" in message:
            self._try_without(one, message)

    def _try_without(self, one: WarmInterpreter, message: dict[str, Any]) -> None:
        """Import again without the packages that looked at rank variables, if that was the reason."""
        waiting, one.waiting = one.waiting, []
        self._end(one, "")
        tainted = set(message.get("tainted", ()))
        known = set(one.spec["skip"])
        if tainted - known and one.round < _MAX_ROUNDS:
            learned = {"skip": sorted(known | tainted), "closure": message.get("closure", [])}
            self._learned.add(one.key, learned)
            self._begin(one.key, leave_out_packages(one.spec, learned), waiting, one.round + 1)
            return
        why = str(message["unfit"])
        self._unfit[one.key] = (why, time.monotonic() + IDLE_S)
        for client in waiting:
            self._refuse(client, why)

    def _hand(self, one: WarmInterpreter, client: WaitingAgent, *, reused: bool) -> None:
        """Have the interpreter fork a fork server, and give the agent its socket."""
        ours, theirs = socket.socketpair()
        try:
            frames.send(one.peer, {"do": "fork_server"}, theirs.fileno())
            while True:
                message = frames.receive(one.peer)
                if "fork_server" in message:
                    break
                if "ended" in message:
                    one.users.discard(message["ended"])
                if "stale" in message:
                    self._end(one, "")
                    # The folder of the job that it was made for may be gone.
                    self._begin(one.key, {**one.spec, "cwd": client.spec["cwd"]}, [client])
                    return
            one.users.add(message["fork_server"])
            one.used = self._used = time.monotonic()
            one.ranks += client.ranks
            open_files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            answer = {
                **(one.report or {}),
                **message,
                "pid": one.pid,
                "reused": reused,
                "open_files": open_files,
            }
            with contextlib.suppress(OSError):
                frames.send(client.peer, answer, ours.fileno())
            client.peer.close()
        except (OSError, ValueError):
            self._end(one, "")
            self._refuse(client, "the warm interpreter has ended")
        finally:
            ours.close()
            theirs.close()

    def _refuse(self, client: WaitingAgent, why: str) -> None:
        with contextlib.suppress(OSError):
            frames.send(client.peer, {"unfit": why})
        client.peer.close()

    def _end(self, one: WarmInterpreter, why: str) -> None:
        """End the interpreter; its fork servers serve their agents to the end."""
        with contextlib.suppress(KeyError, ValueError):
            self._poller.unregister(one.peer)
        if self._warm.pop(one.peer.fileno(), None) is None:
            return  # It has ended before, and its number may be another's.
        one.peer.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(one.pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(one.pid, 0)
        for client in one.waiting:
            self._refuse(client, why)
        one.waiting = []

    def _look(self) -> None:
        now = time.monotonic()
        is_scarce = bool(self._warm) and read_available_memory_share() < _MIN_MEMORY_SHARE
        for one in sorted(self._warm.values(), key=lambda each: each.used):
            is_many = len(self._warm) > _MAX_INTERPRETERS
            if one.is_idle() and (is_many or is_scarce or now - one.used > self._idle_s):
                self._end(one, "")
            elif one.report is None and now - one.began > _MAX_IMPORT_S:
                why = f"its imports take more than {_MAX_IMPORT_S:.0f} s"
                self._unfit[one.key] = (why, now + IDLE_S)
                self._end(one, why)


def _compute_key(spec: dict[str, Any]) -> str:
    """Return a digest of all that imports may depend on; the interpreter itself checks files on the disk."""
    names = ("python", "argv0", "flags", "target", "imports", "env", "free", "bound", "skip")
    text = json.dumps([*(spec[name] for name in names), len(spec["cores"])], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _read_idle_limit_s() -> float:
    try:
        return max(0.0, float(os.environ.get(IDLE_VARIABLE, IDLE_S)))
    except ValueError:
        return IDLE_S
