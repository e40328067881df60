"""The checks of the nodes of one attempt: what is judged, recorded, and kept for later jobs."""

import pytest
from planning import plan

from drumline.contract import events as e
from drumline.contract import messages as m
from drumline.contract.folder import RunFolder
from drumline.store.link_history import NodeLink, add_job, read_history
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


def test_links_are_recorded_with_their_latency_and_kept_for_later_jobs(check, tmp_path):
    recorded, told = check()
    (event,) = recorded
    assert isinstance(event, e.PreflightEnded)
    assert event.detail["findings"] == []
    assert event.detail["links"][0] == {"from": 0, "to": 1, "bytes_per_s": 118_000_000, "seconds": 1e-4}
    assert told == [h.Checked("", None)]
    kept = read_history(str(tmp_path), "local")
    assert kept == {host: [NodeLink(118_000_000, 118_000_000, 1e-4)] for host in ("n0", "n1")}


def test_a_link_that_was_faster_in_earlier_jobs_is_a_warning(check, tmp_path):
    for _ in range(5):
        add_job(str(tmp_path), "local", "before", 1e9, {"n1": NodeLink(1_175_000_000, 118_000_000, 1e-4)})
    recorded, told = check()
    (found,) = recorded[0].detail["findings"]
    assert (found["id"], found["status"], found["node"], found["host"]) == (
        "link-history",
        "warning",
        1,
        "n1",
    )
    said = "its link carried 9.4 Gbit/s to it in 5 earlier jobs, and 944 Mbit/s now"
    assert found["finding"] == said
    assert told == [h.Checked("", None)]
    assert len(read_history(str(tmp_path), "local")["n1"]) == 6


def test_a_node_with_less_memory_than_the_job_was_given_is_a_warning(check):
    recorded, _ = check(memory_bytes=16 << 30)
    said = "its memory is limited to 8 GiB, and the job was given 16 GiB"
    assert [(one["id"], one["node"], one["finding"]) for one in recorded[0].detail["findings"]] == [
        ("memory", node, said) for node in (0, 1)
    ]


def test_a_history_that_cannot_be_kept_ends_no_job(check, tmp_path):
    (tmp_path / "node-links").write_text("in the way")
    recorded, told = check()
    assert recorded[0].detail["findings"] == []
    assert told == [h.Checked("", None)]


def test_a_job_that_checks_its_nodes_is_told_what_is_well_too(check):
    recorded, told = check(drumline={"preflight": "only"})
    found = {one["id"]: one for one in recorded[0].detail["findings"]}
    assert (found["links"]["status"], found["links"]["finding"]) == ("ok", "944 Mbit/s to 944 Mbit/s")
    assert told == [h.Checked("", None, is_all=True)]
