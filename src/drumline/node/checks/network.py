"""Facts of the names, addresses and ports of this machine."""

from __future__ import annotations

import os
import socket
import time
from typing import TYPE_CHECKING, Any

from drumline.contract import identity
from drumline.linux import interfaces, kernel_files, ports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

MOST_NAMES = 8
"""Of names that are looked up, each in its turn."""

_SLOW_LOOK_UP_S = 0.5
"""Above which a look-up is slow (``supervisor/preflight/networks.py``), and those after it are left out."""

_DEFAULT_PORT = 29500
"""Of PyTorch, for programs that choose none."""


def name_machine() -> str:
    """Return a name that this machine and its network have alone, or this network namespace."""
    try:
        return f"{identity.read_boot_id()} {os.readlink('/proc/self/ns/net')}"
    except OSError:
        return ""


def gather_names(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Look up the own host name and those of the other nodes, until one takes long; each with its seconds."""
    own = socket.gethostname()
    names = [own, *(name for name in settings.get("host_names", ()) if name != own)]
    return {"host": own, "looked_up": _look_up_until_slow(names, _look_up)}


def gather_reverse(settings: Mapping[str, Any]) -> dict[str, Any]:
    """
    Look up the names of the other nodes' addresses, until one takes long; each with its seconds.

    A group of its own: where no server answers, each takes many seconds, which are not to cost the facts of names.
    """
    return {"looked_up": _look_up_until_slow(settings.get("addresses", ()), _look_up_address)}


def _look_up_until_slow(
    asked: Iterable[str], look_up: Callable[[str], dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return what was found. One that is slow is enough to tell of: the next ones would be, too."""
    found: list[dict[str, Any]] = []
    for one in list(asked)[:MOST_NAMES]:
        found.append(look_up(one))
        if found[-1]["seconds"] > _SLOW_LOOK_UP_S:
            break
    return found


def _look_up(name: str) -> dict[str, Any]:
    began = time.monotonic()
    found: dict[str, Any] = {"name": name, "ipv4": [], "ipv6": [], "error": ""}
    try:
        for family, _, _, _, address in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM):
            found["ipv4" if family == socket.AF_INET else "ipv6"].append(address[0])
    except OSError as error:
        found["error"] = error.strerror or str(error)
    found["seconds"] = round(time.monotonic() - began, 3)
    return found


def _look_up_address(address: str) -> dict[str, Any]:
    began = time.monotonic()
    try:
        name = socket.getnameinfo((address, 0), socket.NI_NAMEREQD)[0]
    except OSError:
        # Nothing needs a name for an address; only a search that takes long delays a start.
        name = ""
    return {"address": address, "name": name, "seconds": round(time.monotonic() - began, 3)}


def gather_network(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the interfaces with their MTU, the kernel's range of ports, and whether a port can be had."""
    found = interfaces.list_interfaces()
    for one in found:
        one["mtu"] = kernel_files.read_number(f"/sys/class/net/{one['name']}/mtu")
    return {
        "address": settings.get("address", ""),
        "machine": name_machine(),
        "interfaces": found,
        "local_ports": [
            int(word) for word in kernel_files.read_text("/proc/sys/net/ipv4/ip_local_port_range").split()
        ],
        "ipv6_only": kernel_files.read_text("/proc/sys/net/ipv6/bindv6only") == "1",
        "port_error": _try_port(settings.get("address") or "127.0.0.1"),
        "default_port": _find_holder(_DEFAULT_PORT),
    }


def _try_port(address: str) -> str:
    try:
        ports.lease_port(address)[1].close()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _find_holder(port: int) -> str:
    return ports.find_port_holder(f"port {port}: EADDRINUSE")


def gather_proxies(_: Mapping[str, Any]) -> dict[str, Any]:
    """Return the proxy that catches connections to this machine, by the name of its variable."""
    spared = (os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or "").replace(" ", "").split(",")
    caught = [
        name
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")
        if os.environ.get(name)
    ]
    missing = [
        name for name in ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE")
        if os.environ.get(name) and not os.path.exists(os.environ[name])
    ]  # fmt: skip
    # Not their values: an address of a proxy may hold a password.
    return {
        "proxies": caught,
        "spares_loopback": "*" in spared or {"localhost", "127.0.0.1"} <= set(spared),
        "missing_certificates": missing,
    }
