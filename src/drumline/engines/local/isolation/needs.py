"""The needs of isolated nodes on this machine: what is missing, in one sentence, and how an administrator grants it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from drumline.contract.errors import EngineError
from drumline.engines.local.isolation import batches, inside
from drumline.linux import limits, namespaces

if TYPE_CHECKING:
    from collections.abc import Sequence

    from drumline.engines.local.isolation.settings import Isolation, Link


def check_here(isolation: Isolation) -> None:
    """Try whether this machine can play such nodes. Raises EngineError with the first thing that it cannot do."""
    check_limits(isolation)
    if may_try():
        try_here(isolation)


def may_try() -> bool:
    """Return whether a child of this process can try: one with threads, such as a notebook's, is not ours to fork."""
    return len(os.listdir("/proc/self/task")) == 1


def try_here(isolation: Isolation) -> None:
    """Make a network in a child of this process, and let it go. Raises EngineError."""
    inside.call_in_child(lambda: _try(isolation.link))


def has_netem() -> bool:
    """Return whether this kernel delays and loses packets by itself. Raises EngineError where there is no network."""
    found = inside.call_in_child(_try_netem)
    for descriptor in found:
        os.close(descriptor)
    return bool(found)


def _try_netem() -> Sequence[int]:
    """Return a descriptor, whichever, where there is netem."""
    inside.begin_namespaces()
    inside.run_batch("ip", ["link add probe0 type veth peer name probe1"])
    try:
        inside.run_batch("tc", batches.delay("probe0"))
    except EngineError:
        return ()
    return [os.open(os.devnull, os.O_RDONLY)]


def _try(link: Link) -> Sequence[int]:
    inside.begin_namespaces()
    namespaces.begin_mounts()
    inside.run_batch("ip", ["link add probe0 type veth peer name probe1", "link add probe type bridge"])
    if link.rate_bits:
        check_link(link._replace(latency_ms=None, loss_percent=None), "probe0")
    return ()


def check_link(link: Link, device: str) -> None:
    """Shape a device of this network as a link. Raises EngineError where the kernel cannot."""
    lines = [line.replace(f"dev {batches.CARD} ", f"dev {device} ") for line in batches.shape_card(link)]
    try:
        inside.run_batch("tc", lines)
    except EngineError as error:
        if link.needs_delays:
            raise
        raise EngineError(f"the kernel cannot limit the rate of a link (sch_tbf): {error.message}") from error


def check_limits(isolation: Isolation) -> None:
    """Raise EngineError for a limit of processors or memory that cannot be set here."""
    groups = limits.choose_limit_groups("drumline-00000000-n0")
    hint = (
        "run it as root, or in a group of your own: systemd-run --user --scope -p Delegate=yes drumline ..."
    )
    if isolation.memory_bytes is not None and not groups.memory:
        raise EngineError(
            "memory of a node cannot be limited: no control group for memory is yours here",
            f"leave out memory; or {hint}",
        )
    if isolation.cpus is not None and not groups.cpu and isolation.cpus != int(isolation.cpus):
        raise EngineError(
            "a part of a processor cannot be limited: no control group for processor time is yours here",
            f"a whole number of cpus; or {hint}",
        )
