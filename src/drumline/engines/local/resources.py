"""This machine's resources, and how they are split among nodes."""

from __future__ import annotations

import json
import os
import re
import sys
from typing import TYPE_CHECKING, Any

from drumline.contract import process_identity
from drumline.contract.errors import PlanError
from drumline.contract.folder import base_home, open_text, write_whole
from drumline.contract.words import format_count, format_size

if TYPE_CHECKING:
    from drumline.contract.installed_mpi import Mpi


_VERSION_TIMEOUT_S = 20.0


def cores() -> tuple[int, ...]:
    """List the processors that this process may use; all of the machine where only Linux could say more."""
    if not hasattr(os, "sched_getaffinity"):
        return tuple(range(os.cpu_count() or 1))
    return tuple(sorted(os.sched_getaffinity(0)))


def check_can_run() -> None:
    """Raise PlanError on a machine that can plan jobs and ask clusters, but run none itself."""
    if sys.platform != "linux":
        hint = "submit from here to a Slurm cluster, --compute NAME, or run drumline on a Linux machine"
        raise PlanError(f"jobs on this machine need Linux; this is {sys.platform}", hint)


_MANY = 256
"""Nodes and ranks; fewer find room on any machine that trains at all."""


def check_holds(nodes: int, ranks: int) -> list[str]:
    """Do as ``check_memory_holds`` for jobs with many nodes or ranks; others do not pay for it. Raises PlanError."""
    if nodes + ranks < _MANY:
        return []
    return check_memory_holds(nodes, ranks)


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

    for program in ("mpirun", "mpiexec"):
        path = shutil.which(program, path=search_path)
        if path is None:
            continue
        found = recall(program, path)
        if found is not None:
            return found
        found = _ask_for_mpi(program, path)
        if found is not None:
            remember(path, found)
            return found
    return None


def _ask_for_mpi(program: str, path: str) -> Mpi | None:
    import subprocess

    from drumline.contract import installed_mpi

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
    return installed_mpi.recognize_mpi(program, done.stdout + done.stderr)


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


# Whether the memory of this machine holds the nodes and ranks of a job.

OVERRIDE = "DRUMLINE_MEMORY_CHECK"

_NODE_BYTES = 4 << 20
"""Of an agent, its own: 4.4 MB were measured; what all of them share is counted for none."""

_RANK_BYTES = 8 << 20
"""Of a Python that has imported nothing."""

_TYPICAL_BYTES = 160 << 20
"""Of a Python that has imported PyTorch."""


def check_memory_holds(nodes: int, ranks: int) -> list[str]:
    """
    Return a warning where ranks that train are likely to find no room. Raises PlanError where none at all do.

    ``DRUMLINE_MEMORY_CHECK=0`` switches this off.
    """
    if os.environ.get(OVERRIDE) == "0":
        return []
    lack, warning = describe_room(nodes, ranks, _find_free())
    if lack:
        raise PlanError(lack, f"fewer nodes or processes, or {OVERRIDE}=0 to start them all the same")
    return [warning] if warning else []


def describe_room(nodes: int, ranks: int, free: int) -> tuple[str, str]:
    """
    Return why a job cannot find room in so many free bytes, and else a warning; both are empty where it does.

    >>> describe_room(1000, 1000, 8 << 30)[0]
    '1,000 nodes with 1,000 ranks need 11.7 GiB of memory before any of them imports a package, and this machine has \
8 GiB left'
    >>> describe_room(1000, 1000, 20 << 30)[1]
    'memory: 1,000 ranks share the 20 GiB that this machine has left; with PyTorch they may need 160 GiB'
    >>> describe_room(100, 100, 20 << 30)
    ('', '')
    """
    counted = f"{format_count(nodes, 'node')} with {format_count(ranks, 'rank')}"
    least, typical = (nodes * _NODE_BYTES + ranks * each for each in (_RANK_BYTES, _TYPICAL_BYTES))
    if free <= 0 or typical <= free:
        return "", ""
    if least > free:
        needed = f"need {format_size(least)} of memory before any of them imports a package"
        return f"{counted} {needed}, and this machine has {format_size(free)} left", ""
    needed = f"with PyTorch they may need {format_size(typical)}"
    return (
        "",
        f"memory: {format_count(ranks, 'rank')} share the {format_size(free)} that this machine has left; {needed}",
    )


def _find_free() -> int:
    """Return the bytes that are free on this machine, or in its group with a limit; 0: not known."""
    from drumline.node.metrics.machine_usage import MachineReader

    reader = MachineReader()
    reading = reader.read()
    reader.close()
    return min(total - used for used, total in (reading.memory, reading.limit or reading.memory))


# The version of this machine's MPI, remembered from the last time its launcher was asked, which takes 10 ms of a start.
#
# It holds for a program that has not changed since. A script is asked each time: what it starts may be another by now.

_ELF = b"\x7fELF"
_MAX_BYTES = 4096


def recall(program: str, path: str) -> Mpi | None:
    """Return what was remembered of the program of that path; None: it has to be asked. Never raises."""
    from drumline.contract.installed_mpi import Mpi

    try:
        with open_text(_choose_file(), "surrogateescape") as file:
            known = json.loads(file.read(_MAX_BYTES))
        if known["of"] != _describe(path):
            return None
        kind, major, minor = known["mpi"]
        return Mpi(str(kind), int(major), int(minor), program)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def remember(path: str, found: Mpi) -> None:
    """Remember it, where jobs have left a place for that. Never raises."""
    try:
        with open(path, "rb") as file:
            if file.read(len(_ELF)) != _ELF:
                return
        known = {"of": _describe(path), "mpi": [found.kind, found.major, found.minor]}
        if os.path.isdir(os.path.dirname(_choose_file())):
            write_whole(_choose_file(), json.dumps(known))
    except OSError:
        return


def _choose_file() -> str:
    return os.path.join(base_home(), "engines", f"mpi-{process_identity.name_machine()}.json")


def _describe(path: str) -> list[Any]:
    """Return what tells this program from another, or from a later version. Raises OSError."""
    about = os.stat(path)
    return [path, about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns]
