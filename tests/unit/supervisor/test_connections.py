"""The supervisor's end of the channel, with real sockets."""

import socket

import pytest

from drumline.contract import channel, messages
from drumline.supervisor.attempt.connections import AgentConnections


def hello(**changed):
    own = ("secret", 0, *channel.identify_package(), 1, "127.0.0.1", "subreaper")
    return messages.Hello(*own)._replace(**changed)


@pytest.fixture
def agents():
    made = AgentConnections(socket.create_server(("127.0.0.1", 0)), "secret", 1)
    yield made
    made.close()


@pytest.fixture
def agent(agents):
    """A connection that has shown the secret."""
    with socket.create_connection(("127.0.0.1", agents.port)) as peer:
        channel.send(peer, hello())
        descriptor = None
        while descriptor is None:
            descriptor = agents.accept()
        agents._peers[descriptor].settimeout(5.0)
        assert isinstance(agents.receive(descriptor)[0], messages.Hello)
        yield peer


def test_what_does_not_arrive_whole_is_the_last_that_an_agent_is_told(agents, agent, monkeypatch):
    """An agent that was stopped takes nothing in. What came after half a line would be half of two messages."""
    descriptor = agents.find_agent(0)
    agents._peers[descriptor].settimeout(0.05)
    assert not agents.send(0, messages.ConnectToFirst("x" * (64 << 20), 1))
    assert agents.take_stuck() == [0]
    assert agents.take_stuck() == [], "it is told once"
    assert agents.receive(descriptor) is None, "its connection is at its end"
    assert not agents.send(0, messages.KillRanks())
    heard = b""
    while data := agent.recv(1 << 20):
        heard += data
    assert b"\n" not in heard, "nothing follows the half of a line"


def test_an_agent_that_is_gone_is_not_one_that_is_stuck(agents, agent):
    agent.close()
    for _ in range(100):
        agents.send(0, messages.ConnectToFirst("x" * 100_000, 1))
    assert not agents.send(0, messages.ReadClock())
    assert agents.take_stuck() == []


def met(agents, *lines):
    """What is received from a new peer that has sent these, as records or bytes."""
    with socket.create_connection(("127.0.0.1", agents.port)) as peer:
        for line in lines:
            peer.sendall(line if isinstance(line, bytes) else channel.encode(line))
        descriptor = next(iter(iter(agents.accept, None)))
        agents._peers[descriptor].settimeout(5.0)
        received = agents.receive(descriptor)
        agents.drop(descriptor)
        return received


def test_an_agent_of_another_version_is_sent_away_in_clear_words(agents):
    assert met(agents, hello(version="of yesterday", package="/opt/old/drumline")) is None
    ((node, why),) = agents.take_refused()
    assert node == 0
    assert why.startswith("is another version of drumline, from /opt/old/drumline, than the one here, from /")
    assert why.endswith("; install the same version for all nodes")
    assert agents.take_refused() == [], "it is told once"


def test_a_stranger_learns_and_leaves_nothing_of_versions(agents):
    assert met(agents, hello(version="of yesterday", secret="guessed")) is None
    assert agents.take_refused() == []


def test_an_agent_that_sends_what_this_version_does_not_have_is_sent_away_in_clear_words(agents):
    assert met(agents, hello(), b'{"type": "WeatherSeen", "at": 1.0}\n') is None
    assert agents.take_refused() == [(0, "sent a message 'WeatherSeen', which this version does not have")]
