"""Pods that ask which node they are."""

import json
import socket

import pytest
from waiting import wait_until

from drumline.engines.kubernetes.pod.supervisor_pod import Members


@pytest.fixture
def members():
    made = Members(2, "t0k3n", port=0)
    yield made
    made.close()


@pytest.fixture
def join(members):
    peers = []

    def connect(name, token="t0k3n"):
        peer = socket.create_connection(("127.0.0.1", members.port), 20)
        peer.sendall(json.dumps({"type": "pod", "token": token, "pod": name, "host": "e1"}).encode() + b"\n")
        peers.append(peer)
        return peer

    yield connect
    for peer in peers:
        peer.close()


def wait_for(members, count):
    def there():
        members.wait(0.01)
        return members.present == count

    wait_until(there, 20.0, f"{count} pods to be there")


def told(peer):
    return json.loads(peer.makefile().readline())


def test_pods_are_numbered_as_they_come_and_keep_their_numbers(members, join):
    first = join("a")
    wait_for(members, 1)
    second = join("b")
    wait_for(members, 2)
    for attempt in range(2):
        members.assign({node: {"node": node, "attempt": attempt} for node in range(2)})
        assert [told(first), told(second)] == [{"node": node, "attempt": attempt} for node in range(2)]


def test_a_replacement_takes_the_number_that_was_lost(members, join):
    first = join("a")
    wait_for(members, 1)
    join("b")
    wait_for(members, 2)
    first.close()
    wait_for(members, 1)
    assert (members.is_there(0), members.is_there(1)) == (False, True)
    third = join("c")
    wait_for(members, 2)
    members.assign({0: {"node": 0}, 1: {"node": 1}})
    assert told(third) == {"node": 0}


def test_one_too_many_waits_for_another_to_be_lost(members, join):
    first = join("a")
    wait_for(members, 1)
    join("b")
    wait_for(members, 2)
    third = join("c")

    def all_are_known():
        members.wait(0.01)
        return sum(bool(one.pod) for one in members._peers.values()) == 3

    wait_until(all_are_known, 20.0, "the third pod to be known")
    assert members.present == 2
    first.close()
    wait_for(members, 2)

    def third_has_it():
        members.wait(0.01)
        members.assign({0: {"node": 0}, 1: {"node": 1}})
        third.setblocking(False)
        try:
            return b'"node": 0' in third.recv(100)
        except BlockingIOError:
            return False

    wait_until(third_has_it, 20.0, "the third pod to take the number of the first")


def test_a_pod_that_is_about_to_end_gets_no_other_attempt(members, join):
    first = join("a")
    wait_for(members, 1)
    join("b")
    wait_for(members, 2)
    first.sendall(b'{"type": "leaving"}\n')
    wait_for(members, 1)
    third = join("c")
    wait_for(members, 2)
    members.assign({0: {"node": 0}, 1: {"node": 1}})
    assert told(third) == {"node": 0}
    first.setblocking(False)
    with pytest.raises(BlockingIOError):
        first.recv(1)


def test_all_pods_are_told_when_the_job_is_over(members, join):
    peers = [join("a"), join("b")]
    wait_for(members, 2)
    members.close()
    members.close()
    assert [told(peer) for peer in peers] == [{"type": "over"}] * 2


def test_a_stranger_is_shown_out(members, join):
    stranger = join("x", token="guess")
    stranger.settimeout(0.01)

    def is_out():
        members.wait(0.01)
        try:
            return stranger.recv(1) == b""
        except TimeoutError:
            return False
        except ConnectionResetError:
            return True

    wait_until(is_out, 20.0, "the stranger to be shown out")
    assert members.present == 0


def test_a_pod_says_why_its_agent_does_not_start(members, join):
    peer = join("a")
    wait_for(members, 1)
    peer.sendall(b'{"type": "failed", "error": "no space left"}\n')

    def has_failed():
        members.wait(0.01)
        return members.find_failed() == {0: "did not start: no space left"}

    wait_until(has_failed, 20.0, "the failure to be known")
    members.assign({0: {}, 1: {}})
    assert members.find_failed() == {}
