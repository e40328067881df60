"""Facts of a rank's container that are only known where it starts: paths that exist, limits, GPUs, the log."""

from __future__ import annotations

import glob
import os
import resource
import stat
from typing import TYPE_CHECKING, Any

from drumline.node.containers.command_line import UNLIMITED, HostFacts

if TYPE_CHECKING:
    from collections.abc import Mapping

_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - measured alone
_LIMITS = {
    "nofile": resource.RLIMIT_NOFILE,
    "nproc": resource.RLIMIT_NPROC,
    "memlock": resource.RLIMIT_MEMLOCK,
}


def gather_facts(told: Mapping[str, Any], pid_file: str) -> HostFacts:
    has_gpus = bool(os.environ.get("CUDA_VISIBLE_DEVICES"))
    cores = os.sched_getaffinity(0)
    return HostFacts(
        name=f"drumline-{os.urandom(8).hex()}",
        user=os.getuid(),
        group=os.getgid(),
        limits=_read_limits(),
        shared_bytes=_read_size(_SHARED_MEMORY),
        cores=tuple(sorted(cores)) if len(cores) < (os.cpu_count() or 0) else (),
        has_gpus=has_gpus,
        described_gpus=any(glob.glob(f"{folder}/*nvidia*") for folder in ("/etc/cdi", "/run/cdi")),
        gpu_devices=tuple(sorted(filter(_is_device, glob.glob("/dev/nvidia*")))) if has_gpus else (),
        mounts=list_mounts(told),
        pid_file=pid_file,
        log=_find_log(),
    )


def list_mounts(told: Mapping[str, Any]) -> tuple[str, ...]:
    """List the paths that exist, and where links among them lead; without those below another."""
    wanted = [*told["mounts"], told["state"], told["cwd"], *([told["hook"]] if told["hook"] else [])]
    if os.environ.get("TMPDIR"):
        wanted.append(os.environ["TMPDIR"])
    there = {os.path.abspath(path) for path in wanted if os.path.exists(path)}
    there |= {os.path.realpath(path) for path in there if os.path.islink(path)}
    chosen: list[str] = []
    for path in sorted(there):
        if not any(path == other or path.startswith(f"{other}/") for other in chosen) and path != "/":
            chosen.append(path)
    return tuple(chosen)


def _find_log() -> str:
    """Return the file that standard output and error both go to; empty if they go to no file, or to two."""
    try:
        both = [os.fstat(number) for number in (1, 2)]
        path = os.readlink("/proc/self/fd/1")
        known = os.stat(path)
    except OSError:
        return ""
    same = {(one.st_dev, one.st_ino) for one in (*both, known)}
    return path if len(same) == 1 and stat.S_ISREG(known.st_mode) else ""


def _read_limits() -> dict[str, tuple[int, int]]:
    found = {name: resource.getrlimit(number) for name, number in _LIMITS.items()}
    most = _read_max_pid()
    # Podman lowers its own to this, and may not be allowed to raise a container's above that.
    soft, hard = (most if one == resource.RLIM_INFINITY else min(one, most) for one in found["nproc"])
    found["nproc"] = (soft, hard)
    return {
        name: (
            UNLIMITED if soft == resource.RLIM_INFINITY else soft,
            UNLIMITED if hard == resource.RLIM_INFINITY else hard,
        )
        for name, (soft, hard) in found.items()
    }


def _read_max_pid() -> int:
    """Return how many numbers for processes there are."""
    try:
        with open("/proc/sys/kernel/pid_max", "rb") as file:
            return int(file.read())
    except (OSError, ValueError):
        return 1 << 15


def _read_size(folder: str) -> int:
    try:
        known = os.statvfs(folder)
    except OSError:
        return 0
    return known.f_frsize * known.f_blocks


def _is_device(path: str) -> bool:
    return stat.S_ISCHR(os.stat(path).st_mode)
