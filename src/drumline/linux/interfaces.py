"""The network interfaces of this machine that have an IPv4 address, its InfiniBand, and addresses for new ones."""

from __future__ import annotations

import array
import fcntl
import os
import socket
import struct
from typing import Any

from drumline.linux import cgroups

_SIOCGIFCONF, _SIOCGIFFLAGS, _SIOCGIFHWADDR = 0x8912, 0x8913, 0x8927
_SIOCADDRT, _SIOCSIFFLAGS, _SIOCSIFADDR, _SIOCSIFNETMASK = 0x890B, 0x8914, 0x8916, 0x891C
_UP, _GATEWAY, _LOOPBACK = 0x1, 0x2, 0x8
_INFINIBAND = 32
"""Source: netdevice(7), with its struct ifreq, and if_arp.h for the number."""

_ENTRY_BYTES = 40
_VIRTUAL = (
    "docker", "podman", "virbr", "veth", "cni", "flannel", "cali", "cilium", "weave", "tap", "tun", "br-", "lxc",
    "lxdbr", "kube", "vmnet", "vboxnet",
)  # fmt: skip


def list_interfaces() -> list[dict[str, Any]]:
    """
    List the network interfaces that are up, without the loopback.

    Each has ``name``, ``address``, ``infiniband``, ``speed_mbps`` (0: unknown) and ``virtual`` (a bridge or the like,
    which may lead nowhere but to this machine). An interface with several addresses is there with each.
    """
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for name, address in _list_addresses(asked):
            flags = _query_interface(asked, _SIOCGIFFLAGS, name)
            hardware = _query_interface(asked, _SIOCGIFHWADDR, name)
            if not flags:
                continue
            bits = struct.unpack("H", flags[16:18])[0]
            if not bits & _UP or bits & _LOOPBACK:
                continue
            kind = struct.unpack("H", hardware[16:18])[0] if hardware else 0
            found.append(
                {
                    "name": name,
                    "address": address,
                    "infiniband": kind == _INFINIBAND,
                    "speed_mbps": max(0, cgroups.read_number(f"/sys/class/net/{name}/speed")),
                    "virtual": name.startswith(_VIRTUAL)
                    and "/virtual/" in os.path.realpath(f"/sys/class/net/{name}"),
                }
            )
    return found


def list_infiniband_ports(root: str = "/sys/class/infiniband") -> list[dict[str, Any]]:
    """List the active ports: ``device``, ``port``, and whether the ``link`` is InfiniBand or Ethernet (RoCE)."""
    found = []
    for device in cgroups.list_folder(root):
        for port in cgroups.list_folder(os.path.join(root, device, "ports")):
            place = os.path.join(root, device, "ports", port)
            if cgroups.read_text(os.path.join(place, "state")).startswith("4"):
                link = cgroups.read_text(os.path.join(place, "link_layer")) or "InfiniBand"
                found.append({"device": device, "port": port, "link": link})
    return found


def _list_addresses(asked: socket.socket) -> list[tuple[str, str]]:
    """List the interfaces with their IPv4 addresses, in the kernel's order."""
    size = 1024 * _ENTRY_BYTES
    buffer = array.array("B", bytes(size))
    request = struct.pack("iL", size, buffer.buffer_info()[0])
    used = struct.unpack("iL", fcntl.ioctl(asked.fileno(), _SIOCGIFCONF, request))[0]
    entries = [buffer[at : at + _ENTRY_BYTES].tobytes() for at in range(0, used, _ENTRY_BYTES)]
    # A second address may have a name of its own: eth0:1.
    return [
        (os.fsdecode(entry[:16].partition(b"\0")[0]).partition(":")[0], socket.inet_ntoa(entry[20:24]))
        for entry in entries
    ]


def _query_interface(asked: socket.socket, what: int, name: str) -> bytes:
    try:
        return fcntl.ioctl(asked.fileno(), what, struct.pack("256s", name.encode()[:15]))
    except OSError:
        return b""


def set_up(name: str) -> None:
    """Switch an interface of this process's network on. Raises OSError."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        flags = struct.unpack("H", fcntl.ioctl(asked, _SIOCGIFFLAGS, _pack_name(name, bytes(24)))[16:18])[0]
        fcntl.ioctl(asked, _SIOCSIFFLAGS, _pack_name(name, struct.pack("H22x", flags | _UP)))


def set_address(name: str, address: str, mask: str) -> None:
    """Give an interface its IPv4 address. Raises OSError."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for what, value in ((_SIOCSIFADDR, address), (_SIOCSIFNETMASK, mask)):
            fcntl.ioctl(asked, what, _pack_name(name, _pack_address(value) + bytes(8)))


def set_gateway(address: str) -> None:
    """Send what is for no known network to that address. Raises OSError."""
    anywhere = _pack_address("0.0.0.0")  # noqa: S104 - the route to all others, nothing listens
    # struct rtentry. Source: route.h of the kernel.
    entry = struct.pack(
        "L16s16s16sHhLPhPLLH",
        *(0, anywhere, _pack_address(address), anywhere),
        *(_UP | _GATEWAY, 0, 0, 0, 0, 0, 0, 0, 0),
    )
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        fcntl.ioctl(asked, _SIOCADDRT, entry)


def _pack_name(name: str, rest: bytes) -> bytes:
    return struct.pack("16s", name.encode()[:15]) + rest


def _pack_address(address: str) -> bytes:
    return struct.pack("HH4s8x", socket.AF_INET, 0, socket.inet_aton(address))
