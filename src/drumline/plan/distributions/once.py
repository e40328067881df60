"""
``drumline.once``: the command is itself a launcher and runs on node 0 alone, such as ``deepspeed train.py``.

It reaches the other nodes as it is used to, by ``ssh`` or ``pdsh``, which our agents stand in for
(``node/launcher/launcher_socket.py``), and finds them in a file of hosts: one line a node, ``ADDRESS slots=N``, as
DeepSpeed, Open MPI and Horovod read it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from drumline.contract.installed_mpi import OPEN_MPI, Mpi
from drumline.contract.plan import address_of, late
from drumline.plan.distributions import mpi
from drumline.plan.layout import Layout, Process, log_name

if TYPE_CHECKING:
    from drumline.plan.layout import Request


_OPEN_MPI = Mpi(OPEN_MPI, 4, 1, "mpirun")
"""Its variables mean nothing to the others."""


def lay_out(request: Request) -> Layout:
    """Lay out one process. ``process_count_per_node`` is the number of slots of each node in the host file."""
    slots = request.process_count_per_node or 1
    # For an mpirun in the command, which is the user's own: nobody else tells it what its nodes are.
    of_mpi = {**mpi.ROOT_ENV, **mpi.settings(request, _OPEN_MPI)}
    nodes = range(request.node_count)
    return Layout(
        processes=(
            Process(
                rank=0,
                node=0,
                local_rank=0,
                label="0",
                name="rank_0",
                log=log_name(0, 1),
                env={},
            ),
        ),
        env={"MASTER_ADDR": address_of(0), "MASTER_PORT": late("master_port"), **of_mpi},
        ports={"master_port": 0},
        coordinates=frozenset({"MASTER_ADDR", "MASTER_PORT"}),
        slots=slots,
        remote_shell=request.node_count > 1,
        own_host_names=request.nodes_share_machine,
        host_file="".join(f"{address_of(node)} slots={slots}\n" for node in nodes),
    )
