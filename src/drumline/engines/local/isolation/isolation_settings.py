"""The settings of isolated nodes, as a plan's compute has them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from drumline.contract.channel import SILENCE_S
from drumline.contract.record import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_NODES = 250
"""Of a network of 254 addresses, the last of which is the supervisor's."""

SUPERVISOR = "10.77.0.254"
MASK = "255.255.255.0"

_RATES = {"bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
_SIZES = {"": 1, "b": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_TIMES_MS = {"us": 1e-3, "ms": 1.0, "s": 1e3}


class Link(NamedTuple):
    """The line of one node to the others, in both directions; ``latency_ms`` is that of one way out. None: no limit."""

    rate_bits: int | None = None
    latency_ms: float | None = None
    loss_percent: float | None = None

    @property
    def needs_delays(self) -> bool:
        """Return whether packets must be held back or thrown away."""
        return bool(self.latency_ms or self.loss_percent)


class Isolation(NamedTuple):
    """What each node has. None: as much as this machine has, shared with the other nodes."""

    name: str
    """Of the compute; the nodes are NAME-0, NAME-1, ..."""

    cpus: float | None = None
    memory_bytes: int | None = None
    shm_bytes: int | None = None
    tmp_bytes: int | None = None
    link: Link = Link()
    silence_s: int = SILENCE_S

    def host(self, node: int) -> str:
        """Return the host name of a node."""
        return f"{self.name}-{node}"


def read_isolation(compute: Mapping[str, Any]) -> Isolation | None:
    """Return the settings in those of a compute, which were checked; None: its nodes share this machine."""
    if compute.get("isolation") != "namespace":
        return None
    cpus = compute.get("cpus")
    memory, shm, tmp = (
        parse_size(str(compute[key])) if compute.get(key) else None
        for key in ("memory", "shm_size", "tmp_size")
    )
    name = re.sub(r"[^a-z0-9-]", "-", str(compute.get("name") or "node").lower()).strip("-")
    processors = None if cpus is None else float(cpus)
    silence_s = round(parse_time_ms(str(compute["silence"])) / 1000) if compute.get("silence") else SILENCE_S
    return Isolation(name[:50] or "node", processors, memory, shm, tmp, read_link(compute), silence_s)


def read_link(compute: Mapping[str, Any]) -> Link:
    link = compute.get("link") or {}
    return Link(
        parse_rate(str(link["rate"])) if link.get("rate") else None,
        parse_time_ms(str(link["latency"])) if link.get("latency") else None,
        parse_percent(str(link["loss"])) if link.get("loss") else None,
    )


def parse_rate(text: str) -> int:
    """
    Return bits a second. Raises ValueError.

    >>> parse_rate("1gbit"), parse_rate("2.5 Gbit"), parse_rate("100Mbit")
    (1000000000, 2500000000, 100000000)
    """
    return round(_parse(text, _RATES))


def parse_size(text: str) -> int:
    """
    Return bytes. Raises ValueError.

    >>> parse_size("2g"), parse_size("512M"), parse_size("1.5GiB")
    (2147483648, 536870912, 1610612736)
    """
    return round(_parse(re.sub(r"(?i)(?<=[kmgt])i?b?\Z", "", text.strip()), _SIZES))


def parse_time_ms(text: str) -> float:
    """
    Return milliseconds. Raises ValueError.

    >>> parse_time_ms("5ms"), parse_time_ms("200us"), parse_time_ms("0.1s")
    (5.0, 0.2, 100.0)
    """
    return _parse(text, _TIMES_MS)


def parse_percent(text: str) -> float:
    """
    Return percents. Raises ValueError.

    >>> parse_percent("1%"), parse_percent("0.5 %")
    (1.0, 0.5)
    """
    percent = _parse(text, {"%": 1.0})
    if percent > 100:
        raise ValueError(text)
    return percent


def _parse(text: str, units: Mapping[str, float]) -> float:
    found = re.fullmatch(r"(\d{1,15}(?:\.\d{1,9})?)\s*([a-z%]*)", text.strip().lower())
    if not found or found[2] not in units:
        raise ValueError(text)
    return round(float(found[1]) * units[found[2]], 9)


def address_of(node: int) -> str:
    return f"10.77.0.{node + 1}"
