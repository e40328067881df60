"""Texts that many values of a plan share are in it once; ranks see them in full, as in plans of format 1."""

import json
from pathlib import Path

import pytest
from planning import FACTS, environments, plan

from drumline.contract.plan import Plan
from drumline.contract.rank_variables import RankVariables

FORMAT_1 = Path(__file__).parent / "golden" / "format-1"
PYTORCH = {"type": "pytorch", "process_count_per_instance": 2}
JOBS = {
    "plain-1": {"nodes": 1},
    "plain-2": {},
    "pytorch-2x2": {"distribution": PYTORCH},
    "pytorch-2x1-cluster": {
        "distribution": {**PYTORCH, "process_count_per_instance": 1},
        "gpus": 2,
        "at": {"engine": "slurm"},
    },
    "mpi-2x2-environment": {
        "distribution": {**PYTORCH, "type": "mpi"},
        "drumline": {"mpi": "environment"},
    },
    "tensorflow-2+1": {
        "distribution": {"type": "tensorflow", "worker_count": 2, "parameter_server_count": 1}
    },
    "tensorflow-3+2+chief+evaluator": {
        "distribution": {"type": "tensorflow", "worker_count": 3, "parameter_server_count": 2},
        "drumline": {"chief": True, "evaluator": True},
    },
}
MORE_FACTS = {
    **FACTS,
    "worker_2_port": "2004",
    "ps_1_port": "2005",
    "chief_0_port": "2006",
    "ib_devices": "",
    "ucx_devices": "eth0",
}


@pytest.mark.parametrize("name", JOBS)
def test_ranks_have_the_variables_that_a_plan_of_format_1_gives_them(name):
    before = Plan.from_json((FORMAT_1 / f"{name}.json").read_text())
    assert before.format == 1
    was = environments(before, MORE_FACTS)
    seen = environments(plan(**JOBS[name]), MORE_FACTS)
    assert {rank: {one: seen[rank].get(one) for one in variables} for rank, variables in was.items()} == was


@pytest.mark.parametrize("name", ["pytorch-2x1-cluster", "tensorflow-3+2+chief+evaluator"])
def test_no_reference_is_left_in_the_variables_of_a_rank(name):
    for variables in environments(plan(**JOBS[name]), MORE_FACTS).values():
        assert "${" not in json.dumps(variables)


def test_what_differs_from_node_to_node_is_bound_for_each():
    made = plan(**JOBS["pytorch-2x1-cluster"])
    variables = RankVariables(made, MORE_FACTS)
    own = {"interface": "ib7", "ib_devices": "mlx5_0"}
    first, second = (variables.of_rank(node, node.ranks[0], own if node.node else {}) for node in made.nodes)
    names = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "NCCL_IB_HCA", "UCX_NET_DEVICES")
    assert [first.get(name) for name in names] == ["eth0", "eth0", None, "eth0"]
    assert [second.get(name) for name in names] == ["ib7", "ib7", "mlx5_0", "eth0"]


@pytest.mark.parametrize(
    "make",
    [
        lambda nodes: plan(nodes=nodes, distribution=PYTORCH),
        lambda nodes: plan(nodes=nodes, distribution={"type": "tensorflow", "worker_count": nodes}),
        lambda nodes: plan(nodes=nodes),
    ],
    ids=["pytorch", "tensorflow", "plain"],
)
def test_a_plan_grows_with_its_nodes_and_no_faster(make):
    sizes = [len(make(nodes).to_json()) for nodes in (100, 200, 300)]
    # Numbers have more digits in it, and little else.
    assert sizes[2] - sizes[1] < 1.1 * (sizes[1] - sizes[0])
    assert make(100).to_json().count("${node_50}") <= 4


def test_a_plan_of_10000_ranks_has_less_than_5_mb():
    made = plan(nodes=1250, distribution={**PYTORCH, "process_count_per_instance": 8}, cores=64)
    assert len(made.to_json()) < 5_000_000
