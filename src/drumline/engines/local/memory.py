"""Whether the memory of this machine holds the nodes and ranks of a job."""

from __future__ import annotations

import os

from drumline.contract.errors import PlanError
from drumline.node.metrics.machine_usage import MachineReader

OVERRIDE = "DRUMLINE_MEMORY_CHECK"

_NODE_BYTES = 4 << 20
"""Of an agent, its own: 4.4 MB were measured; what all of them share is counted for none."""

_RANK_BYTES = 8 << 20
"""Of a Python that has imported nothing."""

_TYPICAL_BYTES = 160 << 20
"""Of a Python that has imported PyTorch."""


def check_holds(nodes: int, ranks: int) -> list[str]:
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
8.0 GiB left'
    >>> describe_room(1000, 1000, 20 << 30)[1]
    'memory: 1,000 ranks share the 20.0 GiB that this machine has left; with PyTorch they may need 160.2 GiB'
    >>> describe_room(100, 100, 20 << 30)
    ('', '')
    """
    counted = f"{nodes:,} node{'s' if nodes != 1 else ''} with {ranks:,} ranks"
    least, typical = (nodes * _NODE_BYTES + ranks * each for each in (_RANK_BYTES, _TYPICAL_BYTES))
    left = f"{free / (1 << 30):.1f} GiB"
    if free <= 0 or typical <= free:
        return "", ""
    if least > free:
        needed = f"need {least / (1 << 30):.1f} GiB of memory before any of them imports a package"
        return f"{counted} {needed}, and this machine has {left} left", ""
    needed = f"with PyTorch they may need {typical / (1 << 30):.1f} GiB"
    return "", f"memory: {ranks:,} ranks share the {left} that this machine has left; {needed}"


def _find_free() -> int:
    """Return the bytes that are free on this machine, or in its group with a limit; 0: not known."""
    reader = MachineReader()
    reading = reader.read()
    reader.close()
    return min(total - used for used, total in (reading.memory, reading.limit or reading.memory))
