"""
TensorFlow's ``TF_CONFIG``: workers, and parameter servers that share the workers' nodes.

Where the job asks for them, a chief and an evaluator come on top, both on node 0. The evaluator is in nobody's
cluster, not in its own either: it works alone on what the others save.
``ps`` stands in the cluster only when there are any: TensorFlow 2.13 and later refuse an empty one.
Source: https://www.tensorflow.org/guide/distributed_training#setting_up_the_tf_config_environment_variable
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

from drumline.contract.errors import PlanError
from drumline.contract.plan import address_of, late, text_of
from drumline.contract.words import format_count
from drumline.plan.layout import Layout, Process, Request
from drumline.plan.request import MOST_PROCESSES, MOST_RANKS

if TYPE_CHECKING:
    from collections.abc import Iterator

Place = tuple[str, int, int]
"""Role, index in it, node."""


def lay_out(request: Request) -> Layout:
    """Lay out tasks. Raises PlanError for fewer workers than nodes, or more tasks than a node can have."""
    nodes = request.node_count
    workers = request.worker_count if request.worker_count is not None else nodes
    servers = request.parameter_server_count or 0
    if workers < nodes:
        raise PlanError(
            f"distribution.worker_count is {workers}, which leaves {nodes - workers} of {nodes} nodes without a worker",
            "make worker_count equal to resources.instance_count",
            path="distribution.worker_count",
        )
    # Workers in blocks, so that neighbours share a node; servers in turn, so that they spread.
    places = [("worker", index, index * nodes // workers) for index in range(workers)]
    places += [("chief", 0, 0)] * request.chief
    places += [("ps", index, index % nodes) for index in range(servers)]
    places += [("evaluator", 0, 0)] * request.evaluator
    _check_count(places)
    return Layout(
        processes=tuple(_processes(places)),
        texts={"cluster": json.dumps(_cluster(places))},
        ports={_port(role, index): node for role, index, node in places if role != "evaluator"},
        coordinates=frozenset({"TF_CONFIG"}),
        warnings=tuple(_warnings(workers, servers, nodes)),
    )


def _check_count(places: list[Place]) -> None:
    most = max(Counter(node for _, _, node in places).values())
    if most > MOST_PROCESSES or len(places) > MOST_RANKS:
        raise PlanError(
            f"distribution: {len(places)} tasks, {most} of them on one node, are more than the {MOST_RANKS} in all "
            f"and {MOST_PROCESSES} on one node that there may be",
            "lower worker_count or parameter_server_count",
            path="distribution",
        )


def _warnings(workers: int, servers: int, nodes: int) -> list[str]:
    said = []
    if workers != nodes:
        said.append(
            f"distribution.worker_count is {workers} on {format_count(nodes, 'node')}: "
            "several workers share a node, where Azure ML expects one each"
        )
    if servers > workers:
        said.append(
            f"distribution.parameter_server_count is {servers} for "
            f"{format_count(workers, 'worker')}: servers add no node, so more of them than workers seldom help"
        )
    return said


def _port(role: str, index: int) -> str:
    return f"{role}_{index}_port"


def _list_awaited(roles: set[str]) -> set[str]:
    """
    Return the roles whose ranks' end is awaited, of those that there are.

    With a chief and parameter servers (ParameterServerStrategy) the workers are servers too: the chief sends them their
    work and its result decides. Without servers (MultiWorkerMirroredStrategy) the chief is one more worker.
    """
    return {"chief"} if {"chief", "ps"} <= roles else {"chief", "worker"}


def _processes(places: list[Place]) -> Iterator[Process]:
    alike = Counter((role, node) for role, _, node in places)
    awaited = _list_awaited({role for role, _, _ in places})
    on_node: Counter[int] = Counter()
    of_role: Counter[tuple[str, int]] = Counter()
    for rank, (role, index, node) in enumerate(places):
        number = "" if alike[role, node] == 1 else f"_{of_role[role, node]:02d}"
        yield Process(
            rank=rank,
            node=node,
            local_rank=on_node[node],
            label={"worker": str(index), "ps": f"ps{index}"}.get(role, role),
            name=f"{role}_{index}",
            log=f"user_logs/std_log_node_{node:02d}_{role}{number}.txt",
            env={"TF_CONFIG": _tf_config(role, index)},
            awaited=role in awaited,
            holds_core=role != "ps",
        )
        on_node[node] += 1
        of_role[role, node] += 1


def _tf_config(role: str, index: int) -> str:
    task = json.dumps({"type": role, "index": index})
    return f'{{"cluster": {text_of("cluster")}, "task": {task}, "environment": "cloud"}}'


def _cluster(places: list[Place]) -> dict[str, list[str]]:
    cluster: dict[str, list[str]] = {}
    for role, index, node in places:
        if role != "evaluator":
            cluster.setdefault(role, []).append(f"{address_of(node)}:{late(_port(role, index))}")
    return cluster
