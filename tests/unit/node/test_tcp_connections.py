"""The connections of a process, as the kernel lists them."""

import os
import socket
import subprocess
import sys

import pytest

from drumline.node.diagnostics import activity
from drumline.node.diagnostics.activity import read_connections

CONNECTS = """
import socket, sys
peer = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
print("%s:%s" % peer.getsockname(), flush=True)
sys.stdin.read()
"""


def test_both_ends_of_a_connection_are_those_of_its_processes():
    with socket.create_server(("127.0.0.1", 0)) as server:
        own = "{}:{}".format(*server.getsockname())
        program = [sys.executable, "-c", CONNECTS, own.rpartition(":")[2]]
        with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            other = process.stdout.readline().strip()
            with server.accept()[0]:
                assert [other, own] in read_connections(process.pid)
                # Those of a process below it are its own too.
                found = read_connections(os.getpid())
                assert [own, other] in found
                assert [other, own] in found
            process.stdin.close()


def test_ipv4_within_ipv6_is_ipv4():
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as peer, server.accept()[0]:
            ours = f"127.0.0.1:{peer.getsockname()[1]}"
            assert [f"127.0.0.1:{port}", ours] in read_connections(os.getpid())


def test_a_process_that_is_gone_has_none():
    process = subprocess.Popen(["true"])
    process.wait()
    assert read_connections(process.pid) == []


def test_a_child_that_nobody_has_waited_for_hides_nothing():
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
            assert read_connections(os.getpid())
    finally:
        os.waitpid(pid, 0)


class GrowingTable:
    """The kernel's: where its end was reached once, connections that began since follow."""

    def __init__(self):
        self.lines = iter(["  sl  local_address rem_address   st", None, " 0: 0100007F:1 0100007F:2 01"])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def __iter__(self):
        return self

    def __next__(self):
        line = next(self.lines)
        if line is None:
            raise StopIteration
        return line


def test_a_connection_that_begins_meanwhile_hides_nothing(monkeypatch):
    monkeypatch.setattr(activity, "open", lambda *_, **__: GrowingTable(), raising=False)
    assert read_connections(os.getpid()) == []


@pytest.mark.parametrize("limit", ["_MOST_CONNECTIONS", "_MOST_ROWS"])
def test_more_connections_than_can_be_told_are_not_known(monkeypatch, limit):
    """Of ranks of a full mesh that each told its first ones only, hardly two would tell of the same connection."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()),
        server.accept()[0],
    ):
        assert len(read_connections(os.getpid())) >= 2
        monkeypatch.setattr(activity, limit, 1)
        assert read_connections(os.getpid()) is None
