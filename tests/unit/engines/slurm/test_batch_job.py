"""What a batch step asks Slurm while its job runs, how often, and for how long; with fake commands."""

import select
from pathlib import Path
from types import SimpleNamespace

import pytest
from planning import plan

from drumline.contract.folder import RunFolder
from drumline.engines.slurm import batch_job
from drumline.engines.slurm import srun_agents as agents_module
from drumline.engines.slurm.batch_job import BatchJob
from drumline.engines.slurm.srun_agents import SlurmAgents
from drumline.supervisor.attempt.connections import AgentLosses

NODES = "".join(
    f"NodeName=e{number} State={'DOWN*' if number == 2 else 'IDLE'}\n" for number in range(1, 101)
)


class Clock:
    """In the place of ``time`` in ``batch_job``."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(batch_job, "time", made)
    return made


@pytest.fixture
def job(slurm, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "e[1-100]")
    return BatchJob(plan(2, at={"engine": "slurm"}))


def make_agents(job, tmp_path, hosts):
    facts = SimpleNamespace(host=lambda node: hosts.get(node, ""))
    folder = SimpleNamespace(system_logs=str(tmp_path))
    return SlurmAgents(plan(2, at={"engine": "slurm"}), folder, job, facts)


def make_losses(agents, count):
    lost = []
    connections = SimpleNamespace(is_connected=lambda node: False)
    nodes = SimpleNamespace(nodes=[SimpleNamespace(node=node) for node in range(count)])
    losses = AgentLosses(nodes, agents, connections, lambda event: None, lost.append)
    return losses, lost


def test_one_answer_serves_all_nodes_that_are_missing(slurm, job, clock, tmp_path):
    slurm.says("scontrol", NODES)
    losses, lost = make_losses(make_agents(job, tmp_path, {}), 100)
    losses.lose_missing()
    assert len(lost) == 100
    assert [one.reason for one in lost[:3]] == [
        "did not start", "was lost: Slurm says that its node is DOWN*", "did not start",
    ]  # fmt: skip
    assert slurm.calls("scontrol") == ["--oneliner show node e[1-100]"]


def test_an_answer_about_nodes_does_not_serve_for_long(slurm, job, clock, tmp_path):
    slurm.says("scontrol", NODES)
    agents = make_agents(job, tmp_path, {0: "e1", 1: "e2"})
    assert agents.explain_loss(0) == "closed its connection"
    slurm.says("scontrol", "NodeName=e1 State=DOWN Reason=Not responding\n")
    clock.now += 1.9
    assert agents.explain_loss(0) == "closed its connection"
    clock.now += 0.2
    assert agents.explain_loss(0) == "was lost: Slurm says that its node is DOWN (Not responding)"


def test_a_controller_that_does_not_answer_is_not_asked_for_every_node(slurm, job, clock, tmp_path):
    slurm.silent("scontrol")
    losses, lost = make_losses(make_agents(job, tmp_path, {}), 100)
    losses.lose_missing()
    assert {one.reason for one in lost} == {"did not start"}
    assert len(slurm.calls("scontrol")) == 1
    slurm.says("scontrol", NODES)
    clock.now += 29
    assert job.describe_fault(1, "e2") == ""
    clock.now += 2
    assert job.describe_fault(1, "e2") == "DOWN*"


UNCONFIRMED = (
    "srun: error: Unable to confirm allocation for job 6: Socket timed out on send/recv operation\n"
    "srun: Check SLURM_JOB_ID environment variable. Expired or invalid job 6\n"
)


@pytest.fixture
def starting(slurm, job, tmp_path, monkeypatch):
    """The agents of a job, whose hosts can be given; ``again(words)``: what comes of an srun that says that."""
    monkeypatch.setattr(agents_module, "_PAUSE_S", 0)
    monkeypatch.setattr(agents_module, "_SETTINGS_S", 0.0)
    folder = RunFolder(str(tmp_path / "job"))
    folder.create()
    hosts = {}
    facts = SimpleNamespace(host=lambda node: hosts.get(node, ""), forget=hosts.clear)
    agents = SlurmAgents(plan(2, at={"engine": "slurm"}), folder, job, facts)

    def again(*words):
        """Whether it is started again after each of these ends."""
        slurm.says("srun", err=words[0], rc=1)
        started = [agents.start(7, "secret").starter]
        for following in (*words[1:], ""):
            assert select.select([started[-1]], [], [], 30)[0]
            slurm.says("srun", err=following, rc=1)
            started.append(agents.start_again())
        return [one is not None for one in started[1:]]

    yield SimpleNamespace(agents=agents, hosts=hosts, again=again, logs=folder.system_logs)
    agents.clear()


def test_srun_is_started_again_when_the_controller_has_not_answered_it(slurm, starting):
    assert starting.again(UNCONFIRMED, "srun: error: Unable to contact slurm controller\n") == [True, True]
    starting.agents.clear()
    first, second, third = slurm.calls("srun")
    assert first == second == third


def test_srun_is_not_started_again_for_what_does_not_pass(slurm, starting):
    """What an srun before it has said is in the same log."""
    assert starting.again(UNCONFIRMED, "srun: error: Invalid node name\n") == [True, False]
    assert "Invalid node name" in starting.agents.explain_loss(0)


@pytest.mark.parametrize("has", ["joined", "failed", "come too late"])
def test_srun_is_not_started_again_once_its_agents(slurm, starting, has, monkeypatch):
    if has == "come too late":
        starting.agents.join_timeout_s = 0.0
    monkeypatch.setattr(starting.agents._facts, "forget", lambda: None)
    if has == "joined":
        starting.hosts[1] = "e2"
    start_srun = starting.agents._start_srun

    def start(argv):
        if has == "failed":
            Path(starting.logs, "node-1.failed").write_text("no supervisor")
        return start_srun(argv)

    monkeypatch.setattr(starting.agents, "_start_srun", start)
    assert starting.again(UNCONFIRMED) == [False]


def test_a_node_that_is_lost_already_is_not_asked_about(slurm, job, tmp_path):
    slurm.says("scontrol", NODES)
    losses, lost = make_losses(make_agents(job, tmp_path, {0: "e1", 1: "e2"}), 2)
    losses.lose(0, "left: for a test")
    losses.lose_closed(0)
    losses.is_over = True
    losses.lose_closed(1)
    assert [one.node for one in lost] == [0]
    assert slurm.calls("scontrol") == []
    losses.is_over = False
    losses.lose_closed(1)
    assert lost[1].reason == "was lost: Slurm says that its node is DOWN*"
