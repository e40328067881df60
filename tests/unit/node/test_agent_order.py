"""In which order an agent tells of a rank's end and of what its launcher did."""

import os
import signal
import socket

import pytest

from drumline.contract import channel
from drumline.contract import messages as m
from drumline.node.agent.agent import Agent


@pytest.fixture
def agent(tmp_path):
    """An agent with a killed rank 7, what it has told so far, and the descriptors of that rank and its socket."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        signal.pause()
        os._exit(0)
    made = Agent(ours, 0, "127.0.0.1", str(tmp_path))
    made._do(m.PrepareNode([], wants_launcher_socket=True))
    assert made._launching is not None
    made._ranks.by_pid[pid] = 7
    made._children.watch(pid)
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)

    def told():
        theirs.setblocking(False)
        try:
            return [message["type"] for message in channel.Lines().feed(theirs.recv(1 << 16))]
        except BlockingIOError:
            return []

    with ours, theirs:
        assert told() == ["NodePrepared"]
        server = made._launching.socket._server
        yield made, told, made._children._pidfds[pid], server.fileno()
        server.close()
        made._poller.close()


def test_an_end_before_a_request_is_told_before_it(agent):
    made, told, rank, door = agent
    made._tell_exits([rank, door], made._launching.socket.first([rank, door]))
    assert told() == ["RankEnded"]


def test_an_end_after_a_request_is_told_after_it(agent):
    made, told, rank, door = agent
    made._tell_exits([door, rank], made._launching.socket.first([door, rank]))
    assert told() == []
    made._tell_exits([door, rank])
    assert told() == ["RankEnded"]


def test_one_that_was_seen_too_early_is_told_later(agent):
    """Another rank's end came before the request, and both are reaped at once."""
    made, told, rank, door = agent
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    made._ranks.by_pid[pid] = 8
    made._children.watch(pid)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    ready = [made._children._pidfds[pid], door, rank]
    made._tell_exits(ready, made._launching.socket.first(ready))
    assert (told(), list(made._ranks.by_pid.values())) == (["RankEnded"], [7])
    made._tell_exits(ready)
    assert (told(), made._ranks.by_pid) == (["RankEnded"], {})
