"""
Facts of this machine, gathered side by side. Each gatherer is a process with a deadline, so that a hanging file system
or name server costs its own facts alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
from typing import TYPE_CHECKING, Any

from drumline.contract.record import NamedTuple
from drumline.linux import kernel
from drumline.node.checks import hardware, leavings, limits, network, paths, software

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    Gatherer = Callable[[Mapping[str, Any]], dict[str, Any]]

_STARVED_SHARE = 0.1
"""Of the deadline, spent in waiting for a core, above which a gatherer that is late tells nothing."""

_NO_CORE = "it was not done in time, and did not wait for a disk or a server: the node's cores are busy"

_PATIENCE_S = 0.2
"""For all gatherers that were killed to end."""

LATE = "late"
"""The fact of a group whose gatherer was not done in time; its value is the deadline in seconds."""

FAILED = "failed"
"""The fact of a group whose gatherer failed; its value says why."""

GATHERERS: dict[str, Gatherer] = {
    "python": software.gather_python,
    "code": software.gather_code,
    "library": software.gather_library,
    "names": network.gather_names,
    "reverse": network.gather_reverse,
    "network": network.gather_network,
    "proxies": network.gather_proxies,
    "cpu": hardware.gather_cpu,
    "memory": hardware.gather_memory,
    "gpus": hardware.gather_gpus,
    "infiniband": hardware.gather_infiniband,
    "limits": limits.gather_limits,
    "features": limits.gather_features,
    "user": limits.gather_user,
    "disk": paths.gather_disk,
    "shared": paths.gather_shared,
    "leftovers": leavings.gather_leftovers,
}
"""
By group of facts. Settings that they look at: ``address``, the node's own; ``addresses`` and ``host_names``, of some
other nodes; ``paths``, folders to write to by their name; ``shared``, paths that all nodes must have; ``code``, the
folder of the program; ``path``, the search path of the ranks; ``python``, the program that they start; ``home``, whose
jobs may have left something.
"""


class _Running(NamedTuple):
    name: str
    pid: int
    descriptor: int


def gather(
    names: Iterable[str],
    settings: Mapping[str, Any],
    deadline_s: float,
    gatherers: Mapping[str, Gatherer] = GATHERERS,
) -> dict[str, dict[str, Any]]:
    """Return the facts by group. Blocks until the deadline at most, and leaves no process but one the kernel holds."""
    deadline = time.monotonic() + deadline_s
    poller = select.poll()
    running: dict[int, _Running] = {}
    for name in names:
        one = _start(name, gatherers[name], settings)
        running[one.descriptor] = one
        poller.register(one.descriptor, select.POLLIN)
    texts: dict[str, bytes] = {one.name: b"" for one in running.values()}
    facts: dict[str, dict[str, Any]] = {}
    # Once more after the deadline: this process may have had no core when the answers came.
    while running and (ready := poller.poll(max(0.0, deadline - time.monotonic()) * 1000)):
        for descriptor, _ in ready:
            one = running[descriptor]
            data = os.read(descriptor, 1 << 16)
            texts[one.name] += data
            if not data:
                poller.unregister(descriptor)
                facts[one.name] = _decode(texts[one.name])
                _end([running.pop(descriptor)])
    for one in running.values():
        starved = _is_starved(one.pid, deadline_s)
        facts[one.name] = {FAILED: _NO_CORE} if starved else {LATE: deadline_s}
    _end(running.values())
    return facts


def _start(name: str, gather_group: Gatherer, settings: Mapping[str, Any]) -> _Running:
    reading, writing = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        _be_gatherer(gather_group, settings, writing, parent)
    os.close(writing)
    return _Running(name, pid, reading)


def _be_gatherer(gather_group: Gatherer, settings: Mapping[str, Any], writing: int, parent: int) -> None:
    """Gather one group in the forked child; never returns."""
    try:
        kernel.become_helper(parent, kept=writing)
        try:
            facts = gather_group(settings)
        except Exception as error:  # noqa: BLE001 - a fact that cannot be had is told, and ends nothing
            facts = {FAILED: f"{type(error).__name__}: {error}"}
        with open(writing, "wb", closefd=False) as file:
            file.write(json.dumps(facts).encode())
    finally:
        os._exit(0)


def _decode(text: bytes) -> dict[str, Any]:
    try:
        facts = json.loads(text)
    except ValueError:
        return {FAILED: "its process was killed"}
    return facts if isinstance(facts, dict) else {}


def _is_starved(pid: int, deadline_s: float) -> bool:
    """Return whether the process waited for a core, and not for a disk or a server. Source: sched-stats.rst."""
    try:
        with open(f"/proc/{pid}/schedstat") as file:
            waited_s = int(file.read().split()[1]) / 1e9
        with open(f"/proc/{pid}/stat") as file:
            state = file.read().rpartition(")")[2].split()[0]
    except (OSError, ValueError, IndexError):
        return False
    # The kernel adds up what is over: one that still waits for a core may have no other wait behind it.
    return state == "R" or waited_s > _STARVED_SHARE * deadline_s


def _end(ended: Collection[_Running]) -> None:
    """End what is left of gatherers and of the programs that they ran. One that the kernel holds is not waited for."""
    for one in ended:
        os.close(one.descriptor)
        for kill in (os.killpg, os.kill):
            with contextlib.suppress(OSError):
                kill(one.pid, signal.SIGKILL)
    patience = time.monotonic() + _PATIENCE_S
    for one in ended:
        # An agent reaps all that ends below it.
        with contextlib.suppress(ChildProcessError):
            while not os.waitpid(one.pid, os.WNOHANG)[0] and time.monotonic() < patience:
                time.sleep(0.001)
