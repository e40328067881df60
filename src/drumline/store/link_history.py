"""
The links of a compute's nodes over time: a line for each job whose nodes were measured, the newest last, bounded, for
their owner alone. A line that another process was cut off in, or has damaged, is left out.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from typing import TYPE_CHECKING, Any

from drumline.contract.folder import private_folder, read_plain, write_whole
from drumline.contract.record import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

FOLDER = "node-links"
"""Of a home, with a file for each compute."""

MOST_RUNS = 100
"""That are looked at for one node."""

_SUFFIX = ".jsonl"
_MOST_BYTES = 1 << 20
"""Of a file; then its older half goes."""


class NodeLink(NamedTuple):
    """The best link of a node in one job, in both directions."""

    to_bytes_per_s: int
    from_bytes_per_s: int
    round_trip_s: float


def read_history(home: str, compute: str) -> dict[str, list[NodeLink]]:
    """Return the links of earlier jobs by the host name of the node, oldest first."""
    found: dict[str, list[NodeLink]] = {}
    for line in _read_lines(_path(home, compute)):
        for host, values in _read_nodes(line).items():
            found.setdefault(host, []).append(values)
    return {host: links[-MOST_RUNS:] for host, links in found.items()}


def add_job(home: str, compute: str, job: str, time: float, nodes: Mapping[str, NodeLink]) -> None:
    """Add the links of a job's nodes, by host name. Raises OSError."""
    path = _path(home, compute)
    private_folder(os.path.dirname(path))
    line = json.dumps(
        {"time": round(time, 3), "job": job, "nodes": {host: list(one) for host, one in nodes.items()}}
    )
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        size = os.fstat(descriptor).st_size
        # One that was cut off ends no line.
        ends = size == 0 or os.pread(descriptor, 1, size - 1) == b"\n"
        os.write(descriptor, ("" if ends else "\n").encode() + line.encode() + b"\n")
    finally:
        os.close(descriptor)
    if size > _MOST_BYTES:
        lines = _read_lines(path)
        write_whole(path, "".join(one + "\n" for one in lines[len(lines) // 2 :]))


def forget(home: str, compute: str) -> None:
    """Remove the links of a compute's nodes. No error where there are none. Raises OSError."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        os.unlink(_path(home, compute))


def list_files(home: str) -> list[tuple[str, str]]:
    """List the computes of whose nodes links are kept, each with its file."""
    folder = os.path.join(home, FOLDER)
    try:
        with os.scandir(folder) as entries:
            found = [one.name for one in entries if one.name.endswith(_SUFFIX) and not one.is_dir()]
    except OSError:
        return []
    return [(name.removesuffix(_SUFFIX), os.path.join(folder, name)) for name in sorted(found)]


def _path(home: str, compute: str) -> str:
    name = re.sub(r"[^A-Za-z0-9_-]", "_", compute)[:100] or "local"
    return os.path.join(home, FOLDER, f"{name}{_SUFFIX}")


def _read_lines(path: str) -> list[str]:
    try:
        return read_plain(path, 2 * _MOST_BYTES, from_end=True).decode(errors="replace").splitlines()
    except OSError:
        return []


def _read_nodes(line: str) -> dict[str, NodeLink]:
    try:
        told: Any = json.loads(line)
        nodes = told["nodes"].items()
        return {
            str(host): NodeLink(int(to), int(source), float(seconds)) for host, (to, source, seconds) in nodes
        }
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError, OverflowError):
        return {}
