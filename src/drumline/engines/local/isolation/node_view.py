"""What a process sees on an isolated node: host name, files of /etc, shared memory, temporary folder, limits."""

from __future__ import annotations

import contextlib
import os
import re
import socket
from typing import TYPE_CHECKING

from drumline.contract.errors import EngineError
from drumline.engines.local.isolation.settings import SUPERVISOR, address_of
from drumline.linux import limits, namespaces

if TYPE_CHECKING:
    from drumline.engines.local.isolation.network import NodeNetwork
    from drumline.engines.local.isolation.settings import Isolation

_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - a file system of the node's own is mounted there
_TEMPORARY = "tmp"


def enter_node(network: NodeNetwork, node: int, folder: str) -> str:
    """
    Move this process, which must have one thread, to the node, with all that it will start; return the path of its
    temporary folder. ``folder``: an empty one for this user alone. Raises OSError.
    """
    isolation = network.isolation
    _enter_limits(network, node)
    if network.user is not None:
        namespaces.enter(network.user, namespaces.USER)
    namespaces.enter(network.networks[node], namespaces.NETWORK)
    namespaces.unshare(namespaces.HOST_NAME | namespaces.MEMORY)
    socket.sethostname(isolation.host(node))
    namespaces.begin_mounts()
    _mount_etc(isolation, len(network.networks), folder)
    _mount_devices(folder)
    if os.path.isdir(_SHARED_MEMORY):
        _mount_memory(_SHARED_MEMORY, "1777", isolation.shm_bytes)
    if isolation.tmp_bytes is not None:
        _mount_memory(folder, "700", isolation.tmp_bytes)
    temporary = os.path.join(folder, _TEMPORARY)
    os.mkdir(temporary, 0o700)
    return temporary


def _enter_limits(network: NodeNetwork, node: int) -> None:
    isolation, groups = network.isolation, network.groups[node]
    try:
        limits.join_limit_groups(groups)
        if isolation.cpus is not None and groups.cpu:
            limits.limit_cpus(groups, isolation.cpus)
        if isolation.memory_bytes is not None:
            limits.limit_memory(groups, isolation.memory_bytes)
    except OSError as error:
        # Without a limit to keep, a drill alone has use of the groups.
        if isolation.cpus is not None or isolation.memory_bytes is not None:
            raise EngineError(f"limits of node {node} could not be set: {error.strerror}") from error


def _mount_etc(isolation: Isolation, node_count: int, folder: str) -> None:
    """Give names to the nodes, and to nobody else: no name server is reached from here, and asking takes seconds."""
    hosts = ["127.0.0.1 localhost", "::1 localhost"]
    hosts += [f"{address_of(node)} {isolation.host(node)}" for node in range(node_count)]
    texts = {
        "hosts": "\n".join([*hosts, f"{SUPERVISOR} drumline"]) + "\n",
        "resolv.conf": "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n",
        "nsswitch.conf": _look_up_in_files("/etc/nsswitch.conf"),
        "hostname": "",
    }
    for name, text in texts.items():
        target = os.path.join("/etc", name)
        if not os.path.isfile(target):
            continue
        path = os.path.join(folder, name)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), "w") as file:
            file.write(text or socket.gethostname() + "\n")
        namespaces.bind(path, target)


def _look_up_in_files(path: str) -> str:
    try:
        with open(path, errors="replace") as file:
            text = file.read()
    except OSError:
        text = ""
    return re.sub(r"(?m)^\s*hosts:.*\n?", "", text) + "\nhosts: files\n"


def _mount_devices(folder: str) -> None:
    """Show the node's own network cards in /sys. Where that is not allowed, those of the machine stay in sight."""
    place = os.path.join(folder, "sys")
    os.mkdir(place, 0o700)
    with contextlib.suppress(OSError):
        namespaces.mount("sysfs", place, "sysfs", namespaces.NO_PROGRAMS)
        # Control groups are mounted below.
        namespaces.bind("/sys/fs/cgroup", os.path.join(place, "fs/cgroup"))
        namespaces.move_mount(place, "/sys")


def _mount_memory(path: str, mode: str, size_bytes: int | None) -> None:
    size = "" if size_bytes is None else f",size={size_bytes}"
    namespaces.mount("tmpfs", path, "tmpfs", namespaces.NO_DEVICES, f"mode={mode}{size}")
