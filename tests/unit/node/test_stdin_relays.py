"""Input from a connection through a pipe, in a loop like the agent's."""

import contextlib
import os
import select
import socket

import pytest
from waiting import wait_until

from drumline.node.agent.processes import StdinRelays

TOKEN = "t0ken"


@pytest.fixture
def loop():
    poller = select.epoll()
    relays = StdinRelays(poller)

    def turn(patience_s=0.1):
        """The number of descriptors that were ready."""
        ready = {descriptor for descriptor, _ in poller.poll(patience_s)}
        relays.hear(ready)
        return len(ready)

    with contextlib.closing(poller):
        yield relays, turn
        # Both other ends are closed by now.
        wait_until(lambda: turn(0.01) == 0, 10)


@pytest.fixture
def connected(loop):
    relays, turn = loop
    with socket.create_server(("127.0.0.1", 0)) as server:
        reader = relays.open("127.0.0.1", server.getsockname()[1], TOKEN)
        turn(5)
        peer, _ = server.accept()
        with peer, os.fdopen(reader, "rb", buffering=0) as pipe:
            assert peer.recv(100) == TOKEN.encode() + b"0"
            yield peer, pipe


def test_all_of_a_large_input_arrives_and_its_end(loop, connected):
    _, turn = loop
    peer, pipe = connected
    os.set_blocking(pipe.fileno(), False)
    peer.setblocking(False)
    data = os.urandom(3_000_000)
    left, got = data, bytearray()

    def is_over():
        nonlocal left
        with contextlib.suppress(BlockingIOError):
            left = left[peer.send(left) :] if left else left
        if not left:
            with contextlib.suppress(OSError):
                peer.shutdown(socket.SHUT_WR)
        turn(0)
        chunk = pipe.read(1 << 16)
        got.extend(chunk or b"")
        return chunk == b""

    wait_until(is_over, 20)
    assert bytes(got) == data


def test_who_waits_for_a_reader_does_not_spin(loop, connected):
    _, turn = loop
    peer, pipe = connected
    peer.sendall(b"x" * 200_000)
    peer.shutdown(socket.SHUT_WR)
    wait_until(lambda: turn(0.05) == 0, 10)
    assert sum(turn(0.01) for _ in range(10)) == 0
    assert pipe.read(10) == b"x" * 10


def test_the_connection_goes_with_its_reader(loop, connected):
    _, turn = loop
    peer, pipe = connected
    pipe.close()
    turn(5)
    peer.settimeout(5)
    assert peer.recv(1) == b""
    assert turn(0.01) == 0


def test_the_connection_goes_with_its_reader_while_something_waits(loop, connected):
    _, turn = loop
    peer, pipe = connected
    peer.sendall(b"x" * 200_000)
    wait_until(lambda: turn(0.05) == 0, 10)
    pipe.close()
    turn(5)
    peer.settimeout(5)
    with contextlib.suppress(ConnectionResetError):
        assert peer.recv(1) == b""
    assert turn(0.01) == 0


def test_a_connection_that_is_refused_is_an_input_that_ends(loop):
    relays, turn = loop
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with os.fdopen(relays.open("127.0.0.1", port, TOKEN), "rb") as pipe:
        turn(5)
        assert pipe.read() == b""
    assert turn(0.01) == 0
