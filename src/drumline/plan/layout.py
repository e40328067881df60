"""The layout that a distribution gives a job: its processes and where they are, before environment and paths."""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import TYPE_CHECKING

from drumline.contract.plan import address_of, text_of
from drumline.contract.record import NamedTuple
from drumline.contract.words import format_count

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from drumline.contract.installed_mpi import Mpi
    from drumline.contract.plan import Launcher, NodeShape


class Process(NamedTuple):
    """One rank. ``env`` is what this distribution adds for it, coordinates included."""

    rank: int
    node: int
    local_rank: int
    label: str
    name: str
    """AZUREML_PROCESS_NAME: ``rank_0``, ``worker_0``, ``ps_0``."""

    log: str
    env: Mapping[str, str]
    awaited: bool = True
    argv: tuple[str, ...] = ()
    """Its own program, with late-bound names; empty: the job's command."""

    holds_core: bool = True
    """Whether it counts among the cores that the job holds; not what waits for others most of the time."""


class Layout(NamedTuple):
    processes: tuple[Process, ...]
    env: Mapping[str, str] = MappingProxyType({})
    """What this distribution adds for every rank."""

    texts: Mapping[str, str] = MappingProxyType({})
    """As ``Plan.texts``."""

    ports: Mapping[str, int] = MappingProxyType({})
    coordinates: frozenset[str] = frozenset()
    """Variables that a user cannot set: a job with two ranks 0 hangs."""

    warnings: tuple[str, ...] = ()
    launcher: Launcher | None = None
    """What starts the ranks, if it is not the agents."""

    slots: int = 0
    """Ranks that a launcher in the command starts on each node; 0: the processes of this layout are all there are."""

    remote_shell: bool = False
    """Whether ``ssh`` in a process reaches the other nodes."""

    host_file: str = ""
    """As ``Plan.host_file``."""

    own_host_names: bool = False
    """Whether Open MPI must take nodes of one machine for several, also where that may have no other host name."""

    before: tuple[str, ...] = ()
    """A program that becomes the job's command, which is given as its last arguments."""

    whole_nodes: bool = False
    """Whether its processes have others to run for them, on all GPUs of their node."""


class RaySettings(NamedTuple):
    """The ``distribution`` of a Ray job. None for a port: a free one."""

    port: int | None = None
    include_dashboard: bool = False
    dashboard_port: int | None = None
    head_args: tuple[str, ...] = ()
    worker_args: tuple[str, ...] = ()


class Request(NamedTuple):
    """The numbers of a job that decide its layout. None: not given."""

    node_count: int
    process_count_per_node: int | None = None
    job: str = ""
    """The job's name."""

    gpu_counts: tuple[int, ...] = ()
    """Of each node; empty: not known."""

    worker_count: int | None = None
    parameter_server_count: int | None = None
    chief: bool = False
    evaluator: bool = False
    once: bool = False
    ray: RaySettings = RaySettings()
    mpi_mode: str = "launcher"
    mpi: Mpi | None = None
    """The MPI that the nodes have; None: none, or nobody asked."""

    nodes_share_machine: bool = False
    is_crowded: bool = False
    """Whether some node has fewer cores than ranks, or shares them with other nodes."""


def log_name(process: int, process_count: int) -> str:
    """Return the log of a process, as Azure ML names it."""
    return "user_logs/std_log.txt" if process_count == 1 else f"user_logs/std_log_process_{process:02d}.txt"


def host_list(node_count: int) -> list[str]:
    return [address_of(node) for node in range(node_count)]


def shared_texts(node_count: int) -> dict[str, str]:
    """Return the texts of ``Plan.texts`` that every distribution uses."""
    return {"host_list": json.dumps(host_list(node_count))}


def distributed_config(rank: int) -> str:
    """Return AZUREML_CR_DISTRIBUTED_CONFIG."""
    return f'{{"rank": {rank}, "host_list": {text_of("host_list")}}}'


RANKS_A_CORE = 8
"""With more, ranks wait for each other's turn most of the time."""


def oversubscription_warnings(
    shapes: Sequence[NodeShape], rank_counts: Sequence[int], *, shares_machine: bool
) -> list[str]:
    """
    Return a line where the ranks of a node, or of a machine that plays several, are too many for its cores.

    rank_counts: by node.
    """
    if shares_machine:
        cores = len({core for shape in shapes for core in shape.cores})
        return _describe_oversubscription(sum(rank_counts), cores, "this machine")
    for node, (shape, ranks) in enumerate(zip(shapes, rank_counts, strict=True)):
        found = _describe_oversubscription(ranks, shape.core_count, f"node {node}")
        if found:
            return found
    return []


def _describe_oversubscription(ranks: int, cores: int, where: str) -> list[str]:
    if not cores or ranks <= RANKS_A_CORE * cores:
        return []
    shared = format_count(cores, "core")
    return [f"distribution: {format_count(ranks, 'rank')} share {shared} of {where}; expect them to be slow"]
