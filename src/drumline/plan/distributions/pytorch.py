"""
``torch.distributed``'s ``env://`` contract, with the names that Lightning, DeepSpeed and Accelerate read too.

Source: https://pytorch.org/docs/stable/distributed.html#environment-variable-initialization
"""

from __future__ import annotations

from drumline.contract.plan import address_of, late
from drumline.plan.layout import Layout, Process, Request, log_name

COORDINATES = frozenset(
    {
        "MASTER_ADDR",
        "MASTER_PORT",
        "WORLD_SIZE",
        "RANK",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "NODE_RANK",
        "GROUP_RANK",
    }
)


def lay_out(request: Request) -> Layout:
    """``process_count_per_node`` ranks on each node; neighbours in rank share a node."""
    per_node = request.process_count_per_node or 1
    count = request.node_count * per_node
    return Layout(
        processes=tuple(_process(rank, per_node, count) for rank in range(count)),
        env={
            "MASTER_ADDR": address_of(0),
            "MASTER_PORT": late("master_port"),
            "WORLD_SIZE": str(count),
            "LOCAL_WORLD_SIZE": str(per_node),
        },
        ports={"master_port": 0},
        coordinates=COORDINATES,
    )


def _process(rank: int, per_node: int, count: int) -> Process:
    node, local_rank = divmod(rank, per_node)
    return Process(
        rank=rank,
        node=node,
        local_rank=local_rank,
        label=str(rank),
        name=f"rank_{rank}",
        log=log_name(rank, count),
        env={
            "RANK": str(rank),
            "LOCAL_RANK": str(local_rank),
            "NODE_RANK": str(node),
            "GROUP_RANK": str(node),
        },
    )
