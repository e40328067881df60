"""This machine's resources, and how they are split among nodes."""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from drumline.contract.mpi import Mpi

_VERSION_TIMEOUT_S = 20.0


def cores() -> tuple[int, ...]:
    """List the processors that this process may use; all of the machine where only Linux could say more."""
    if not hasattr(os, "sched_getaffinity"):
        return tuple(range(os.cpu_count() or 1))
    return tuple(sorted(os.sched_getaffinity(0)))


def check_can_run() -> None:
    """Raise PlanError on a machine that can plan jobs and ask clusters, but run none itself."""
    if sys.platform != "linux":
        from drumline.contract.errors import PlanError

        hint = "submit from here to a Slurm cluster, --compute NAME, or run drumline on a Linux machine"
        raise PlanError(f"jobs on this machine need Linux; this is {sys.platform}", hint)


_MANY = 256
"""Nodes and ranks; fewer find room on any machine that trains at all."""


def check_holds(nodes: int, ranks: int) -> list[str]:
    """Do as ``memory.check_holds`` for jobs with many nodes or ranks; others do not pay for it. Raises PlanError."""
    if nodes + ranks < _MANY:
        return []
    from drumline.engines.local import memory

    return memory.check_holds(nodes, ranks)


def gpus() -> tuple[str, ...]:
    """
    List the GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them: those in it, else all NVIDIA devices.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return tuple(name.strip() for name in visible.split(",") if name.strip() and name.strip() != "-1")
    try:
        numbers = sorted(int(name[6:]) for name in os.listdir("/dev") if re.fullmatch(r"nvidia\d+", name))
    except OSError:
        return ()
    return tuple(str(index) for index in range(len(numbers)))


def mpi_on(search_path: str) -> Mpi | None:
    """Return the first MPI on the PATH; it asks the launcher, which takes some 20 ms, unless its answer is known."""
    import shutil

    from drumline.engines.local import known_mpi

    for program in ("mpirun", "mpiexec"):
        path = shutil.which(program, path=search_path)
        if path is None:
            continue
        found = known_mpi.recall(program, path)
        if found is not None:
            return found
        found = _ask_for_mpi(program, path)
        if found is not None:
            known_mpi.remember(path, found)
            return found
    return None


def _ask_for_mpi(program: str, path: str) -> Mpi | None:
    import subprocess

    from drumline.contract import mpi

    try:
        done = subprocess.run(  # noqa: S603 - the user's own program
            [path, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=_VERSION_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return mpi.recognize_mpi(program, done.stdout + done.stderr)


def split(items: tuple[int, ...], parts: int) -> list[tuple[int, ...]]:
    """
    Split items into shares that differ by one at most; neighbours stay together. With too few items, parts share.

    >>> split((0, 1, 2, 3, 4), 2)
    [(0, 1, 2), (3, 4)]
    >>> split((0, 1), 3)
    [(0,), (1,), (0,)]
    """
    if len(items) < parts:
        return [(items[part % len(items)],) if items else () for part in range(parts)]
    bounds = [round(part * len(items) / parts + 1e-9) for part in range(parts + 1)]
    return [items[bounds[part] : bounds[part + 1]] for part in range(parts)]
