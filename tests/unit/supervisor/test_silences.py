"""Agents that leave questions unanswered: what is recorded, and what an explanation of the ranks says of them."""

import json

import pytest

from drumline.contract import events as e
from drumline.contract import messages as m
from drumline.contract.folder import RunFolder
from drumline.supervisor.attempt import progress_poll, silences
from drumline.supervisor.attempt.progress_poll import ProgressPoll
from drumline.supervisor.attempt.silences import AgentSilences


def told(events):
    return [(type(event), event.node, event.reason.partition(":")[0]) for event in events]


def test_an_agent_is_silent_once_after_a_while_and_until_it_answers():
    events = []
    agents = AgentSilences(events.append)
    agents.note_missing([1], asked=100.0, now=106.0)
    assert events == []
    for asked in (130.0, 160.0):
        agents.note_missing([1], asked, now=asked + 6.0)
    assert told(events) == [(e.AgentSilent, 1, "has not answered for 36 s")]
    agents.note_answer(0)
    assert len(events) == 1
    agents.note_answer(1)
    assert told(events[1:]) == [(e.AgentSilent, 1, "")]


def test_time_in_which_nothing_ran_is_no_silence():
    events = []
    agents = AgentSilences(events.append)
    agents.note_missing([1], asked=100.0, now=106.0)
    agents.leave_out(1000.0)
    agents.note_missing([1], asked=1106.0, now=1112.0)
    assert events == []


class Agents:
    """The connections of three agents, two of which are asked."""

    def __init__(self):
        self.asked = []

    def connected_nodes(self):
        return {0, 1}

    def send_all(self, nodes, message):
        self.asked += [(node, message.id) for node in nodes]


@pytest.fixture
def poll(tmp_path, monkeypatch):
    monkeypatch.setattr(progress_poll, "_ANSWER_TIMEOUT_S", 0.0)
    monkeypatch.setattr(silences, "SILENT_S", 0.0)
    events = []
    folder = RunFolder(str(tmp_path))
    made = ProgressPoll(folder, Agents(), {0: "rank 0", 1: "rank 1"}, 1e-6, events.append, lambda _: None)
    return made, folder, events


def test_a_round_that_an_agent_misses_tells_of_it_and_a_late_answer_too(poll):
    made, _, events = poll
    made.begin()
    made.start_when_due()
    made.take_in(0, m.ProgressPolled(1, [], 0.0, 0))
    made.start_when_due()
    assert told(events)[:1] == [(e.AgentSilent, 1, "has not answered for 0 s")]
    made.take_in(1, m.ProgressPolled(1, [], 0.0, 0))
    assert told(events[1:]) == [(e.AgentSilent, 1, "")]


def test_stacks_that_were_asked_for_name_the_silent_agent(poll):
    made, folder, _ = poll
    folder.write(folder.stacks_request, "one")
    made.start_requested()
    made.take_in(0, m.ProgressPolled(1, [], 0.0, 0))
    made.start_when_due()
    with open(folder.stacks) as file:
        said = json.load(file)["reason"]
    assert said.endswith(f"; the agent of node 1 does not answer: {silences.STOPPED}")
