"""
TensorFlow's ``TF_CONFIG``: workers, and parameter servers that share the workers' nodes.

``ps`` stands in the cluster only when there are any: TensorFlow 2.13 and later refuse an empty one.
Source: https://www.tensorflow.org/guide/distributed_training#setting_up_the_tf_config_environment_variable
"""

from __future__ import annotations

import json

from drumline.contract.errors import PlanError
from drumline.contract.plan import address_of, late
from drumline.plan.layout import Layout, Process, Request


def lay_out(request: Request) -> Layout:
    """Raises PlanError when there are fewer workers than nodes."""
    nodes = request.node_count
    workers = request.worker_count if request.worker_count is not None else nodes
    servers = request.parameter_server_count or 0
    if workers < nodes:
        raise PlanError(
            f"distribution.worker_count is {workers}, which leaves {nodes - workers} of {nodes} nodes without a worker",
            "make worker_count equal to resources.instance_count",
        )
    # Workers in blocks, so that neighbours share a node; servers in turn, so that they spread.
    places = [("worker", index, index * nodes // workers) for index in range(workers)]
    places += [("ps", index, index % nodes) for index in range(servers)]
    return Layout(
        processes=tuple(_process(rank, places) for rank in range(len(places))),
        ports={_port(role, index): node for role, index, node in places},
        coordinates=frozenset({"TF_CONFIG"}),
        warnings=_warnings(workers, nodes),
    )


def _warnings(workers: int, nodes: int) -> tuple[str, ...]:
    if workers == nodes:
        return ()
    return (
        f"distribution.worker_count is {workers} on {nodes} {'node' if nodes == 1 else 'nodes'}: "
        "several workers share a node, where Azure ML expects one each",
    )


def _port(role: str, index: int) -> str:
    return f"{role}_{index}_port"


def _process(rank: int, places: list[tuple[str, int, int]]) -> Process:
    role, index, node = places[rank]
    alike = [place for place in places if place[0] == role and place[2] == node]
    local = [place for place in places if place[2] == node].index(places[rank])
    number = "" if len(alike) == 1 else f"_{alike.index(places[rank]):02d}"
    return Process(
        rank=rank,
        node=node,
        local_rank=local,
        label=str(index) if role == "worker" else f"ps{index}",
        name=f"{role}_{index}",
        log=f"user_logs/std_log_node_{node:02d}_{role}{number}.txt",
        env={"TF_CONFIG": _tf_config(role, index, places)},
        awaited=role == "worker",
    )


def _tf_config(role: str, index: int, places: list[tuple[str, int, int]]) -> str:
    cluster: dict[str, list[str]] = {}
    for other, number, node in places:
        cluster.setdefault(other, []).append(f"{address_of(node)}:{late(_port(other, number))}")
    return json.dumps({"cluster": cluster, "task": {"type": role, "index": index}, "environment": "cloud"})
