"""The variables of ranks, from the supervisor's plan to the agent that starts them."""

import json
from types import SimpleNamespace

import pytest
from planning import FACTS, environments, plan

from drumline.contract import channel
from drumline.contract import messages as m
from drumline.contract.folder import RunFolder
from drumline.contract.installed_mpi import OPEN_MPI, Mpi
from drumline.node.agent.environment import JobEnvironment
from drumline.supervisor.attempt.attempt_start import RankStart

SECRETS = {"TOKEN": "hidden", "RANK": "never"}
TWO = {"type": "pytorch", "process_count_per_instance": 2}
JOBS = {
    "pytorch": {"distribution": TWO},
    "tensorflow": {"distribution": {"type": "tensorflow", "worker_count": 2, "parameter_server_count": 1}},
    "own variables": {
        "distribution": TWO,
        "environment_variables": {"OMP_NUM_THREADS": "9", "A": "${text:host_list}", "DRUMLINE_ATTEMPT": "x"},
    },
    "mpirun": {"distribution": {**TWO, "type": "mpi"}, "at": {"mpi": Mpi(OPEN_MPI, 4, 1, "mpirun")}},
    "once": {"drumline": {"once": True}},
}


class Wire:
    """Passes messages on as agents read them."""

    def __init__(self):
        self.environments = {}

    def send(self, node, message):
        self._take_in(node, channel.encode(message))

    def _take_in(self, node, line):
        told = channel.decode_for_agent(json.loads(line))
        environment = self.environments.setdefault(node, JobEnvironment(""))
        if isinstance(told, m.ShareVariables):
            environment.shared = told
        else:
            environment.begin(told)

    def send_all(self, nodes, message):
        line = channel.encode_for_many(message)
        for node in nodes:
            self._take_in(node, line)


def launched(made, tmp_path, secrets):
    nodes = SimpleNamespace(
        facts=SimpleNamespace(interface="eth0", gpus=lambda node: FACTS[f"gpus_{node}"], add=lambda *_: None),
        agents=SimpleNamespace(warm_pool=None),
    )
    wire = Wire()
    start = RankStart(RunFolder(str(tmp_path)), made, nodes, wire, 3, secrets)
    for node in range(2):
        hello = m.Hello("", node, "", "", 1, FACTS[f"node_{node}"], "")
        start.add_node(node, hello)
    start.add_ports(0, m.NodePrepared({name: int(FACTS[name]) for name in made.ports}, 0))
    start.launch()
    return [wire.environments[node].launch for node in range(2)]


@pytest.mark.parametrize("name", JOBS)
def test_an_agent_starts_its_ranks_with_the_variables_of_the_plan(name, tmp_path):
    made = plan(**JOBS[name])._replace(max_restarts=5)
    seen = {rank.rank: rank.env for one in launched(made, tmp_path, SECRETS) for rank in one.ranks}
    for rank, planned in environments(made).items():
        expected = {**planned, "DRUMLINE_ATTEMPT": "3"}
        if "TORCHELASTIC_RESTART_COUNT" in planned:
            expected |= {"TORCHELASTIC_RESTART_COUNT": "3", "TORCHELASTIC_MAX_RESTARTS": "5"}
        assert seen[rank] == {**expected, **SECRETS}


@pytest.mark.parametrize(("name", "has_secrets"), [("mpirun", False), ("once", True)])
def test_what_reaches_other_nodes_has_the_variables_of_its_own(name, has_secrets, tmp_path):
    first, second = (one.node_env for one in launched(plan(**JOBS[name]), tmp_path, {"TOKEN": "hidden"}))
    assert (first["AZUREML_CR_NODE_RANK"], second["AZUREML_CR_NODE_RANK"]) == ("0", "1")
    for env in (first, second):
        assert env["DRUMLINE_ATTEMPT"] == "3"
        assert env["MASTER_ADDR"] == "10.0.0.4"
        assert env["AZUREML_RUN_ID"] == "calm_drum"
        assert ("TOKEN" in env) is has_secrets
        assert "RANK" not in env
