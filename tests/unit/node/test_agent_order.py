"""In which order an agent tells of a rank's end and of what its launcher did."""

import os
import signal
import socket

import pytest

from drumline.contract import channel
from drumline.node.agent import Agent
from drumline.node.door import Door


@pytest.fixture
def agent(tmp_path):
    """An agent with a killed rank 7, what it has told so far, and the descriptors of that rank and its door."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        signal.pause()
        os._exit(0)
    made = Agent(ours, 0, "127.0.0.1")
    made._start = {"ranks": [], "cwd": str(tmp_path)}
    made._door = Door(str(tmp_path), "127.0.0.1", made._on_request, made._on_gone)
    made._door.register(made._poller)
    made._ranks[pid] = 7
    made._watch(pid)
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)

    def told():
        theirs.setblocking(False)
        try:
            return [message["type"] for message in channel.Lines().feed(theirs.recv(1 << 16))]
        except BlockingIOError:
            return []

    with ours, theirs:
        yield made, told, made._pidfds[pid], made._door._server.fileno()
        made._door._server.close()
        made._poller.close()


def test_an_end_before_a_request_is_told_before_it(agent):
    made, told, rank, door = agent
    made._tell_exits([rank, door], made._door.first([rank, door]))
    assert told() == ["exited"]


def test_an_end_after_a_request_is_told_after_it(agent):
    made, told, rank, door = agent
    made._tell_exits([door, rank], made._door.first([door, rank]))
    assert told() == []
    made._tell_exits([door, rank])
    assert told() == ["exited"]


def test_one_that_was_seen_too_early_is_told_later(agent):
    """Another rank's end came before the request, and both are reaped at once."""
    made, told, rank, door = agent
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    made._ranks[pid] = 8
    made._watch(pid)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    ready = [made._pidfds[pid], door, rank]
    made._tell_exits(ready, made._door.first(ready))
    assert (told(), list(made._ranks.values())) == (["exited"], [7])
    made._tell_exits(ready)
    assert (told(), made._ranks) == (["exited"], {})
