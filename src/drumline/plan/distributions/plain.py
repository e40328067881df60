"""
A job without ``distribution``: its command runs once, on several nodes once per node.

Azure ML does not say what several nodes without a distribution mean. Here every node runs the command with the
variables of its node and none of a rank, so that a launcher in the command can take over: torchrun reads ``PET_*``,
and Lightning starts its own ranks where neither LOCAL_RANK nor TORCHELASTIC_RUN_ID says that somebody else did.
Source: lightning/fabric/plugins/environments/lightning.py, creates_processes_externally.
"""

from __future__ import annotations

from drumline.contract.plan import address_of, late
from drumline.plan.distributions import pytorch
from drumline.plan.layout import Layout, Process, Request, log_name


def lay_out(request: Request) -> Layout:
    count = request.node_count
    processes = tuple(
        Process(
            rank=node,
            node=node,
            local_rank=0,
            label=str(node),
            name=f"rank_{node}",
            log=log_name(node, count),
            env={} if count == 1 else _of_node(node, request),
        )
        for node in range(count)
    )
    if count == 1:
        return Layout(processes)
    return Layout(
        processes,
        env={
            "MASTER_ADDR": address_of(0),
            "MASTER_PORT": late("master_port"),
            **pytorch.torchrun(request),
        },
        ports={"master_port": 0},
        coordinates=frozenset({"MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "GROUP_RANK"}),
        whole_nodes=True,
    )


def _of_node(node: int, request: Request) -> dict[str, str]:
    return {"NODE_RANK": str(node), "GROUP_RANK": str(node), **pytorch.torchrun_of(node, request)}
