"""The pod of a node: it asks the supervisor's pod which node it is, attempt after attempt, and is its agent."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from drumline.contract import channel
from drumline.contract.folder import private_folder, write_whole
from drumline.contract.plan import Plan
from drumline.engines.kubernetes.pod.first_process import FirstProcess
from drumline.linux import kernel

if TYPE_CHECKING:
    import socket

    from drumline.contract.folder import RunFolder

_JOIN_S = 1800.0
"""For the supervisor's pod to start, and its name to be known; its node may have to get the image."""

_RETURN_S = 60.0
"""For a connection that broke to be possible again."""

_RETRY_S = 0.5


def main(folder: RunFolder, token: str, where: tuple[str, int]) -> int:
    """
    Be an agent as often as the supervisor says so; return 0 when the job is over, or its supervisor is gone, else 1: a
    Job makes another pod for one that has failed alone, and is complete when it has counted enough others.
    """
    first = FirstProcess(folder)
    pod = NodePod(folder, first)
    is_over, said = False, "the supervisor's pod did not come"
    try:
        peer = _connect(where, first, _JOIN_S)
        if peer is not None:
            with peer:
                hello = {"type": "pod", "token": token, "host": os.environ.get("DRUMLINE_NODE_NAME", "")}
                said = "the connection to the supervisor's pod broke"
                peer.sendall(json.dumps({**hello, "pod": os.uname().nodename}).encode() + b"\n")
                is_over = pod.serve(peer)
    except (OSError, channel.ChannelError) as error:
        sys.stderr.write(f"{said}: {error}\n")
    pod.end()
    first.finish()
    return int(not is_over and _may_go_on(where, first))


def _may_go_on(where: tuple[str, int], first: FirstProcess) -> bool:
    """Return whether the job needs another pod: nobody has said that it is over. Blocks for a minute at most."""
    try:
        peer = _connect(where, first, _RETURN_S)
    except OSError:
        return False
    if peer is not None:
        peer.close()
    return True


def _connect(where: tuple[str, int], first: FirstProcess, within_s: float) -> socket.socket | None:
    """
    Connect to the supervisor's pod, which may not be there yet; None when this pod is to end.

    Raises OSError where it does not answer within that time.
    """
    deadline = time.monotonic() + within_s
    while not first.terminated:
        try:
            peer = channel.connect_to(where, 10.0)
            channel.notice_power_cut(peer)
            return peer
        except OSError as error:
            if time.monotonic() > deadline:
                raise OSError(f"{where[0]} does not answer: {error}") from error
        time.sleep(_RETRY_S)
    return None


class NodePod:
    """The agents of a pod, one after the other."""

    def __init__(self, folder: RunFolder, first: FirstProcess) -> None:
        self._folder = folder
        self._first = first
        self._runs = False
        self._is_prepared = False
        self._node = -1

    def serve(self, peer: socket.socket) -> bool:
        """
        Do what the supervisor's pod says until the job is over, or this pod is to end and its agent has ended; return
        whether the job is over. Raises OSError and ChannelError where the supervisor cannot be heard any more.
        """
        lines = channel.Lines()
        peer.setblocking(False)
        self._first.on_terminate = lambda: self._tell(peer, {"type": "leaving"})
        poller = select.poll()
        poller.register(peer, select.POLLIN)
        while True:
            ready = poller.poll(200)
            if ready:
                data = peer.recv(1 << 16)
                if not data:
                    raise ConnectionError("it was closed before the end of the job")
                for message in lines.feed(data):
                    if message["type"] == "over":
                        return True
                    if not self._first.terminated:
                        self._try_to_begin(message, peer)
            ended = self._first.look()
            if ended is not None:
                self._runs = False
                if ended:
                    self._tell_failure(peer, "its agent failed")
            if self._first.terminated and not self._runs:
                return False

    def _try_to_begin(self, message: dict[str, Any], peer: socket.socket) -> None:
        try:
            self._begin(message, peer)
        except OSError as error:
            # As of a full disk.
            self._tell_failure(peer, f"its agent could not be started: {error}")

    def _begin(self, message: dict[str, Any], peer: socket.socket) -> None:
        """Start the agent of one attempt."""
        self._node = int(message["node"])
        plan = Plan.read(self._folder.plan)
        if not self._is_prepared:
            error = self._prepare()
            if error:
                self._tell_failure(peer, error)
                return
            self._is_prepared = True
        if message["attempt"]:
            _move_logs(self._folder, plan, int(message["attempt"]) - 1)
        write_whole(self._folder.agents, json.dumps(message["address"]))
        node, token = self._node, str(message["address"]["token"])
        self._first.fork(lambda: self._be_agent(node, token))
        self._runs = True

    def _prepare(self) -> str:
        """Put code and inputs in place; return why that failed, else nothing."""
        argv = [sys.executable, "-P", "-m", "drumline.staging", self._folder.path]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path[:1])}
        done = subprocess.run(  # noqa: S603 - our own program
            argv, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        said = done.stderr.strip().splitlines()
        return (said[-1] if said else f"exit code {done.returncode}") if done.returncode else ""

    def _be_agent(self, node: int, token: str) -> int:
        from drumline.node.agent import join

        kernel.append_output(os.path.join(self._folder.system_logs, f"node-{node}.log"))
        join.join(self._folder.path, node, token)
        return 0

    def _tell_failure(self, peer: socket.socket, error: str) -> None:
        self._tell(peer, {"type": "failed", "error": error[:500]})

    def _tell(self, peer: socket.socket, message: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):
            peer.sendall(json.dumps(message).encode() + b"\n")

    def end(self) -> None:
        """Wait for the agent, which ends when its supervisor is gone."""
        deadline = time.monotonic() + 30.0
        while self._runs and time.monotonic() < deadline:
            if self._first.look() is not None:
                self._runs = False
            self._first.pause()


def _move_logs(folder: RunFolder, plan: Plan, attempt: int) -> None:
    """Move what the ranks of this pod wrote in that attempt: the next one writes to the same paths."""
    for task in plan.ranks:
        log = os.path.join(folder.path, task.log)
        aside = os.path.join(os.path.dirname(log), f"attempt-{attempt}")
        if os.path.exists(log):
            private_folder(aside)
            os.rename(log, os.path.join(aside, os.path.basename(log)))
