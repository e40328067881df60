"""Agents that leave questions unanswered: what is recorded, and what an explanation of the ranks says of them."""

import json
import re

import pytest

from drumline.contract import events as e
from drumline.contract import messages as m
from drumline.contract.folder import RunFolder
from drumline.supervisor.attempt import progress_poll
from drumline.supervisor.attempt.progress_poll import AgentSilences, ProgressPoll


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
    for name in ("_ANSWER_TIMEOUT_S", "_NODE_TIMEOUT_S"):
        monkeypatch.setattr(progress_poll, name, 0.0)
    monkeypatch.setattr(progress_poll, "SILENT_S", 0.0)
    events = []
    folder = RunFolder(str(tmp_path))
    made = ProgressPoll(
        folder, Agents(), {0: "rank 0", 1: "rank 1"}, 1e-6, False, events.append, lambda _: None
    )
    return made, folder, events


def miss(made, number):
    """A round of which agent 1 gives no answer in time."""
    made.start_when_due()
    made.take_in(0, m.ProgressPolled(number, [], 0.0, 0))
    made.start_when_due()


def test_two_rounds_that_an_agent_misses_tell_of_it_and_a_late_answer_too(poll):
    made, _, events = poll
    made.begin()
    miss(made, 1)
    assert events == [], "the supervisor may have been late itself"
    miss(made, 2)
    # In less than a tenth of a second, of a machine that is busy.
    assert re.match(r"has not answered for 0(\.0\d)? s", told(events)[0][2])
    assert told(events)[0][:2] == (e.AgentSilent, 1)
    made.take_in(1, m.ProgressPolled(1, [], 0.0, 0))
    assert told(events[1:]) == [(e.AgentSilent, 1, "")]


def test_stacks_that_were_asked_for_name_the_agent_that_has_not_answered(poll):
    made, folder, _ = poll

    def ask(number):
        folder.write(folder.stacks_request, f"number {number}")
        made.start_requested()
        miss(made, number)
        with open(folder.stacks) as file:
            return json.load(file)["reason"].rpartition("; ")[2]

    assert ask(1) == "the agent of node 1 has not answered in time"
    assert ask(2) == f"the agent of node 1 does not answer: {progress_poll.STOPPED}"


def test_more_time_is_given_to_more_nodes(monkeypatch):
    monkeypatch.setattr(progress_poll.time, "monotonic", lambda: 100.0)
    few, many = (progress_poll._Round(set(range(nodes)), stacks=True, asked="") for nodes in (1, 4000))
    assert few.deadline < 107.0
    assert many.deadline > 120.0


def test_a_node_that_is_late_now_and_then_hides_no_hang(tmp_path, monkeypatch):
    """Another one is late in each round."""
    clock, happened = [0.0], []
    monkeypatch.setattr(progress_poll.time, "monotonic", lambda: clock[0])
    made = ProgressPoll(
        RunFolder(str(tmp_path)), Agents(), {0: "0", 1: "1"}, 600.0, True, lambda _: None, happened.append
    )
    made.begin()
    for number in range(1, 40):
        clock[0] += 30.0
        made.start_when_due()
        node = number % 2
        rank = m.RankProgress(node, 0, 1.0, 0, 0.0, 0, [], m.Activity())
        made.take_in(node, m.ProgressPolled(number, [rank], 0.0, 0))
        clock[0] += 7.0
        made.start_when_due()
    (hung,) = happened
    assert hung.ends


def test_a_node_that_always_answers_too_late_hides_no_hang(tmp_path, monkeypatch):
    clock, happened = [0.0], []
    monkeypatch.setattr(progress_poll.time, "monotonic", lambda: clock[0])
    folder = RunFolder(str(tmp_path))
    made = ProgressPoll(folder, Agents(), {0: "0", 1: "1"}, 600.0, True, lambda _: None, happened.append)
    made.begin()

    def answer(node, number):
        rank = m.RankProgress(node, 0, 1.0, 0, 0.0, 0, [], m.Activity())
        made.take_in(node, m.ProgressPolled(number, [rank], 0.0, 0))

    for number in range(1, 40):
        clock[0] += 30.0
        made.start_when_due()
        answer(0, number)
        clock[0] += 7.0
        made.start_when_due()
        answer(1, number)
    (hung,) = happened
    assert hung.ends
