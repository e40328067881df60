"""The pod of a node, and how it ends: Kubernetes makes another for one that has failed, and none for any other."""

import json
import re
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import wait_until

OVER = b'{"type": "over"}\n'

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


def close(peer, lines):
    lines.close()
    peer.close()


def test_a_pod_whose_job_is_over_has_ended_well(pod):
    process, peer, lines = pod()
    peer.sendall(OVER)
    close(peer, lines)
    said = process.communicate(timeout=60)[1]
    assert (process.returncode, said) == (0, "")


@pytest.mark.parametrize("end", [reset, close])
def test_a_pod_whose_connection_broke_has_failed_so_that_another_comes(pod, supervisor, end):
    process, peer, lines = pod()
    end(peer, lines)
    supervisor.accept()[0].close()
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 1
    assert said.startswith("the connection to the supervisor's pod broke: ")


@pytest.mark.parametrize("end", [reset, close])
def test_none_comes_for_a_supervisor_that_is_gone_with_its_node(pod, supervisor, end):
    process, peer, lines = pod(return_s=0.5)
    supervisor.close()
    end(peer, lines)
    process.communicate(timeout=60)
    assert process.returncode == 0


def test_a_pod_that_is_taken_away_has_failed(pod):
    process, peer, lines = pod()
    process.terminate()
    process.communicate(timeout=60)
    close(peer, lines)
    assert process.returncode == 1


def test_a_pod_that_is_taken_away_before_the_supervisor_came_has_failed(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    words = [sys.executable, "-c", POD, str(tmp_path / "job"), str(port), "60"]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        try:
            pid = process.pid
            wait_until(lambda: handles_terminate(pid), 60.0, "the pod to handle SIGTERM")
            process.terminate()
            process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 1


def handles_terminate(pid):
    caught = re.search(r"SigCgt:\s*(\w+)", Path(f"/proc/{pid}/status").read_text())[1]
    return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)


def test_an_agent_that_cannot_be_started_is_told_and_the_pod_waits_on(pod):
    process, peer, lines = pod()
    # There is no plan in its folder.
    peer.sendall(b'{"type": "begin", "node": 1, "attempt": 0, "address": {}}\n')
    told = json.loads(lines.readline())
    assert told["type"] == "failed"
    assert told["error"].startswith("its agent could not be started: ")
    peer.sendall(OVER)
    close(peer, lines)
    process.communicate(timeout=60)
    assert process.returncode == 0
