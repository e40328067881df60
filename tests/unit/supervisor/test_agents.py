"""The supervisor's end of the channel, with real sockets."""

import socket

import pytest

from drumline.contract import channel
from drumline.supervisor.agents import Agents


@pytest.fixture
def agents():
    made = Agents("127.0.0.1", "secret", 1)
    yield made
    made.close()


@pytest.fixture
def agent(agents):
    """A connection that has shown the secret."""
    with socket.create_connection(("127.0.0.1", agents.port)) as peer:
        channel.send(peer, "hello", secret="secret", node=0)
        descriptor = None
        while descriptor is None:
            descriptor = agents.accept()
        agents._peers[descriptor].settimeout(5.0)
        assert agents.receive(descriptor)[0]["type"] == "hello"
        yield peer


def test_what_does_not_arrive_whole_is_the_last_that_an_agent_is_told(agents, agent, monkeypatch):
    """An agent that was stopped takes nothing in. What came after half a line would be half of two messages."""
    (descriptor,) = agents.descriptors_of(0)
    agents._peers[descriptor].settimeout(0.05)
    assert not agents.send(0, "start", ranks="x" * (64 << 20))
    assert agents.take_stuck() == [0]
    assert agents.take_stuck() == [], "it is told once"
    assert agents.receive(descriptor) is None, "its connection is at its end"
    assert not agents.send(0, "kill")
    heard = b""
    while data := agent.recv(1 << 20):
        heard += data
    assert b"\n" not in heard, "nothing follows the half of a line"


def test_an_agent_that_is_gone_is_not_one_that_is_stuck(agents, agent):
    agent.close()
    for _ in range(100):
        agents.send(0, "clock", filler="x" * 100_000)
    assert not agents.send(0, "clock")
    assert agents.take_stuck() == []
