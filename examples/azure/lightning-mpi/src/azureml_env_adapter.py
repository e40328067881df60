"""
What Azure's MPI tells a process about its place, under the names that Lightning and PyTorch read.

For one process on each node, from which Lightning starts those of the node's other devices.
"""

import os

MASTER_PORT = "6105"
"""Where the environment has none."""


def set_environment_variables() -> None:
    """MASTER_ADDR, MASTER_PORT and NODE_RANK. To be called before a Trainer is made."""
    address, port = main_node()
    os.environ["MASTER_ADDR"] = address
    # The port of AZ_BATCH_MASTER_NODE is Azure's own; a launcher that has leased another one says so.
    os.environ.setdefault("MASTER_PORT", port)
    os.environ["NODE_RANK"] = os.environ["OMPI_COMM_WORLD_RANK"]
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "^docker0,lo")


def main_node() -> tuple[str, str]:
    """Its address, and a port of it. On a single node there is no AZ_BATCH_MASTER_NODE."""
    if "AZ_BATCH_MASTER_NODE" in os.environ:
        return os.environ["AZ_BATCH_MASTER_NODE"].rpartition(":")[0], MASTER_PORT
    return os.environ["AZ_BATCHAI_MPI_MASTER_NODE"], MASTER_PORT
