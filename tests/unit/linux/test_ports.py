"""A leased port stays free for the rank that will bind it."""

import json
import os
import select
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager

import pytest

from drumline.linux import ports


def ephemeral_range():
    with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
        first, last = file.read().split()
    return int(first), int(last)


def test_a_leased_port_can_be_bound_by_the_strictest_program():
    port, lease = ports.lease_port("127.0.0.1")
    with closing(lease), socket.socket() as rank:
        rank.bind(("", port))


def test_the_kernel_gives_a_leased_port_to_nobody():
    port, lease = ports.lease_port("127.0.0.1")
    with closing(lease):
        first, last = ephemeral_range()
        assert not first <= port <= last


def test_leases_taken_at_once_differ():
    with ThreadPoolExecutor(8) as pool:
        leased = list(pool.map(lambda _: ports.lease_port("127.0.0.1"), range(200)))
    assert len({port for port, _ in leased}) == 200
    for _, lease in leased:
        lease.close()


def test_a_port_in_use_is_not_leased(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        monkeypatch.setattr(ports, "_read_port_range", lambda: (port, port))
        with pytest.raises(OSError, match=f"no free port between {port} and {port}"):
            ports.lease_port("127.0.0.1")


FEW = (23000, 23399) if os.getuid() else (23400, 23799)
"""Ports of which all can be taken in a test; tests of root and of a user run at the same time."""


@contextmanager
def another_user(step):
    """``step`` runs as another user, who keeps what it opened meanwhile; what it returned."""
    told, tell = os.pipe()
    until, end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            os.close(end)
            found, _kept = step()
            os.write(tell, json.dumps(found).encode())
            os.read(until, 1)
        finally:
            os._exit(0)
    os.close(tell)
    os.close(until)
    try:
        assert select.select([told], [], [], 60)[0]
        yield json.loads(os.read(told, 1 << 16))
    finally:
        os.close(end)
        os.close(told)
        os.waitpid(child, 0)


@contextmanager
def taken_udp(numbers):
    with ExitStack() as stack:
        for port in numbers:
            stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)).bind(("127.0.0.1", port))
        yield


def taken(kind, name_of):
    """All of a few ports, by sockets of this kind, but for those that are another job's just now; these."""
    kept, left = [], []
    for port in range(FEW[0], FEW[1] + 1):
        kept.append(socket.socket(*kind))
        try:
            kept[-1].bind(name_of(port))
        except OSError:
            left.append(port)
    return left, kept


SQUATTERS = {
    "names": lambda: taken((socket.AF_UNIX,), lambda port: f"\0drumline-port-{port}"),
    "UDP": lambda: taken((socket.AF_INET, socket.SOCK_DGRAM), lambda port: ("0.0.0.0", port)),
    "UDP of loopback": lambda: taken((socket.AF_INET, socket.SOCK_DGRAM), lambda port: ("127.0.0.1", port)),
}


@pytest.mark.root
@pytest.mark.parametrize("what", SQUATTERS)
def test_another_user_cannot_take_all_leases(monkeypatch, what):
    """Names of abstract sockets were the leases; whoever bound them all stopped everybody's jobs."""
    monkeypatch.setattr(ports, "_read_port_range", lambda: FEW)
    with another_user(SQUATTERS[what]) as left:
        assert len(left) < 20
        leased = [ports.lease_port("127.0.0.1") for _ in range(20)]
        for port, lease in leased:
            with closing(lease), socket.socket() as rank:
                rank.bind(("", port))


@pytest.mark.root
def test_jobs_of_two_users_get_different_ports(monkeypatch):
    monkeypatch.setattr(ports, "_read_port_range", lambda: FEW)

    def leases():
        kept = [ports.lease_port("127.0.0.1") for _ in range(100)]
        return [port for port, _ in kept], kept

    with another_user(leases) as theirs:
        ours, kept = leases()
        assert len({*theirs, *ours}) == 200
        for _, lease in kept:
            lease.close()


def test_where_no_lease_can_be_held_a_free_port_is_taken(monkeypatch):
    monkeypatch.setattr(ports, "_read_port_range", lambda: (FEW[0], FEW[0] + 2))
    with taken_udp(range(FEW[0], FEW[0] + 3)):
        with socket.create_server(("", FEW[0])), socket.create_server(("127.0.0.1", FEW[0] + 1)):
            port, lease = ports.lease_port("127.0.0.1")
        lease.close()
    assert port == FEW[0] + 2


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
        said = ports.find_port_holder(text.format(port=port))
        assert said.startswith(f"port {port} is held by process {os.getpid()} (")
    assert ports.find_port_holder(text.format(port=port)) == ""


@pytest.mark.parametrize(
    ("owner", "said"), [(0, "by a process that cannot be seen from here"), (1, "by another user's process")]
)
def test_another_user_holds_a_port_only_where_the_kernel_says_so(monkeypatch, owner, said):
    """The process may also be of this user, in another container, whose processes cannot be seen."""
    monkeypatch.setattr(ports, "_list_socket_inodes", lambda pid: [])
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        user = os.getuid() + owner
        monkeypatch.setattr(os, "getuid", lambda: user)
        assert said in ports.find_port_holder(f"Address already in use, port: {port}")


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
    assert ports.find_port_holder(text) == ""
