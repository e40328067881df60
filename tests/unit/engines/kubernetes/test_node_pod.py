"""The pod of a node, and how it ends: Kubernetes makes another for one that has failed, and none for any other."""

import json
import socket
import struct
import subprocess
import sys

import pytest

POD = """
import sys
from drumline.contract.folder import RunFolder
from drumline.engines.kubernetes.pod import node_pod
node_pod._RETURN_S = float(sys.argv[3])
sys.exit(node_pod.main(RunFolder(sys.argv[1]), "token", ("127.0.0.1", int(sys.argv[2]))))
"""


@pytest.fixture
def supervisor():
    """Listens as the supervisor's pod does."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        yield server


@pytest.fixture
def pod(tmp_path, supervisor):
    """Start a pod, and accept it: its process, and the connection."""
    started = []

    def start(return_s=60):
        words = [
            sys.executable,
            "-c",
            POD,
            str(tmp_path / "job"),
            str(supervisor.getsockname()[1]),
            str(return_s),
        ]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        started.append(process)
        peer, _ = supervisor.accept()
        peer.settimeout(60)
        lines = peer.makefile("rb")
        assert json.loads(lines.readline())["token"] == "token"
        return process, peer, lines

    yield start
    for process in started:
        process.kill()
        process.communicate()


def reset(peer, lines):
    lines.close()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()


def test_a_pod_whose_supervisor_has_ended_has_ended_well(pod):
    process, peer, lines = pod()
    lines.close()
    peer.close()
    said = process.communicate(timeout=60)[1]
    assert (process.returncode, said) == (0, "")


def test_a_pod_whose_connection_broke_has_failed_so_that_another_comes(pod, supervisor):
    process, peer, lines = pod()
    reset(peer, lines)
    supervisor.accept()[0].close()
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 1
    assert said.startswith("the connection to the supervisor's pod broke: ")


def test_none_comes_for_a_supervisor_that_is_gone_with_its_node(pod, supervisor):
    process, peer, lines = pod(return_s=0.5)
    supervisor.close()
    reset(peer, lines)
    process.communicate(timeout=60)
    assert process.returncode == 0


def test_an_agent_that_cannot_be_started_is_told_and_the_pod_waits_on(pod):
    process, peer, lines = pod()
    # There is no plan in its folder.
    peer.sendall(b'{"type": "begin", "node": 1, "attempt": 0, "address": {}}\n')
    told = json.loads(lines.readline())
    assert told["type"] == "failed"
    assert told["error"].startswith("its agent could not be started: ")
    lines.close()
    peer.close()
    process.communicate(timeout=60)
    assert process.returncode == 0
