"""Many agents that join at once, and those that never do."""

import os
import socket
import time
from contextlib import ExitStack
from types import SimpleNamespace

import pytest

from drumline.engines.base import AgentProcesses
from drumline.supervisor.attempt.connections import AgentConnections, AgentLosses, Inbox
from drumline.supervisor.deciding import happenings as h


class Starter:
    """Agents that nobody starts. ``failed``: what ``find_failed`` finds, each time that it looks."""

    def __init__(self):
        self.failed = {}
        self.looks = 0

    def start(self, port, secret):
        return AgentProcesses({}, None)

    def explain_loss(self, node):
        raise NotImplementedError

    def find_failed(self):
        self.looks += 1
        return self.failed


@pytest.mark.parametrize(("nodes", "turns"), [(1000, 2), (40, 3), (1, 100)])
def test_agents_that_come_at_once_are_let_in_together(nodes, turns):
    """Each turn of the supervisor has other things to do, and those that came must not keep it from them."""
    with ExitStack() as stack:
        agents = AgentConnections(socket.create_server(("127.0.0.1", 0), backlog=256), "secret", nodes)
        stack.callback(agents.close)
        read, write = os.pipe()
        stack.callback(os.close, read)
        stack.callback(os.close, write)
        inbox = Inbox(agents, Starter(), read, lambda *_: None, SimpleNamespace())
        stack.callback(inbox.close)
        inbox.start_agents()
        for _ in range(100):
            stack.enter_context(socket.create_connection(("127.0.0.1", agents.port)))
        server = agents.server.fileno()
        taken = 0
        while server in inbox.wait(0.0):
            inbox.hear(server)
            taken += 1
        assert taken == turns
        assert len(agents._peers) == 100


@pytest.fixture
def clock(monkeypatch):
    made = SimpleNamespace(now=100.0)
    monkeypatch.setattr(time, "monotonic", lambda: made.now)
    return made


def test_what_an_agent_has_said_tells_more_than_the_end_of_its_starter(clock):
    starter, handled = Starter(), []
    plan = SimpleNamespace(nodes=[SimpleNamespace(node=0)])
    connections = SimpleNamespace(is_connected=lambda node: False)
    losses = AgentLosses(plan, starter, connections, lambda event: None, handled.append)
    starter.failed = {0: "did not start: no Python"}
    losses.lose_missing()
    assert handled == [h.Lost(0, "did not start: no Python")]


def test_failed_starts_are_looked_for_each_second_until_all_have_joined(clock):
    starter, handled = Starter(), []
    plan = SimpleNamespace(nodes=[SimpleNamespace(node=node) for node in range(3)])
    connections = SimpleNamespace(is_connected=lambda node: node == 0)
    losses = AgentLosses(plan, starter, connections, lambda event: None, handled.append)

    def turn(after_s):
        clock.now += after_s
        losses.lose_failed()
        return starter.looks

    assert [turn(0.25) for _ in range(9)] == [0, 0, 0, 1, 1, 1, 1, 2, 2]
    assert losses.list_times() == [103.0], "the supervisor waits no longer than that"
    losses.note_joined(0)
    starter.failed = {0: "did not start: it did", 1: "did not start: no Python"}
    assert turn(1.0) == 3
    assert handled == [h.Lost(1, "did not start: no Python")]
    losses.note_joined(2)
    assert turn(10.0) == 3, "nobody is missing"
    assert losses.list_times() == []


def test_agents_that_start_late_are_the_reason_of_the_job(clock):
    events, plan = [], SimpleNamespace(nodes=[SimpleNamespace(node=node) for node in range(3)])
    losses = AgentLosses(plan, Starter(), SimpleNamespace(), events.append, lambda _: None)
    losses.note_joined(0)
    for _ in range(40):
        clock.now += 1.0
        losses.lose_failed()
    assert [(event.node, event.reason) for event in events] == [(1, "has not started within 30 s")]
    losses.note_joined(2)
    losses.note_joined(1)
    assert [event.reason for event in events[1:]] == [""]


def test_agents_are_started_again_by_a_new_starter(clock):
    lost, starters = [], []
    for _ in range(2):
        read, write = os.pipe()
        os.close(write)
        starters.append(read)
    wake, waker = os.pipe()

    class PassingStarter(Starter):
        def start(self, port, secret):
            return AgentProcesses({}, starters[0])

        def start_again(self):
            os.close(starters.pop(0))
            return starters[0] if starters else None

    with socket.create_server(("127.0.0.1", 0)) as server:
        connections = SimpleNamespace(port=7, secret="", node_count=1, server=server, knows=lambda _: False)
        losses = SimpleNamespace(lose_missing=lambda: lost.append(len(starters)))
        inbox = Inbox(connections, PassingStarter(), wake, lambda *_: None, losses)
        inbox.start_agents()
        assert inbox.wait(5.0) == [starters[0]]
        inbox.hear(starters[0])
        assert lost == []
        assert inbox.wait(5.0) == [starters[0]]
        inbox.hear(starters[0])
        assert lost == [0]
        inbox.close()
    os.close(wake)
    os.close(waker)
