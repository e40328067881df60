"""A leased port stays free for the rank that will bind it."""

import os
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from drumline.node import ports


def ephemeral_range():
    with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
        first, last = file.read().split()
    return int(first), int(last)


def test_a_leased_port_can_be_bound_by_the_strictest_program():
    port, lease = ports.lease("127.0.0.1")
    with lease, socket.socket() as rank:
        rank.bind(("", port))


def test_the_kernel_gives_a_leased_port_to_nobody():
    port, lease = ports.lease("127.0.0.1")
    with lease:
        first, last = ephemeral_range()
        assert not first <= port <= last


def test_leases_taken_at_once_differ():
    with ThreadPoolExecutor(8) as pool:
        leased = list(pool.map(lambda _: ports.lease("127.0.0.1"), range(200)))
    assert len({port for port, _ in leased}) == 200
    for _, lease in leased:
        lease.close()


def test_a_port_in_use_is_not_leased(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        monkeypatch.setattr(ports, "_range", lambda: (port, port))
        with pytest.raises(OSError, match=f"no free port between {port} and {port}"):
            ports.lease("127.0.0.1")


@pytest.mark.parametrize(
    "text",
    [
        "The server socket has failed to listen. port: {port}, useIpv6: false, code: -98, name: EADDRINUSE",
        "[Errno 98] Address already in use (while attempting to bind on address ('127.0.0.1', {port}))",
        "listen tcp 0.0.0.0:{port}: bind: Address already in use",
        "2026-11-21 19:56:30,513 ERROR: [::]:{port}: Address already in use",
    ],
)
def test_who_holds_a_port_is_named(text):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = ports.holder(text.format(port=port))
        assert said.startswith(f"port {port} is held by process {os.getpid()} (")
    assert ports.holder(text.format(port=port)) == ""


@pytest.mark.parametrize(
    "text",
    [
        "",
        "connection refused, port: 7",
        "[Errno 98] Address already in use",
        "2026-11-21 19:56:30,513 ERROR server: [Errno 98] Address already in use",
    ],
)
def test_nothing_is_said_of_a_port_that_nobody_named(text):
    assert ports.holder(text) == ""
