"""The checks of the nodes of one attempt: what is judged and recorded."""

import pytest
from planning import plan

from drumline.contract import events as e
from drumline.contract import messages as m
from drumline.contract.folder import RunFolder
from drumline.supervisor.attempt import preflight_phase
from drumline.supervisor.attempt.preflight_phase import PreflightPhase
from drumline.supervisor.deciding import happenings as h


class Agents:
    """Two agents that answer at once."""

    def __init__(self, rate):
        self.rate = rate
        self.phase = None

    def send(self, node, message):
        if isinstance(message, m.CheckNode):
            memory = {"total": 64 << 30, "limit": 8 << 30, "available": 50 << 30}
            self.phase.take_in(node, m.NodeChecked("facts", {"links": {"port": 7}, "memory": memory}))
        if isinstance(message, m.CheckLinks):
            link = {
                "node": 1 - node,
                "error": "",
                "seconds": 1e-4,
                "bytes_per_s": self.rate,
                "stalled": False,
            }
            facts = {"connected": [], "received": [link], "busy": 0.0}
            self.phase.take_in(node, m.NodeChecked("links", facts))


@pytest.fixture
def check(tmp_path):
    """Check the nodes of a job, and return what was recorded and what the policy was told."""

    def check(rate=118_000_000, memory_bytes=0, **job):
        folder = RunFolder(str(tmp_path / "jobs" / "calm_drum"))
        recorded, told, agents = [], [], Agents(rate)
        names = ({0: "10.0.0.1", 1: "10.0.0.2"}, {0: "n0", 1: "n1"})
        does = (agents, recorded.append, told.append)
        agents.phase = PreflightPhase(plan(**job), folder, *does, *names, memory_bytes)
        agents.phase.begin()
        return recorded, told

    return check


def test_links_are_recorded_with_their_latency(check):
    recorded, told = check()
    (event,) = recorded
    assert isinstance(event, e.PreflightEnded)
    assert event.detail["findings"] == []
    assert event.detail["links"][0] == {"from": 0, "to": 1, "bytes_per_s": 118_000_000, "seconds": 1e-4}
    assert told == [h.Checked("", None)]


def test_a_node_with_less_memory_than_the_job_was_given_is_a_warning(check):
    recorded, _ = check(memory_bytes=16 << 30)
    said = "its memory is limited to 8 GiB, and the job was given 16 GiB"
    assert [(one["id"], one["node"], one["finding"]) for one in recorded[0].detail["findings"]] == [
        ("memory", node, said) for node in (0, 1)
    ]


def test_a_job_that_checks_its_nodes_is_told_what_is_well_too(check):
    recorded, told = check(drumline={"preflight": "only"})
    found = {one["id"]: one for one in recorded[0].detail["findings"]}
    assert (found["links"]["status"], found["links"]["finding"]) == ("ok", "944 Mbit/s to 944 Mbit/s")
    assert told == [h.Checked("", None, is_all=True)]


class Unheard:
    """Agents that are asked, each in its time, and of which none answers."""

    def __init__(self, monkeypatch):
        self.asked = {}
        self.now = 100.0
        monkeypatch.setattr(preflight_phase.time, "monotonic", lambda: self.now)

    def send(self, node, message):
        self.now += 1.0
        self.asked[node] = message


@pytest.fixture
def unheard(tmp_path, monkeypatch):
    """Ask forty nodes: the phase, its agents, when it concludes, and what is recorded."""
    agents, recorded, nodes = Unheard(monkeypatch), [], range(40)
    names = (
        {node: f"10.0.0.{node}" for node in nodes},
        {node: f"n{node}" if node != 2 else "" for node in nodes},
    )
    does = (agents, recorded.append, lambda _: None)
    phase = PreflightPhase(plan(nodes=40), RunFolder(str(tmp_path / "calm_drum")), *does, *names)
    return phase, agents, phase.begin(), recorded


def test_a_node_is_told_of_as_many_others_as_it_looks_up(unheard):
    settings = unheard[1].asked[3].settings
    assert settings["addresses"] == [f"10.0.0.{node}" for node in (0, 1, 2, 4, 5, 6, 7, 8)]
    assert settings["host_names"] == [f"n{node}" for node in (0, 1, 4, 5, 6, 7, 8, 9)]


def test_the_time_for_the_checks_begins_when_all_nodes_were_asked(unheard):
    assert unheard[2] == pytest.approx(preflight_phase.LIMIT_S)


def test_nodes_that_have_not_answered_in_time_are_named(unheard):
    phase, _, _, recorded = unheard
    for node in range(40):
        if node not in (5, 7):
            phase.take_in(node, m.NodeChecked("facts", {}))
    phase.conclude()
    (found,) = [one for one in recorded[0].detail["findings"] if one["id"] == "answers"]
    assert (found["status"], found["node"]) == ("warning", None)
    assert found["finding"] == "nodes 5 and 7 told nothing of themselves in time"
