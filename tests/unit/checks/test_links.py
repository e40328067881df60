"""The links of two nodes that are processes here, and the process that checks a node for its agent."""

import json
import os
import socket
import subprocess
import threading
import time

import pytest
from interpreters import oldest_and_this

import drumline
from drumline.checks import checker
from drumline.checks.links import Links


@pytest.fixture
def pair():
    nodes = [Links(0, "127.0.0.1"), Links(1, "127.0.0.2")]
    yield nodes
    for one in nodes:
        one.close()


def places(pair):
    return {0: ("127.0.0.1", pair[0].port), 1: ("127.0.0.2", pair[1].port)}


def test_each_node_counts_what_arrives(pair):
    received = {}

    def measure(node):
        received[node] = pair[node].measure([-1, 1 - node], places(pair), time.monotonic() + 60)

    thread = threading.Thread(target=measure, args=(1,))
    thread.start()
    measure(0)
    thread.join()
    for node, found in received.items():
        assert [(one.node, one.error, one.stalled) for one in found] == [(1 - node, "", False)]
        assert found[0].bytes_per_s > 0
        assert found[0].mtu > 0


def test_a_port_that_nobody_listens_at_is_told(pair):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    found = pair[0].connect_to_all({1: places(pair)[1], 2: ("127.0.0.1", port)}, 30.0)
    assert [(one.node, one.error) for one in found] == [(1, ""), (2, "Connection refused")]


COUNT = """
import socket
from drumline.checks.links import _count
here, there = socket.socketpair()
here.settimeout(0.01)
print(_count(here) is None)
"""


@pytest.mark.parametrize("python", oldest_and_this())
def test_a_stall_is_known_in_the_oldest_python_too(python):
    environment = {"PYTHONPATH": os.path.dirname(os.path.dirname(drumline.__file__))}
    done = subprocess.run([python, "-c", COUNT], capture_output=True, text=True, env=environment, check=False)
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_small_packets_without_large_ones_are_a_stall(pair):
    def send_small_ones():
        with socket.create_connection(places(pair)[1]) as peer:
            peer.sendall((0).to_bytes(4, "big"))
            for _ in range(3):
                peer.sendall(peer.recv(1))
            # A connection that is held open, and on which nothing large arrives.
            peer.recv(1)

    thread = threading.Thread(target=send_small_ones)
    thread.start()
    found = pair[1].measure([0], {0: ("127.0.0.1", 1)}, time.monotonic() + 60)
    thread.join()
    assert (found[0].node, found[0].stalled) == (0, True)


def test_a_partner_that_does_not_come_is_not_waited_for_long(pair):
    found = pair[1].measure([0], places(pair), time.monotonic() + 60)
    assert found[0].error
    assert "bytes_per_s" not in found[0]


def test_the_checker_answers_until_it_is_left():
    ours, its = socket.socketpair()
    thread = threading.Thread(target=checker.serve, args=(its, 0, "127.0.0.1"))
    thread.start()
    with ours, ours.makefile("rb") as answers:
        request = {"part": "facts", "groups": ["limits"], "settings": {}, "deadline_s": 60}
        ours.sendall(json.dumps(request).encode() + b"\n")
        facts = json.loads(answers.readline())
        assert facts["part"] == "facts"
        assert facts["facts"]["limits"]["nofile"]
        port = facts["facts"]["links"]["port"]
        request = {
            "part": "links",
            "places": {"1": ["127.0.0.1", port]},
            "peers": [1],
            "rounds": [],
            "connect_s": 60,
            "deadline_s": 1,
        }
        ours.sendall(json.dumps(request).encode() + b"\n")
        links = json.loads(answers.readline())["facts"]
        assert [(one["node"], one["error"]) for one in links["connected"]] == [(1, "")]
        assert links["busy"] >= 0
        ours.shutdown(socket.SHUT_WR)
        thread.join()
