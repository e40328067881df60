"""
A parallel job: on each node one manager (``node/parallel/manager.py``), which starts the workers of the node.

They are no ranks, because a mini-batch that takes too long ends its worker and not the job.
"""

from __future__ import annotations

from drumline.plan.layout import Layout, Process, Request, log_name


def lay_out(request: Request) -> Layout:
    """Lay out workers. ``process_count_per_node`` is the number of workers on each node."""
    count = request.node_count
    return Layout(
        processes=tuple(
            Process(
                rank=node,
                node=node,
                local_rank=0,
                label=str(node),
                name=f"rank_{node}",
                log=log_name(node, count),
                env={"NODE_RANK": str(node)},
            )
            for node in range(count)
        ),
        # AZ_BATCH_MASTER_NODE has one in any job of several nodes.
        ports={"master_port": 0},
        coordinates=frozenset({"NODE_RANK", "DRUMLINE_PARALLEL"}),
        slots=request.process_count_per_node or 1,
        whole_nodes=True,
    )
