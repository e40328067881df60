"""
The use of a node's machine: its cores, memory, network and disks, from ``/proc``.

Where a machine plays several nodes, each tells of all of it. Source: proc_stat(5), proc_meminfo(5), proc_pid_net(5),
the kernel's Documentation/admin-guide/iostats.rst, cgroup-v2.rst and cgroup-v1/memory.rst.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Optional

from drumline.contract.record import NamedTuple
from drumline.linux import cgroups

if TYPE_CHECKING:
    from collections.abc import Sequence

_TICKS = os.sysconf("SC_CLK_TCK")
_SECTOR = 512
"""Whatever the disk's own are."""

_MAX_BYTES = 1 << 17

_VERSION_2 = ("memory.max", "memory.current", b"inactive_file")
_VERSION_1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", b"total_inactive_file")


class MachineReading(NamedTuple):
    """A reading as ``contract.samples`` has it; counters begin with the machine's start."""

    busy_s: float
    cores: int
    memory: tuple[int, int]
    limit: Optional[tuple[int, int]]
    swap: tuple[int, int]
    network: tuple[int, int]
    disk: tuple[int, int]
    load: float


NO_READING = MachineReading(0.0, 0, (0, 0), None, (0, 0), (0, 0), (0, 0), 0.0)


class MachineReader:
    """
    Reads the use of a machine. ``cores``: the processors that the node has; empty: those that this process may use.
    """

    def __init__(self, cores: Sequence[int] = ()) -> None:
        self._cores = {b"cpu%d" % core for core in cores or os.sched_getaffinity(0)}
        self._files: dict[str, int] = {}
        self._group = _find_limiting_group()
        self._disks = _list_with_device("/sys/block")
        self._interfaces = _list_with_device("/sys/class/net")

    def read(self) -> MachineReading:
        """Read the machine's usage; 0 for each value that cannot be read."""
        busy_s, cores = parse_busy(self._read("/proc/stat"), self._cores)
        memory, swap = parse_memory(self._read("/proc/meminfo"))
        load = self._read("/proc/loadavg").split(None, 1)
        return MachineReading(
            busy_s,
            cores,
            memory,
            self._limit(),
            swap,
            parse_network(self._read("/proc/net/dev"), self._interfaces),
            parse_disks(self._read("/proc/diskstats"), self._disks),
            float(load[0]) if load else 0.0,
        )

    def close(self) -> None:
        for descriptor in self._files.values():
            os.close(descriptor)
        self._files = {}

    def _limit(self) -> Optional[tuple[int, int]]:
        if self._group is None:
            return None
        folder, (limit_name, used_name, cache_name) = self._group
        limit = _parse_number(self._read(os.path.join(folder, limit_name)))
        used = _parse_number(self._read(os.path.join(folder, used_name)))
        if limit is None or used is None:
            return None
        # Pages that the kernel takes back when it needs them.
        cache = 0
        for line in self._read(os.path.join(folder, "memory.stat")).splitlines():
            name, _, value = line.partition(b" ")
            if name == cache_name:
                cache = int(value)
        return max(0, used - cache), limit

    def _read(self, path: str) -> bytes:
        """Read a file by a descriptor that is kept, as long as that works."""
        try:
            if path not in self._files:
                self._files[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            return os.pread(self._files[path], _MAX_BYTES, 0)
        except OSError:
            descriptor = self._files.pop(path, None)
            if descriptor is not None:
                os.close(descriptor)
            return b""


def parse_busy(text: bytes, cores: set[bytes]) -> tuple[float, int]:
    """
    Return the CPU seconds that those cores worked, and their number.

    Time in which they were idle, waited for disks or were taken by the machine's host does not count.
    """
    busy = count = 0
    for line in text.splitlines():
        if not line.startswith(b"cpu"):
            break
        fields = line.split()
        if fields[0] in cores and len(fields) > 7:
            # user, nice, system, irq, softirq. Time of guests is in the first two.
            busy += sum(map(int, fields[1:4])) + int(fields[6]) + int(fields[7])
            count += 1
    return busy / _TICKS, count


def parse_memory(text: bytes) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return used and total, of memory and of swap. What could be had without swapping is not used."""
    known: dict[bytes, int] = {}
    for line in text.splitlines():
        name, _, value = line.partition(b":")
        with contextlib.suppress(ValueError, IndexError):
            known[name] = int(value.split()[0]) * 1024
    total, swap = known.get(b"MemTotal", 0), known.get(b"SwapTotal", 0)
    used = total - known.get(b"MemAvailable", known.get(b"MemFree", 0))
    return (used, total), (swap - known.get(b"SwapFree", 0), swap)


def parse_network(text: bytes, interfaces: set[bytes]) -> tuple[int, int]:
    """Return the bytes received and sent by those interfaces; where none is named, by all but the loopback."""
    received = sent = 0
    for line in text.splitlines()[2:]:
        name, _, values = line.partition(b":")
        fields = values.split()
        if len(fields) > 8 and (name.strip() in interfaces if interfaces else name.strip() != b"lo"):
            received += int(fields[0])
            sent += int(fields[8])
    return received, sent


def parse_disks(text: bytes, disks: set[bytes]) -> tuple[int, int]:
    """Read and written by those disks; their partitions and what is made of them are the same bytes again."""
    read = written = 0
    for line in text.splitlines():
        fields = line.split(None, 10)
        if len(fields) > 9 and fields[2] in disks:
            read += int(fields[5]) * _SECTOR
            written += int(fields[9]) * _SECTOR
    return read, written


def _list_with_device(folder: str) -> set[bytes]:
    """List the names in a folder that stand for a piece of hardware: no loop, no partition, no bridge."""
    names = cgroups.list_folder(folder)
    return {os.fsencode(name) for name in names if os.path.exists(os.path.join(folder, name, "device"))}


def _find_limiting_group() -> Optional[tuple[str, tuple[str, str, bytes]]]:
    """Return the folder of the control group with the tightest limit of memory above this process; None: no limit."""
    lines = cgroups.read_text("/proc/self/cgroup").splitlines()
    own = [line.split(":", 2) for line in lines if line.count(":") > 1]
    mounts = [line.split() for line in cgroups.read_text("/proc/self/mountinfo").splitlines()]
    tightest = parse_memory(cgroups.read_text("/proc/meminfo").encode())[0][1]
    found = None
    for fields in mounts:
        version_2 = "cgroup2" in fields
        if not version_2 and not ("cgroup" in fields and "memory" in fields[-1].split(",")):
            continue
        path = ""
        for number, controllers, group in own:
            if not path and (number == "0" if version_2 else "memory" in controllers.split(",")):
                path = group
        names = _VERSION_2 if version_2 else _VERSION_1
        for folder in _list_groups_above(path, root=fields[3], mount=fields[4]):
            limit = _parse_number(cgroups.read_text(os.path.join(folder, names[0])))
            if limit is not None and limit < tightest:
                tightest, found = limit, (folder, names)
    return found


def _list_groups_above(path: str, *, root: str, mount: str) -> list[str]:
    """
    List the group's folder and those above it, as far as they are mounted; in a container's own view the mount alone.
    """
    below = path if root == "/" else path[len(root) :] if path.startswith(root) else ""
    if not path or ".." in path:
        return [mount]
    folders = [os.path.normpath(mount + below)]
    while folders[-1] != mount and folders[-1].startswith(mount):
        folders.append(os.path.dirname(folders[-1]))
    return folders


def _parse_number(text: bytes | str) -> Optional[int]:
    """Return a limit as a number; None for ``max``."""
    return int(text) if text.strip().isdigit() else None
