"""
A port that will be free when a rank binds it.

It lies outside the range from which the kernel takes ports for outgoing connections, and it is leased: the UDP port of
the same number is held on 127.0.0.1 while the job runs, so that no other job of this machine (this network namespace)
takes it, whoever its user is. The kernel allows that once, and no name is in it that another user could take first. The
TCP port itself is not held: a rank may bind it without SO_REUSEADDR.

Where somebody occupies the UDP ports too, the lease is a locked file of this user's, for ports of a range kept for
that. Two jobs of one user then still differ; those of two users differ by chance, and by what is bound already.
"""

from __future__ import annotations

import fcntl
import os
import socket
from contextlib import ExitStack
from typing import TYPE_CHECKING, Protocol

from drumline.contract import identity
from drumline.contract.folder import base_home, private_folder
from drumline.contract.patterns import compile_late
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

_ROOM_FOR_FILES = 4
"""One port of so many is leased by files alone, so that leases of the two kinds never meet."""


class PortLease(Protocol):
    """An open object that holds a port."""

    def close(self) -> None: ...


class NodePorts:
    """The ports that are held for the ranks of a node until these listen on them."""

    def __init__(self) -> None:
        self._leases: list[PortLease] = []
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


def lease_port(address: str) -> tuple[int, PortLease]:
    """
    Return a port and what holds its lease, to be kept open until the job ends. Raises OSError if none is free.

    ``address``: the node's own; the port is free on it and on all addresses together.
    """
    lowest, highest = _read_port_range()
    first = lowest + (highest - lowest + 1) // _ROOM_FOR_FILES
    for candidates, hold in (
        (range(first, highest + 1), _hold_by_socket),
        (range(lowest, first), _hold_by_file),
    ):
        start = int.from_bytes(os.urandom(4), "big")
        for step in range(min(len(candidates), _MAX_TRIES)):
            port = candidates[(start + step * _STRIDE) % len(candidates)]
            held = hold(port)
            if held is None:
                continue
            if _is_free(address, port):
                return port, held
            held.close()
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


def _hold_by_socket(port: int) -> PortLease | None:
    held = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        held.bind(("127.0.0.1", port))
    except OSError:
        held.close()
        return None
    return held


def _hold_by_file(port: int) -> PortLease | None:
    """
    Hold the port by a locked file; None if another process holds it.

    Where no file can be made or locked, nothing is held: a port that was free a moment ago is the best there is.

    Files stay, one a port at most: to remove one that another process has just opened would free the port twice.
    """
    folder = os.path.join(base_home(), "engines", "ports", identity.name_machine())
    try:
        private_folder(folder)
        held = open(os.path.join(folder, str(port)), "a", opener=_open_for_owner)  # noqa: SIM115 - the caller closes it
    except OSError:
        return ExitStack()
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        held.close()
        return None
    except OSError:
        pass
    return held


def _open_for_owner(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def _is_free(address: str, port: int) -> bool:
    for host in ("", address):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            try:
                # Without SO_REUSEADDR: as strict as the strictest script.
                probe.bind((host, port))
            except OSError:
                return False
    return True
