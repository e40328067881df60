"""What a distribution makes of a job: its processes and where they are, before environment and paths."""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from drumline.contract.plan import address_of

if TYPE_CHECKING:
    from collections.abc import Mapping


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


class Layout(NamedTuple):
    processes: tuple[Process, ...]
    env: Mapping[str, str] = MappingProxyType({})
    """What this distribution adds for every rank."""

    ports: Mapping[str, int] = MappingProxyType({})
    coordinates: frozenset[str] = frozenset()
    """Variables that a user cannot set: a job with two ranks 0 hangs."""

    warnings: tuple[str, ...] = ()


class Request(NamedTuple):
    """The numbers of a job that decide its layout. None: not given."""

    node_count: int
    process_count_per_node: int | None = None
    worker_count: int | None = None
    parameter_server_count: int | None = None
    chief: bool = False
    evaluator: bool = False
    once: bool = False


def log_name(process: int, process_count: int) -> str:
    """The log of a process, as Azure ML names it."""
    return "user_logs/std_log.txt" if process_count == 1 else f"user_logs/std_log_process_{process:02d}.txt"


def host_list(node_count: int) -> list[str]:
    return [address_of(node) for node in range(node_count)]


def distributed_config(rank: int, node_count: int) -> str:
    """AZUREML_CR_DISTRIBUTED_CONFIG."""
    return json.dumps({"rank": rank, "host_list": host_list(node_count)})
