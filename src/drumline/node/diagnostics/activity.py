"""
Signs that a rank goes on which neither prints nor computes: counts that the hook keeps, requests that it has answered,
bytes of its sockets and files, and a sleep that ends. And its TCP connections.

All of it is read from outside: it costs the rank nothing. Where the kernel does not tell, the sign is missing.
"""

from __future__ import annotations

import itertools
import os
import re
import socket
import struct
import time
from typing import TYPE_CHECKING, Optional

from drumline.contract.messages import Activity
from drumline.contract.record import NamedTuple
from drumline.linux import cgroups, descendants, process_usage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


COUNTS_NAME, COUNTS = "drumline-counts", struct.Struct("<4Q")
"""The memory in which ``hook/collectives.py`` counts; its first number is of collectives of all ranks."""

STACKS_NAME = "drumline-stacks"
"""The memory into which ``hook/sitecustomize.py`` writes for ``stacks``: these bytes are not the program's."""

_SOCK_DIAG, _DUMP, _DONE, _BY_FAMILY = 4, 0x301, 3, 20
_LISTEN = 10
_INFO = 2
_ACKED_AT = 120
_NETLINK, _REQUEST, _ROW = (
    struct.Struct("=IHHII"),
    struct.Struct("=BBBBI48x"),
    struct.Struct("=BB2x2s2s16s16s28xI"),
)
_ATTRIBUTE, _TRAFFIC = struct.Struct("=HH"), struct.Struct("=QQ")
"""Source: linux/inet_diag.h, and tcp_info of linux/tcp.h, which has bytes acknowledged and received since Linux 4.1."""

# By machine: wait4 and waitid; nanosleep; clock_nanosleep; epoll_wait and epoll_pwait. Source: the kernel's tables of
# system calls.
_WAITS, _NANOSLEEP, _CLOCK_NANOSLEEP, _EPOLLS = {
    "x86_64": (("61", "247"), "35", "230", ("232", "281")),
    "aarch64": (("260", "95"), "101", "115", ("22",)),
}.get(os.uname().machine, ((), "", "", ()))
_IN_FLIGHT_BYTES = 1024
"""Of the bytes sent, which were written and are not acknowledged, at most."""

_TIMESPEC = struct.Struct("=qq")
_MOST_BYTES = 4096


class _Connection(NamedTuple):
    """
    A TCP socket of this network. ``own``: its port; ``peer``: address and port, none where it listens; ``inode``: 0
    once it was closed.
    """

    state: int
    own: bytes
    peer: bytes
    inode: int
    acked: int
    received: int


class ActivityReader:
    """Reads the activity of ranks, and remembers what it has seen of each."""

    def __init__(self) -> None:
        self._ranks: dict[int, _RankFollower] = {}

    def read(self, pids: Mapping[int, int], looks: Mapping[int, int]) -> dict[int, Activity]:
        """
        Return the activity of each rank. ``pids``: of its first process. ``looks``: the bytes that the hook has written
        for looks at it; 0: none.
        """
        connections = list(_list_connections())
        return {
            rank: self._ranks.setdefault(rank, _RankFollower()).read(pid, looks[rank], connections)
            for rank, pid in pids.items()
        }

    def leave_out_writes(self, pids: Mapping[int, int]) -> None:
        """Leave out what the ranks have written since they were read."""
        for rank, pid in pids.items():
            self._ranks[rank].leave_out_writes(pid)


class _RankFollower:
    """Follows one rank from look to look: sockets and processes come and go, and what they did counts all the same."""

    def __init__(self) -> None:
        self._sent: dict[int, int] = {}
        self._received: dict[int, int] = {}
        self._accepted: dict[int, int] = {}
        self._written: dict[int, int] = {}
        self._ours: dict[int, int] = {}
        self._requests = self._net_bytes = self._balance = self._peak = 0

    def read(self, pid: int, looks: int, connections: list[_Connection]) -> Activity:
        found = _scan_processes(pid)
        own = [one for one in connections if one.inode in found.sockets]
        sent = _count_more(self._sent, {one.inode: one.acked for one in own})
        self._net_bytes += sent + _count_more(self._received, {one.inode: one.received for one in own})
        ports = {one.own for one in own if one.state == _LISTEN}
        accepted = {
            hash((one.own, one.peer)): one.acked for one in connections if one.own in ports and one.peer
        }
        if looks or found.counts:
            # Frameworks keep connections, and look for each other there all the time.
            accepted = dict.fromkeys(accepted, 0)
        self._requests += len(accepted.keys() - self._accepted.keys())
        self._requests += _count_more(self._accepted, accepted)
        self._follow_writes(found, sent, looks)
        counts = [sum(column) for column in zip(*found.counts.values())] or [0]
        totals = (self._requests, self._net_bytes, self._peak)
        return Activity(counts[0], sum(counts), *totals, _find_sleep(pid))

    def leave_out_writes(self, pid: int) -> None:
        found = _scan_processes(pid)
        self._written = found.written
        self._ours.update(found.stacks)

    def _follow_writes(self, found: _Processes, sent: int, looks: int) -> None:
        """Follow what was written, but for the hook's own and what was sent, which may not be acknowledged yet."""
        ours = _count_more(self._ours, {**found.stacks, 0: looks})
        self._balance += _count_more(self._written, found.written) - ours - sent
        self._peak = max(self._peak, self._balance)
        self._balance = max(self._balance, self._peak - _IN_FLIGHT_BYTES)


