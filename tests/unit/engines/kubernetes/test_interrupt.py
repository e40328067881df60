"""A submission that is interrupted while Kubernetes has a part of the job; the server is one of this test."""

import json
import threading

import pytest
from api_server import Server
from cli_jobs import background, status_of
from waiting import wait_until

JOBS, PODS = "/apis/batch/v1/namespaces/default/jobs", "/api/v1/namespaces/default/pods"
SECRETS = "/api/v1/namespaces/default/secrets"


class Cluster:
    """Keeps one Job; the Secret that follows it has arrived, and gets no answer until ``interrupted``."""

    def __init__(self, server):
        self.config = server.config()
        self.interrupted = threading.Event()
        self.has_secret = threading.Event()
        self.is_removed = threading.Event()
        self._answers = server.answers
        self._answers |= {
            ("GET", "/apis"): (200, {"groups": []}),
            ("GET", PODS): (200, {"items": []}),
            ("POST", JOBS): (201, self._keep),
            ("POST", SECRETS): (201, self._stall),
        }

    def _keep(self, thing):
        there = {**thing, "metadata": {**thing["metadata"], "uid": "0f1e"}}
        path = f"{JOBS}/{thing['metadata']['name']}"
        self._answers |= {("GET", path): (200, there), ("DELETE", path): (200, self._remove)}
        return there

    def _stall(self, thing):
        self.has_secret.set()
        self.interrupted.wait(120.0)
        return thing

    def _remove(self, _):
        self.is_removed.set()
        return {}


@pytest.fixture
def cluster():
    pytest.importorskip("lightkube", reason="the extra kubernetes, which scripts/test installs")
    server = Server()
    made = Cluster(server)
    yield made
    made.interrupted.set()
    server.close()


def test_a_submission_that_is_interrupted_leaves_nothing_in_the_cluster(
    cluster, cli, drumline_home, tmp_path
):
    (tmp_path / "config").write_text(cluster.config)
    words = ["--type", "kubernetes", "--name", "k8s", "--kubeconfig", tmp_path / "config", "--context", "one"]
    assert cli("compute", "attach", *words, "--image", "none", "--no-check").rc == 0
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.txt").touch()
    job = {"code": "src", "command": "true", "compute": "azureml:k8s", "name": "calm"}
    (tmp_path / "job.yml").write_text(json.dumps(job))
    with background("job", "create", "-f", tmp_path / "job.yml", cwd=tmp_path) as command:
        wait_until(cluster.has_secret.is_set, 60.0, "the submission to be under way")
        command.interrupt()
        assert command.end() == 130, command.err
    cluster.interrupted.set()
    # Nobody looks at the job meanwhile.
    wait_until(cluster.is_removed.is_set, 60.0, "what has arrived to be removed")
    wait_until(lambda: status_of("calm") == "Canceled", 60.0, "the job to be canceled")
