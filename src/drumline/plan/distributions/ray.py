"""
A Ray cluster made of the job's nodes: its head on node 0, and the job's command run once, there.

``ray start --block`` is a rank of its own on each node, which is not waited for: it is ended when the command has.
``ray_program`` is what all of them begin as, and says why.
Source: https://docs.ray.io/en/latest/cluster/cli.html#ray-start
"""

from __future__ import annotations

import json
import pkgutil
from typing import TYPE_CHECKING

from drumline.contract.plan import address_of, late
from drumline.plan.layout import Layout, Process, Request

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_BEGIN = ("python3", "-c")


def lay_out(request: Request) -> Layout:
    nodes = request.node_count
    ray = request.ray
    port = late("ray_port") if ray.port is None else str(ray.port)
    address = f"{address_of(0)}:{port}"
    # The lease of ray_port is there in any case: AZ_BATCH_MASTER_NODE has it.
    ports = {"ray_port": 0, "client_port": 0}
    ports |= {f"agent_{node}_port": node for node in range(nodes)}
    if ray.include_dashboard and ray.dashboard_port is None:
        ports["dashboard_port"] = 0
    command = Process(
        rank=0,
        node=0,
        local_rank=0,
        label="0",
        name="rank_0",
        log="user_logs/std_log.txt",
        env={},
        holds_core=False,
    )
    return Layout(
        processes=(command, *(_ray_of(node, request, address) for node in range(nodes))),
        env={"RAY_ADDRESS": address},
        ports=ports,
        coordinates=frozenset({"RAY_ADDRESS"}),
        before=(*_BEGIN, _program(), "command"),
        whole_nodes=True,
    )


def _ray_of(node: int, request: Request, address: str) -> Process:
    role, given = ("worker", request.ray.worker_args) if node else ("head", request.ray.head_args)
    return Process(
        rank=node + 1,
        node=node,
        local_rank=0 if node else 1,
        label=f"ray{node}",
        name=f"ray_{node}",
        log=f"user_logs/std_log_node_{node:02d}_ray.txt",
        # Ray itself sets it, to the cores that a task has asked for.
        env={"OMP_NUM_THREADS": ""},
        awaited=False,
        argv=(*_BEGIN, _program(), role, address, _encode(given), *_options(node, request)),
    )


def _options(node: int, request: Request) -> Iterator[str]:
    """Yield the options of Ray on a node; ports that several nodes of one machine would fight for are leased."""
    yield f"--node-ip-address={address_of(node)}"
    yield f"--dashboard-agent-listen-port={late(f'agent_{node}_port')}"
    if node:
        return
    ray = request.ray
    yield f"--ray-client-server-port={late('client_port')}"
    yield f"--include-dashboard={str(ray.include_dashboard).lower()}"
    if ray.include_dashboard:
        port = late("dashboard_port") if ray.dashboard_port is None else ray.dashboard_port
        yield f"--dashboard-port={port}"


def _encode(words: Sequence[str]) -> str:
    """Encode words of the user, in which nothing is late-bound."""
    return json.dumps(words).replace("$", "\\u0024")


def _program() -> str:
    source = pkgutil.get_data("drumline.plan.distributions", "ray_program.py")
    assert source is not None, "it is a file of this package"
    # The job's folder comes first on the path of -c, where a json.py would be taken for Python's.
    return "import sys\nsys.path[:] = [folder for folder in sys.path if folder]\n" + source.decode()