def _count_more(before: dict[int, int], now: Mapping[int, int]) -> int:
    """Return by how much these counts have risen, and remember them."""
    more = sum(max(0, count - before.get(key, 0)) for key, count in now.items())
    before.clear()
    before.update(now)
    return more


class _Processes(NamedTuple):
    """
    The sockets that processes have open; by inode, for forks share it, the counts of the hook and the sizes of its
    memory for stacks; by process, the bytes written to anything.
    """

    sockets: set[int]
    counts: dict[int, list[int]]
    stacks: dict[int, int]
    written: dict[int, int]


def _scan_processes(pid: int) -> _Processes:
    """Scan a process and all below it."""
    found = _Processes(set(), {}, {}, {})
    for one in (pid, *descendants.list_descendants(pid)):
        io = process_usage.read_io(one)
        found.written[one] = io[1] if io else 0
        try:
            for name in os.listdir(f"/proc/{one}/fd"):
                _scan_descriptor(f"/proc/{one}/fd/{name}", found)
        except OSError:
            continue  # It has ended, or is another user's.
    return found


def _scan_descriptor(path: str, found: _Processes) -> None:
    try:
        target = os.readlink(path)
        if target.startswith("socket:["):
            found.sockets.add(int(target[8:-1]))
        elif target.startswith(f"/memfd:{COUNTS_NAME}"):
            data = process_usage.read_bytes(path, COUNTS.size)
            is_whole = len(data) == COUNTS.size
            found.counts[os.stat(path).st_ino] = list(COUNTS.unpack(data if is_whole else bytes(COUNTS.size)))
        elif target.startswith(f"/memfd:{STACKS_NAME}"):
            memory = os.stat(path)
            found.stacks[memory.st_ino] = memory.st_size
    except (OSError, ValueError):
        return  # It was closed.


def _list_connections() -> Iterator[_Connection]:
    """Yield the TCP sockets of this network; none where the kernel does not tell."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as asked:
                asked.settimeout(1.0)
                request = _REQUEST.pack(family, socket.IPPROTO_TCP, 1 << (_INFO - 1), 0, 0xFFFFFFFF)
                asked.send(_NETLINK.pack(_NETLINK.size + len(request), _BY_FAMILY, _DUMP, 1, 0) + request)
                yield from _receive_rows(asked)
        except (OSError, AttributeError, struct.error):
            continue


def _receive_rows(asked: socket.socket) -> Iterator[_Connection]:
    while True:
        data, at = asked.recv(1 << 17), 0
        while at + _NETLINK.size <= len(data):
            size, kind, *_ = _NETLINK.unpack_from(data, at)
            if kind != _BY_FAMILY or size < _NETLINK.size:
                return  # It is the end, or an error.
            yield _parse_row(data[at + _NETLINK.size : at + size])
            at += (size + 3) & ~3


def _parse_row(row: bytes) -> _Connection:
    _, state, own, port, _, address, inode = _ROW.unpack_from(row)
    at, acked, received = 72, 0, 0
    while at + _ATTRIBUTE.size <= len(row):
        size, kind = _ATTRIBUTE.unpack_from(row, at)
        if kind == _INFO and size >= _ATTRIBUTE.size + _ACKED_AT + _TRAFFIC.size:
            acked, received = _TRAFFIC.unpack_from(row, at + _ATTRIBUTE.size + _ACKED_AT)
        at += max(_ATTRIBUTE.size, (size + 3) & ~3)
    peer = b"" if state == _LISTEN else address + port
    return _Connection(state, own, peer, inode, acked, received)


def _find_sleep(pid: int) -> float:
    """Return for how many seconds the main thread of a process, or of a child that it waits for, will sleep; or 0."""
    words = process_usage.read_bytes(f"/proc/{pid}/syscall", _MOST_BYTES).decode().split()
    if len(words) < 5:
        return 0.0
    called, arguments = words[0], [int(word, 16) for word in words[1:5]]
    if called in _WAITS:
        return max(map(_find_sleep, descendants.list_children(pid)), default=0.0)
    if called in _EPOLLS:
        timeout_ms = arguments[3] & 0xFFFFFFFF
        return timeout_ms / 1e3 if timeout_ms < 1 << 31 else 0.0
    if called == _NANOSLEEP:
        return _read_time(pid, arguments[0])
    if called != _CLOCK_NANOSLEEP:
        return 0.0
    until = _read_time(pid, arguments[2])
    is_absolute = arguments[1] & 1
    return max(0.0, until - time.clock_gettime(arguments[0])) if is_absolute and arguments[0] < 2 else until


def _read_time(pid: int, address: int) -> float:
    """Return the seconds in a timespec of a process; 0 where that may not be read."""
    try:
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
            memory.seek(address)
            seconds, nanoseconds = _TIMESPEC.unpack(memory.read(_TIMESPEC.size))
    except (OSError, ValueError, OverflowError, struct.error):
        return 0.0
    return float(seconds + nanoseconds / 1e9)


# The TCP connections of a rank, by which it is known whether ranks have reached each other.


_ESTABLISHED = "01"
_MOST_CONNECTIONS = 256
_MOST_ROWS = 100_000
_OTHER_WAYS = re.compile(r"/(libmpi|libmpi_cxx|mpi_lib\w*|libucp|libgaspi)[^/]*\.so")
"""Libraries by which ranks of one machine reach each other without TCP; Horovod's is ``mpi_lib``."""


