"""The way in which an agent that an engine started by its own means finds its supervisor: ``SupervisorAddress``."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import sys
import time

from drumline.contract import channel, process_identity
from drumline.contract import messages as m
from drumline.contract.folder import RunFolder, write_whole
from drumline.linux import cgroups, interfaces, kernel
from drumline.node.agent import agent
from drumline.node.scratch import hold_scratch, make_scratch, remove_abandoned

_REACH_S = 5.0
_OTHERS_S = 0.3
"""For the other addresses, when one has answered."""

_FILE_S = 30.0
"""For a network file system to show a file that was written a moment ago."""


def join(run_folder: str, node: int, token: str) -> None:
    """
    Serve the supervisor of that run as the agent of that node, until it says so. Blocks. Raises OSError.
    """
    known = _wait_for_file(RunFolder(run_folder), token)
    own = {"127.0.0.1", *(one["address"] for one in interfaces.list_interfaces())}
    # Node 0 is where the supervisor is. Elsewhere an address of one's own, as docker0 has it on every machine, leads
    # to whoever listens there.
    addresses = [one for one in known.addresses if node == 0 or one not in own]
    reached = reach(addresses, known.port)
    if not reached:
        tried = ", ".join(map(str, addresses))
        raise OSError(f"the supervisor cannot be reached from here; it is at {tried}, port {known.port}")
    sweep(known.scratch)
    scratch = make_scratch(
        _parent(known.scratch), f"drumline-{os.urandom(4).hex()}-n{node}", memory=known.wants_memory
    )
    lease = hold_scratch(scratch)
    kernel.set_process_name(f"drumline-node-{node}")
    hello = {
        "host": os.environ.get(known.host_variable) or os.uname().nodename,
        "gpus": os.environ.get("CUDA_VISIBLE_DEVICES", ""),
        "interfaces": interfaces.list_interfaces(),
        "infiniband": interfaces.list_infiniband_ports(),
        "reached": reached,
        "machine": process_identity.name_network(),
    }
    first = next(iter(reached))
    agent.serve(
        (first, known.port),
        known.secret,
        node,
        reached[first],
        scratch,
        cgroups.choose_group_path(os.path.basename(scratch)),
        hello=hello,
        ended_by=known.ended_by,
    )
    os.close(lease)


def reach(addresses: list[str], port: int) -> dict[str, str]:
    """
    Return the addresses of another machine that answer, in their order, each with the address here that reached it.
    """
    poller = select.poll()
    waiting: dict[int, tuple[str, socket.socket]] = {}
    found: dict[str, str] = {}
    for address in addresses:
        peer = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        waiting[peer.fileno()] = (address, peer)
        with contextlib.suppress(BlockingIOError, OSError):
            peer.connect((address, port))
        poller.register(peer, select.POLLOUT)
    deadline = time.monotonic() + _REACH_S
    while waiting and (left := deadline - time.monotonic()) > 0:
        for descriptor, _ in poller.poll(left * 1000):
            address, peer = waiting.pop(descriptor)
            poller.unregister(descriptor)
            if peer.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0:
                with contextlib.suppress(OSError):
                    peer.getpeername()
                    found[address] = peer.getsockname()[0]
                    deadline = min(deadline, time.monotonic() + _OTHERS_S)
            peer.close()
    for _, peer in waiting.values():
        peer.close()
    return {address: found[address] for address in addresses if address in found}


def _wait_for_file(folder: RunFolder, token: str) -> m.SupervisorAddress:
    deadline = time.monotonic() + _FILE_S
    while True:
        known = folder.read_json(folder.agents) or {}
        if known.get("token") == token:
            other = channel.describe_difference(known)
            if other:
                raise OSError(f"the supervisor is {other}")
            return m.SupervisorAddress(**known)
        if time.monotonic() > deadline:
            raise OSError(
                f"{folder.agents} is not there, or of another attempt: is it on a shared file system?"
            )
        # A network file system shows a new file when its folder is looked at again.
        with contextlib.suppress(OSError):
            os.listdir(folder.path)
        time.sleep(0.1)


def sweep(parent: str) -> None:
    """Remove what agents before this one left in that folder, which were killed and have had nobody to do it."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(_parent(parent)):
            is_ours = (
                cgroups.is_node_name(entry.name) and entry.stat(follow_symlinks=False).st_uid == os.getuid()
            )
            if is_ours and remove_abandoned(entry.path):
                cgroups.kill_group(cgroups.choose_group_path(entry.name))


def _parent(text: str) -> str:
    # A folder with a random name is made in it, exclusively.
    return os.path.expandvars(text) or os.environ.get("TMPDIR") or "/tmp"  # noqa: S108


def main(arguments: list[str]) -> int:
    """Join the job with the words ``RUN_FOLDER TOKEN NODE_VARIABLE``: that variable says which node this is."""
    run_folder, token, variable = arguments
    kernel.lose_output_without_room()
    node = int(os.environ.get(variable, "0"))
    try:
        join(run_folder, node, token)
    except OSError as error:
        print(f"node {node}: {error}", file=sys.stderr)
        # The others may wait for this one.
        with contextlib.suppress(OSError):
            write_whole(os.path.join(RunFolder(run_folder).system_logs, f"node-{node}.failed"), str(error))
        return 1
    return 0
