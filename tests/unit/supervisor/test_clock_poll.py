"""Questions for the clocks of nodes, to agents that a test plays."""

import json
import time
from types import SimpleNamespace

import pytest

from drumline.contract import messages as m
from drumline.contract.folder import RunFolder
from drumline.supervisor.attempt.progress_poll import ClockPoll
from drumline.supervisor.clocks import AGAIN_S, SAMPLES, Clocks


@pytest.fixture
def now(monkeypatch):
    made = SimpleNamespace(at=1000.0)
    monkeypatch.setattr(time, "monotonic", lambda: made.at)
    return made


@pytest.fixture
def asked():
    return []


@pytest.fixture
def poll(tmp_path, now, asked):
    agents = SimpleNamespace(
        send=lambda node, message: asked.append((node, message)), connected_nodes=lambda: {0, 1}
    )
    return ClockPoll(RunFolder(str(tmp_path)), 2, agents, Clocks())


def test_a_node_is_asked_until_the_comparison_is_good(poll, asked, now):
    poll.ask(1)
    for _ in range(SAMPLES + 2):
        poll.take_answer(1, m.ClockRead(now.at + 5.0))
    assert asked == [(1, m.ReadClock())] * SAMPLES


def test_all_nodes_are_asked_again_after_a_while(poll, asked, now):
    poll.poll()
    assert asked == []
    now.at += AGAIN_S
    poll.poll()
    assert [node for node, _ in asked] == [0, 1]


def test_readers_find_the_attempt_and_the_clocks_that_are_known(poll, tmp_path, now):
    file = tmp_path / "clocks.json"
    poll.poll()
    assert not file.exists()
    poll.ask(1)
    poll.take_answer(1, m.ClockRead(now.at))
    poll.poll()
    written = json.loads(file.read_text())
    assert (written["attempt"], list(written["nodes"])) == (2, ["1"])


def test_a_folder_that_cannot_be_written_costs_nothing_else(poll, tmp_path, now):
    (tmp_path / "clocks.json").mkdir()
    poll.ask(1)
    poll.take_answer(1, m.ClockRead(now.at))
    poll.poll()
