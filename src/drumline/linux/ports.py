"""
A port that will be free when a rank binds it.

It lies outside the range from which the kernel takes ports for outgoing connections, and it is leased: the UDP port of
the same number is held on 127.0.0.1 while the job runs, so that no other job of this machine (this network namespace)
takes it, whoever its user is. The kernel allows that once, and no name is in it that another user could take first. The
TCP port itself is not held: a rank may bind it without SO_REUSEADDR. Where somebody occupies the UDP ports too, a port
that is free at this moment is the best there is.
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

from drumline.contract.record import compile_late
from drumline.linux import kernel

if TYPE_CHECKING:
    from collections.abc import Iterable

_PORT_TAKEN = compile_late(r"EADDRINUSE|Address already in use")
_PORT = compile_late(r"\bport:? *(\d{1,5})\b|\('[^']*', (\d{1,5})\b|(?:\.\d{1,3}|\]|\*):(\d{1,5})\b")
"""``port: 29500``, ``('0.0.0.0', 29500)``, ``127.0.0.1:29500``; a time of day is none."""

_LOWEST_PORT = 20000
_MAX_TRIES = 300
"""Jobs hold a few ports of thousands: where so many cannot be had, somebody is taking them all."""

_STRIDE = 7919
"""Candidates that follow each other are far apart: what is taken often comes in runs."""


class NodePorts:
    """The ports that are held for the ranks of a node until these listen on them."""

    def __init__(self) -> None:
        self._leases: list[socket.socket] = []
        self._probe: socket.socket | None = None

    def lease_all(self, names: Iterable[str], address: str) -> dict[str, int]:
        """Return a port for each name. Raises OSError."""
        leased = {}
        for name in names:
            leased[name], held = lease_port(address)
            self._leases.append(held)
        return leased

    def open_probe(self, address: str) -> int:
        """Listen, so that other nodes can try whether they reach this one, and return the port. Raises OSError."""
        self._probe = socket.create_server((address, 0), backlog=1024)
        return int(self._probe.getsockname()[1])

    def close_probe(self) -> None:
        if self._probe:
            self._probe.close()


def lease_port(address: str) -> tuple[int, socket.socket]:
    """
    Return a port and what holds its lease, to be kept open until the job ends. Raises OSError if none is free.

    ``address``: the node's own; the port is free on it and on all addresses together.
    """
    lowest, highest = _read_port_range()
    count = highest - lowest + 1
    for is_held in (True, False):
        start = int.from_bytes(os.urandom(4), "big")
        for step in range(min(count, _MAX_TRIES)):
            port = lowest + (start + step * _STRIDE) % count
            lease = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            if (_is_bound(lease, "127.0.0.1", port) or not is_held) and _is_free(address, port):
                return port, lease
            lease.close()
    raise OSError(f"no free port between {lowest} and {highest}")


def find_port_holder(text: str) -> str:
    """
    Return who listens at the port that ``text`` says is taken: ``port 29500 is held by process 71 (python)``; empty if
    the text does not name a port, or if nobody listens there.
    """
    said = _PORT.search(text) if _PORT_TAKEN.search(text) else None
    if said is None:
        return ""
    number = next(filter(None, said.groups()))
    owners = _list_listening_sockets(int(number))
    for pid in filter(str.isdigit, os.listdir("/proc")) if owners else ():
        if owners.keys() & set(_list_socket_inodes(pid)):
            return f"port {number} is held by {kernel.describe_process(int(pid))}"
    if not owners:
        return ""
    if os.getuid() in owners.values():
        return f"port {number} is held by a process that cannot be seen from here, as in another container"
    return f"port {number} is held by another user's process"


def _list_listening_sockets(port: int) -> dict[str, int]:
    """
    Return the sockets that listen there, by inode to the owner's user ID.

    Source: proc_net(5): state 0A, the local address in hexadecimal.
    """
    found = {}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table) as file:
                rows = [line.split() for line in file][1:]
        except OSError:
            continue
        found.update(
            {row[9]: int(row[7]) for row in rows if row[3] == "0A" and row[1].endswith(f":{port:04X}")}
        )
    return found


def _list_socket_inodes(pid: str) -> list[str]:
    found = []
    try:
        for number in os.listdir(f"/proc/{pid}/fd"):
            link = os.readlink(f"/proc/{pid}/fd/{number}")
            if link.startswith("socket:["):
                found.append(link[8:-1])
    except OSError:
        pass
    return found


def _read_port_range() -> tuple[int, int]:
    try:
        with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
            first_ephemeral = int(file.read().split()[0])
    except (OSError, ValueError, IndexError):
        first_ephemeral = 32768
    highest = first_ephemeral - 1
    # A machine whose ephemeral range leaves no room below it: a leased port inside it is the best there is.
    return (_LOWEST_PORT, highest) if highest - _LOWEST_PORT >= 1000 else (_LOWEST_PORT, 60999)


def _is_free(address: str, port: int) -> bool:
    for host in ("", address):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            # Without SO_REUSEADDR: as strict as the strictest script.
            if not _is_bound(probe, host, port):
                return False
    return True


def _is_bound(endpoint: socket.socket, host: str, port: int) -> bool:
    """Bind it, and return whether that went well."""
    try:
        endpoint.bind((host, port))
    except OSError:
        return False
    return True