def read_connections(pid: int) -> Optional[list[list[str]]]:
    """
    Return both ends of each connection of a process and those below it, its own first, as ``10.0.0.1:29500``; None
    where that is not known, says nothing, or is too much to tell. Source: proc_net_tcp.rst.
    """
    pids = [pid, *descendants.list_descendants(pid)]
    rows = _read_rows(pid)
    if rows is None:
        return None
    found: dict[tuple[str, str], None] = {}
    for one in pids:
        try:
            inodes = list(_list_sockets(one))
        except (FileNotFoundError, ProcessLookupError):
            continue  # It has ended.
        except OSError:
            stat = process_usage.read_stat(one)
            if stat is None or stat.state == "Z":
                continue  # It has ended too; only root is told that a zombie has no files.
            return None
        if _OTHER_WAYS.search(cgroups.read_text(f"/proc/{one}/maps")):
            return None
        found.update(dict.fromkeys(rows[inode] for inode in inodes if inode in rows))
    # Of ranks that tell some of them only, it would seem that they never connected.
    return None if len(found) > _MOST_CONNECTIONS else [list(ends) for ends in found]


def _list_sockets(pid: int) -> Iterator[str]:
    folder = f"/proc/{pid}/fd"
    for name in os.listdir(folder):
        try:
            target = os.readlink(os.path.join(folder, name))
        except FileNotFoundError:
            continue
        if target.startswith("socket:["):
            yield target[8:-1]


def _read_rows(pid: int) -> Optional[dict[str, tuple[str, str]]]:
    """Return both ends of the connections in the network of a process, by inode; None: there are too many."""
    rows: dict[str, tuple[str, str]] = {}
    for name in ("tcp", "tcp6"):
        try:
            with open(f"/proc/{pid}/net/{name}", encoding="ascii") as file:
                # In one go: whoever reads on after the end may find a connection that began since.
                lines = list(itertools.islice(file, _MOST_ROWS + 1))
        except OSError:
            continue
        if len(lines) > _MOST_ROWS:
            return None
        for words in map(str.split, lines):
            if len(words) > 9 and words[3] == _ESTABLISHED:
                rows[words[9]] = _parse_end(words[1]), _parse_end(words[2])
    return rows


def _parse_end(text: str) -> str:
    """
    Return address and port as people write them; IPv4 in IPv6 is IPv4.

    >>> _parse_end("0100007F:733C"), _parse_end("0000000000000000FFFF00000100007F:0050")
    ('127.0.0.1:29500', '127.0.0.1:80')
    """
    digits, _, port = text.partition(":")
    # Words of four bytes, each in the order of this machine.
    raw = b"".join(bytes.fromhex(digits[at : at + 8])[::-1] for at in range(0, len(digits), 8))
    if len(raw) == 16 and raw[:12] == b"\0" * 10 + b"\xff\xff":
        raw = raw[12:]
    family = socket.AF_INET if len(raw) == 4 else socket.AF_INET6
    return f"{socket.inet_ntop(family, raw)}:{int(port, 16)}"
