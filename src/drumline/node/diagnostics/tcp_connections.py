"""The TCP connections of a rank, by which it is known whether ranks have reached each other."""

from __future__ import annotations

import itertools
import os
import re
import socket
from typing import TYPE_CHECKING, Optional

from drumline.linux import cgroups, descendants, process_usage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

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
        rows.update(_parse_rows(lines))
    return rows


def _parse_rows(lines: Iterable[str]) -> Iterator[tuple[str, tuple[str, str]]]:
    for line in lines:
        words = line.split()
        if len(words) > 9 and words[3] == _ESTABLISHED:
            yield words[9], (_parse_end(words[1]), _parse_end(words[2]))


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
