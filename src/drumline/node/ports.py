"""
A port that will be free when a rank binds it.

It lies outside the range from which the kernel takes ports for outgoing connections, and it is leased: an abstract
socket of that name is held while the job runs, so that no other job of this machine (this network namespace) takes it.
The port itself is not held: a rank may bind it without SO_REUSEADDR.
"""

from __future__ import annotations

import os
import re
import socket

from drumline.node import kernel

_TAKEN = re.compile(r"EADDRINUSE|Address already in use")
_PORT = re.compile(r"\bport:? *(\d{1,5})\b|\('[^']*', (\d{1,5})\b|(?:\.\d{1,3}|\]|\*):(\d{1,5})\b")
"""``port: 29500``, ``('0.0.0.0', 29500)``, ``127.0.0.1:29500``; a time of day is none."""

_LOWEST = 20000
_TRIES = 2000


def lease(address: str) -> tuple[int, socket.socket]:
    """
    A port and what holds its lease, to be kept open until the job has ended. Raises OSError when none is free.

    ``address``: the node's own; the port is free on it and on all addresses together.
    """
    lowest, highest = _range()
    count = highest - lowest + 1
    start = int.from_bytes(os.urandom(4), "big")
    for step in range(min(count, _TRIES)):
        port = lowest + (start + step) % count
        holder = _hold(port)
        if holder is None:
            continue
        if _is_free(address, port):
            return port, holder
        holder.close()
    raise OSError(f"no free port between {lowest} and {highest}")


def holder(text: str) -> str:
    """
    Who listens at the port that ``text`` says is taken: ``port 29500 is held by process 71 (python)``; empty when it
    does not say which, or nobody listens there.
    """
    said = _PORT.search(text) if _TAKEN.search(text) else None
    if said is None:
        return ""
    number = next(filter(None, said.groups()))
    inodes = set(_listening(int(number)))
    for pid in filter(str.isdigit, os.listdir("/proc")) if inodes else ():
        if inodes & set(_sockets(pid)):
            return f"port {number} is held by {kernel.described(int(pid))}"
    return f"port {number} is held by another user's process" if inodes else ""


def _listening(port: int) -> list[str]:
    """The inodes of sockets that listen there. Source: proc_net(5): state 0A, the local address in hexadecimal."""
    found = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table) as file:
                rows = [line.split() for line in file][1:]
        except OSError:
            continue
        found += [row[9] for row in rows if row[3] == "0A" and row[1].endswith(f":{port:04X}")]
    return found


def _sockets(pid: str) -> list[str]:
    found = []
    try:
        for number in os.listdir(f"/proc/{pid}/fd"):
            link = os.readlink(f"/proc/{pid}/fd/{number}")
            if link.startswith("socket:["):
                found.append(link[8:-1])
    except OSError:
        pass
    return found


def _range() -> tuple[int, int]:
    try:
        with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
            first_ephemeral = int(file.read().split()[0])
    except (OSError, ValueError, IndexError):
        first_ephemeral = 32768
    highest = first_ephemeral - 1
    # A machine whose ephemeral range leaves no room below it: a leased port inside it is the best there is.
    return (_LOWEST, highest) if highest - _LOWEST >= 1000 else (_LOWEST, 60999)


def _hold(port: int) -> socket.socket | None:
    holder = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        holder.bind(f"\0drumline-port-{port}")
    except OSError:
        holder.close()
        return None
    return holder


def _is_free(address: str, port: int) -> bool:
    for host in ("", address):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            try:
                # Without SO_REUSEADDR: as strict as the strictest script.
                probe.bind((host, port))
            except OSError:
                return False
    return True
