"""Chief and evaluator, who is waited for, and counts that make no sense."""

import json

import pytest
from planning import FACTS, environments, plan

from drumline.contract.errors import PlanError

ALL_FACTS = {**FACTS, "chief_0_port": "2004", "ps_1_port": "2005"}


def tensorflow(workers=None, servers=0, nodes=2, **settings):
    distribution = {"type": "tensorflow", "worker_count": workers, "parameter_server_count": servers}
    return plan(nodes=nodes, distribution=distribution, drumline=settings)


def configs(made):
    return {
        made.ranks[rank].label: json.loads(variables["TF_CONFIG"])
        for rank, variables in environments(made, ALL_FACTS).items()
    }


def awaited(made):
    return [task.label for task in made.ranks if task.awaited]


def test_a_chief_and_an_evaluator_come_on_top_of_the_workers_on_node_0():
    made = tensorflow(2, 1, chief=True, evaluator=True)
    labels = [[task.label for task in node.ranks] for node in made.nodes]
    assert labels == [["0", "chief", "ps0", "evaluator"], ["1"]]
    assert [task.log for task in made.nodes[0].ranks] == [
        "user_logs/std_log_node_00_worker.txt",
        "user_logs/std_log_node_00_chief.txt",
        "user_logs/std_log_node_00_ps.txt",
        "user_logs/std_log_node_00_evaluator.txt",
    ]


def test_the_evaluator_is_in_nobodys_cluster_and_sees_that_of_the_others():
    seen = configs(tensorflow(2, 1, chief=True, evaluator=True))
    cluster = {
        "worker": ["10.0.0.4:2001", "10.0.0.5:2002"],
        "chief": ["10.0.0.4:2004"],
        "ps": ["10.0.0.4:2003"],
    }
    assert {label: config["cluster"] for label, config in seen.items()} == dict.fromkeys(seen, cluster)
    assert {label: config["task"] for label, config in seen.items()} == {
        "0": {"type": "worker", "index": 0},
        "1": {"type": "worker", "index": 1},
        "chief": {"type": "chief", "index": 0},
        "ps0": {"type": "ps", "index": 0},
        "evaluator": {"type": "evaluator", "index": 0},
    }


@pytest.mark.parametrize(
    ("servers", "settings", "expected"),
    [
        (0, {}, ["0", "1"]),
        (2, {}, ["0", "1"]),
        (0, {"chief": True}, ["0", "1", "chief"]),
        (2, {"chief": True}, ["chief"]),
        (0, {"evaluator": True}, ["0", "1"]),
        (2, {"chief": True, "evaluator": True}, ["chief"]),
    ],
)
def test_who_is_waited_for(servers, settings, expected):
    assert awaited(tensorflow(2, servers, **settings)) == expected


def test_what_trains_holds_a_core_though_it_is_not_waited_for():
    assert tensorflow(2, 2, chief=True).cores_wanted == 3


@pytest.mark.parametrize("task", ["chief", "evaluator"])
def test_only_tensorflow_has_these_tasks(task):
    with pytest.raises(PlanError, match=f"drumline.{task}: only .*tensorflow"):
        plan(distribution={"type": "pytorch"}, drumline={task: True})


@pytest.mark.parametrize(
    ("workers", "servers", "message"),
    [
        (0, 0, "worker_count: 0 is not between"),
        (-1, 0, "worker_count: -1 is not between"),
        (2, -1, "parameter_server_count: -1 is not between"),
        (1, 0, "leaves 1 of 2 nodes without a worker"),
        (2, 3000, "1501 of them on one node"),
    ],
)
def test_counts_that_cannot_run_are_refused(workers, servers, message):
    with pytest.raises(PlanError, match=message):
        tensorflow(workers, servers)


def test_counts_that_can_but_should_not_are_warned_of():
    assert any("several workers share a node" in warning for warning in tensorflow(4).warnings)
    assert any("more of them than workers" in warning for warning in tensorflow(2, 3).warnings)
    assert tensorflow(2, 2).warnings == ()
