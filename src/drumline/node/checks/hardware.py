"""Facts of the processors, memory, GPUs and InfiniBand of this machine."""

from __future__ import annotations

import os
import subprocess
import time
from typing import TYPE_CHECKING, Any

from drumline.linux import kernel_files

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_GPU_FIELDS = (
    "index", "name", "driver_version", "memory.total", "memory.used", "ecc.errors.uncorrected.volatile.total",
    "clocks_throttle_reasons.hw_slowdown", "clocks_throttle_reasons.hw_thermal_slowdown", "remapped_rows.pending",
)  # fmt: skip
_SIZE = 24

SHARED_MEMORY = "/dev/shm"  # noqa: S108 - looked at, and nothing is made in it


def gather_cpu(_: Mapping[str, Any], root: str = "/sys/fs/cgroup") -> dict[str, Any]:
    """Return the cores that this process may use, the time of a Python to start, and a number all CPUs agree on."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        "quota": _read_quota(root),
        "spawn_s": _time_spawn(),
        "product": _multiply(),
    }


def _time_spawn() -> float:
    """Return the seconds of the quickest of two starts of an interpreter without packages."""
    import sys

    times = []
    for _ in range(2):
        began = time.monotonic()
        subprocess.run([sys.executable, "-I", "-S", "-c", "pass"], check=False, capture_output=True)  # noqa: S603 - our own
        times.append(time.monotonic() - began)
    return round(min(times), 4)


def _multiply() -> str:
    """Return the bits of a product of two matrices: sums and products of doubles are the same on every sound CPU."""
    rows = [[((7 * i + 3 * j) % 11 + 1) / 7 for j in range(_SIZE)] for i in range(_SIZE)]
    product = rows
    for _ in range(3):
        product = [[sum(a * b for a, b in zip(row, column)) / 64 for column in zip(*rows)] for row in product]
    return float(sum(map(sum, product))).hex()


def gather_memory(
    _: Mapping[str, Any], shared: str = SHARED_MEMORY, root: str = "/sys/fs/cgroup"
) -> dict[str, Any]:
    """Return the bytes of memory, what is free of it, the limit of the control group, and the size of /dev/shm."""
    rows = dict(_read_rows("/proc/meminfo"))
    facts: dict[str, Any] = {
        "total": rows.get("MemTotal", 0),
        "available": rows.get("MemAvailable", 0),
        "limit": _read_memory_limit(root),
        "shared": shared,
    }
    try:
        about = os.statvfs(shared)
    except OSError as error:
        return {**facts, "shared_error": error.strerror or str(error)}
    return {
        **facts,
        "shared_total": about.f_blocks * about.f_frsize,
        "shared_free": about.f_bavail * about.f_frsize,
    }


def _read_rows(path: str) -> Iterator[tuple[str, int]]:
    for line in kernel_files.read_text(path).splitlines():
        name, _, rest = line.partition(":")
        if rest.split():
            yield name, int(rest.split()[0]) * 1024


def _read_quota(root: str) -> float | None:
    """Return how many cores the control groups of this process allow; None: no limit. Version 2, else 1."""
    found = []
    for folder in _list_groups(root, ""):
        words = kernel_files.read_text(os.path.join(folder, "cpu.max")).split()
        if len(words) == 2 and words[0] != "max":
            found.append(int(words[0]) / int(words[1]))
    for folder in _list_groups(root, "cpu"):
        quota = kernel_files.read_text(os.path.join(folder, "cpu.cfs_quota_us"))
        period = kernel_files.read_text(os.path.join(folder, "cpu.cfs_period_us"))
        if quota and period and int(quota) > 0:
            found.append(int(quota) / int(period))
    return min(found) if found else None


def _read_memory_limit(root: str) -> int | None:
    found = []
    for folder in _list_groups(root, ""):
        text = kernel_files.read_text(os.path.join(folder, "memory.max"))
        if text and text != "max":
            found.append(int(text))
    for folder in _list_groups(root, "memory"):
        text = kernel_files.read_text(os.path.join(folder, "memory.limit_in_bytes"))
        # A limit that no machine has stands for none.
        if text and int(text) < 1 << 60:
            found.append(int(text))
    return min(found) if found else None


def _list_groups(root: str, controller: str) -> Iterator[str]:
    """Yield the folder of this process's control group, and those above it. ``controller``: of version 1; empty: 2."""
    for line in kernel_files.read_text("/proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controller not in controllers.split(","):
            continue
        top = os.path.join(root, controller) if controller else root
        while True:
            yield os.path.normpath(top + "/" + path)
            if path in ("", "/"):
                break
            path = os.path.dirname(path)


def gather_gpus(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the GPUs that nvidia-smi lists; none where there is no such program."""
    import shutil

    program = shutil.which("nvidia-smi", path=settings.get("path"))
    if program is None:
        return {"program": "", "gpus": []}
    query = [program, "--query-gpu=" + ",".join(_GPU_FIELDS), "--format=csv,noheader,nounits"]
    done = subprocess.run(query, check=False, capture_output=True, text=True, errors="replace")  # noqa: S603 - no text of others
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip().splitlines()
        return {"program": program, "gpus": [], "error": said[0] if said else f"exit code {done.returncode}"}
    gpus = []
    for line in done.stdout.splitlines():
        values = [word.strip() for word in line.split(",")]
        if len(values) == len(_GPU_FIELDS):
            gpus.append(dict(zip(_GPU_FIELDS, values)))
    return {"program": program, "gpus": gpus}


def gather_infiniband(_: Mapping[str, Any], root: str = "/sys/class/infiniband") -> dict[str, Any]:
    """Return the ports of InfiniBand and RoCE adapters, active or not."""
    found = []
    for device in kernel_files.list_folder(root):
        for port in kernel_files.list_folder(os.path.join(root, device, "ports")):
            place = os.path.join(root, device, "ports", port)
            gids = [
                kernel_files.read_text(os.path.join(place, "gids", one))
                for one in kernel_files.list_folder(os.path.join(place, "gids"))
            ]
            found.append(
                {
                    "device": device,
                    "port": port,
                    "state": kernel_files.read_text(os.path.join(place, "state")).partition(":")[2].strip(),
                    "rate": kernel_files.read_text(os.path.join(place, "rate")),
                    "link": kernel_files.read_text(os.path.join(place, "link_layer")) or "InfiniBand",
                    "gids": sum(bool(gid.replace(":", "").strip("0")) for gid in gids),
                }
            )
    return {"ports": found}
