"""
Samples of the use of a node and its ranks, made by its agent: ``<run folder>/system_metrics/node-<n>.jsonl``, a JSON
object a line, oldest first::

    t         seconds since 1970, by the node's clock
    a         the attempt, from 0
    e         seconds since its ranks were started
    cpu       [busy, cores]: CPU seconds that the node's cores were busy since then, and how many there are
    mem       [used, total]; limit: [used, limit] of the control group that the node is in; swap: [used, total]
    net, disk [received, sent], [read, written] since then
    load      of the last minute
    ranks     for each rank that was started; rank -1 is what is below the agent and no rank's, such as a launcher
      k, p      its number, the process id of its first process
      c         CPU seconds so far
      m, M      memory now, and the most of it so far
      n, t      processes, threads
      io        [read, written by calls, read, written on storage] so far; left out where it may not be read
      g         memory on each GPU, by the GPU's ``i``
      x         1: its first process has ended
    gpus      i (number, and of a part of a MIG device "0.1"), name, u (busy, percent), mem [used, total], w (watts),
              T (degrees Celsius); what is not known is left out

Sizes are bytes. Everything that only grows begins at 0 when the ranks are started, so that any two lines of an attempt
give a mean. The agent keeps fewer lines the longer a job runs; the last two are always its newest. Lines that are no
whole object are to be left out: the last ones are written over in place.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Optional

from drumline.contract.record import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FOLDER = "system_metrics"
NO_RANK = -1
SWITCH = "DRUMLINE_SYSTEM_METRICS"
"""The variable that is 0 where nothing is to be sampled."""

_MOST_GPUS = 1024


class Gpu(NamedTuple):
    """The use of a GPU. ``busy``: percent. None: not known."""

    number: str
    name: str
    busy: Optional[int]
    used: Optional[int]
    total: Optional[int]
    watts: Optional[float]
    celsius: Optional[int]


class RankUse(NamedTuple):
    rank: int
    pid: int
    cpu_s: float
    memory: int
    peak: int
    processes: int
    threads: int
    io: Optional[tuple[int, int, int, int]]
    gpus: Mapping[str, int]
    has_ended: bool


class Sample(NamedTuple):
    time: float
    attempt: int
    elapsed_s: float
    busy_s: float
    cores: int
    memory: tuple[int, int]
    limit: Optional[tuple[int, int]]
    swap: tuple[int, int]
    network: tuple[int, int]
    disk: tuple[int, int]
    load: float
    ranks: tuple[RankUse, ...]
    gpus: tuple[Gpu, ...]


def path_of(run_folder: str, node: int) -> str:
    return os.path.join(run_folder, FOLDER, f"node-{node}.jsonl")


def to_line(sample: Sample) -> bytes:
    data: dict[str, Any] = {
        "t": round(sample.time, 2),
        "a": sample.attempt,
        "e": round(sample.elapsed_s, 2),
        "cpu": (round(sample.busy_s, 2), sample.cores),
        "mem": sample.memory,
        "swap": sample.swap,
        "net": sample.network,
        "disk": sample.disk,
        "load": sample.load,
        "ranks": [_of_rank(use) for use in sample.ranks],
    }
    if sample.limit:
        data["limit"] = sample.limit
    if sample.gpus:
        data["gpus"] = [_of_gpu(gpu) for gpu in sample.gpus]
    return json.dumps(data, separators=(",", ":")).encode() + b"\n"


def _of_rank(use: RankUse) -> dict[str, Any]:
    data: dict[str, Any] = {
        "k": use.rank,
        "p": use.pid,
        "c": round(use.cpu_s, 2),
        "m": use.memory,
        "M": use.peak,
        "n": use.processes,
        "t": use.threads,
    }
    if use.io is not None:
        data["io"] = use.io
    if use.gpus:
        data["g"] = dict(use.gpus)
    if use.has_ended:
        data["x"] = 1
    return data


def _of_gpu(gpu: Gpu) -> dict[str, Any]:
    data: dict[str, Any] = {
        "i": gpu.number,
        "name": gpu.name,
        "u": gpu.busy,
        "w": gpu.watts,
        "T": gpu.celsius,
    }
    if gpu.used is not None and gpu.total is not None:
        data["mem"] = (gpu.used, gpu.total)
    return {name: value for name, value in data.items() if value is not None}


def from_line(line: bytes) -> Sample | None:
    """Return None for what is no whole sample: a line cut short, or a file that the job itself has written."""
    try:
        data = json.loads(line)
        return Sample(
            time=read_real(data["t"]),
            attempt=read_whole(data["a"]),
            elapsed_s=read_real(data["e"]),
            busy_s=read_real(data["cpu"][0]),
            cores=read_whole(data["cpu"][1]),
            memory=_pair(data["mem"]),
            limit=_pair(data["limit"]) if "limit" in data else None,
            swap=_pair(data["swap"]),
            network=_pair(data["net"]),
            disk=_pair(data["disk"]),
            load=read_real(data["load"]),
            ranks=tuple(_rank_from(one) for one in data["ranks"]),
            gpus=gpus_from(data.get("gpus", ())),
        )
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError):
        return None


def _rank_from(data: Mapping[str, Any]) -> RankUse:
    io = data.get("io")
    return RankUse(
        rank=read_whole(data["k"], NO_RANK),
        pid=read_whole(data["p"], NO_RANK),
        cpu_s=read_real(data["c"]),
        memory=read_whole(data["m"]),
        peak=read_whole(data["M"]),
        processes=read_whole(data["n"]),
        threads=read_whole(data["t"]),
        io=None
        if io is None
        else (read_whole(io[0]), read_whole(io[1]), read_whole(io[2]), read_whole(io[3])),
        gpus={str(index): read_whole(size) for index, size in data.get("g", {}).items()},
        has_ended=bool(data.get("x")),
    )


def gpus_from(listed: Sequence[Mapping[str, Any]]) -> tuple[Gpu, ...]:
    """Return the GPUs of this list. Raises ValueError, TypeError, LookupError or AttributeError for another content."""
    return tuple(_gpu_from(one) for one in listed[:_MOST_GPUS])


def _gpu_from(data: Mapping[str, Any]) -> Gpu:
    used, total = _pair(data["mem"]) if "mem" in data else (None, None)
    return Gpu(
        number=str(data["i"]),
        name=str(data.get("name", "")),
        busy=read_whole(data["u"]) if "u" in data else None,
        used=used,
        total=total,
        watts=read_real(data["w"]) if "w" in data else None,
        celsius=read_whole(data["T"]) if "T" in data else None,
    )


def _pair(value: Sequence[Any]) -> tuple[int, int]:
    return read_whole(value[0]), read_whole(value[1])


def read_whole(value: Any, least: int = 0) -> int:
    """Return a whole number. Raises ValueError if no counter of a machine can have it."""
    number = int(value)
    if not least <= number < 1 << 63:
        raise ValueError(number)
    return number


def read_real(value: Any) -> float:
    """Return a number. Raises ValueError if it is no time or share of anything."""
    number = float(value)
    if not 0.0 <= number < 1e12:
        raise ValueError(number)
    return number
