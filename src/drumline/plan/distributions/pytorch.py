"""
``torch.distributed``'s ``env://`` contract, with the names by which its readers know a launcher and their place.

``TORCHELASTIC_RUN_ID`` and what goes with it are torchrun's: Lightning, Transformers and Accelerate take them for
"somebody else starts the ranks". ``TORCHELASTIC_USE_AGENT_STORE`` is left out: it promises a store that a torchrun
would hold open. JAX has names of its own, for the same ranks.
Sources: https://pytorch.org/docs/stable/distributed.html#environment-variable-initialization,
https://pytorch.org/docs/stable/elastic/run.html#environment-variables,
https://docs.jax.dev/en/latest/_autosummary/jax.distributed.initialize.html
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from drumline.contract.plan import address_of, late
from drumline.plan.layout import Layout, Process, Request, log_name

if TYPE_CHECKING:
    from collections.abc import Mapping

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
        "GROUP_WORLD_SIZE",
        "ROLE_RANK",
        "ROLE_WORLD_SIZE",
        "JAX_COORDINATOR_ADDRESS",
        "JAX_NUM_PROCESSES",
        "JAX_PROCESS_ID",
        "AZ_BATCHAI_TASK_INDEX",
    }
)


def lay_out(request: Request) -> Layout:
    """Lay out ``process_count_per_node`` ranks on each node; neighbours in rank share a node."""
    layout = ranks(request)
    env = {**layout.env, **elastic(request)}
    if (request.process_count_per_node or 1) > 1:
        return layout._replace(env=env)
    return layout._replace(
        processes=tuple(
            process._replace(env={**process.env, **torchrun_of(process.node, request)})
            for process in layout.processes
        ),
        env={**env, **torchrun(request)},
        whole_nodes=request.node_count > 1,
    )


def ranks(request: Request) -> Layout:
    """Return the ranks and their coordinates alone, for distributions with another launcher than torchrun."""
    per_node = request.process_count_per_node or 1
    count = request.node_count * per_node
    return Layout(
        processes=tuple(_process(rank, per_node, count) for rank in range(count)),
        env={
            "MASTER_ADDR": address_of(0),
            "MASTER_PORT": late("master_port"),
            "WORLD_SIZE": str(count),
            "LOCAL_WORLD_SIZE": str(per_node),
            "GROUP_WORLD_SIZE": str(request.node_count),
            "ROLE_NAME": "default",
            "ROLE_WORLD_SIZE": str(count),
            "JAX_COORDINATOR_ADDRESS": f"{address_of(0)}:{late('jax_port')}",
            "JAX_NUM_PROCESSES": str(count),
        },
        ports={"master_port": 0, "jax_port": 0},
        coordinates=COORDINATES,
    )


def torchrun(request: Request) -> dict[str, str]:
    """
    Return variables that, with ``torchrun_of``, make ``torchrun train.py`` the same as with ``--nnodes ...``.

    torchrun takes an argument that is not given from ``PET_`` and its name. Without ``PET_RDZV_BACKEND`` it is
    "static", in which node 0 listens at the master's port.

    Source: torch/distributed/argparse_util.py, torch/distributed/run.py: get_args_parser.
    """
    return {
        "PET_NNODES": str(request.node_count),
        "PET_MASTER_ADDR": address_of(0),
        "PET_MASTER_PORT": late("master_port"),
    }


def torchrun_of(node: int, request: Request) -> dict[str, str]:
    """Return what differs from node to node."""
    gpus = request.gpu_counts[node] if request.node_count > 1 and request.gpu_counts else 0
    return {"PET_NODE_RANK": str(node), "PET_NPROC_PER_NODE": str(max(1, gpus))}


def elastic(request: Request) -> Mapping[str, str]:
    """Return the variables by which torchrun's ranks are known."""
    return {
        "TORCHELASTIC_RUN_ID": request.job,
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
    }


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
            "ROLE_RANK": str(rank),
            "JAX_PROCESS_ID": str(rank),
            # v1's launch lines give DeepSpeed's --global_rank this one.
            "AZ_BATCHAI_TASK_INDEX": str(rank),
        },
    )
