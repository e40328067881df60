"""What the client asks of an API server, and what it makes of its answers; the server is one of this test."""

import json
import subprocess
import sys

import pytest

from drumline.engines.kubernetes import client, pods
from drumline.engines.kubernetes.client import ApiRefusedError, ApiSilentError
from drumline.engines.kubernetes.engine import ENGINE

pytest.importorskip("lightkube", reason="the extra kubernetes, which scripts/test installs")

NODE = {
    "metadata": {"name": "e1"},
    "spec": {"unschedulable": True},
    "status": {
        "allocatable": {"cpu": "3920m", "memory": "16Gi", "nvidia.com/gpu": "2"},
        "conditions": [{"type": "Ready", "status": "True"}],
    },
}


@pytest.fixture
def kubeconfig(server, tmp_path, monkeypatch):
    """Writes one with that user, which KUBECONFIG then names; returns its path."""

    def write(**user):
        (tmp_path / "config").write_text(server.config(**user))
        monkeypatch.setenv("KUBECONFIG", f"/nowhere:{tmp_path}/config")
        return tmp_path / "config"

    return write


def test_objects_are_sent_and_read_whole(server, kubeconfig):
    kubeconfig()
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a"}, "spec": {"nobodyKnows": 1}}
    server.answers["POST", "/apis/batch/v1/namespaces/default/jobs"] = (
        201,
        {**job, "metadata": {"name": "a", "uid": "0f1e"}},
    )
    api = client.open_api({})
    made = api.create(job)
    assert (made["metadata"]["uid"], made["spec"]) == ("0f1e", {"nobodyKnows": 1})
    assert server.asked == [("POST", "/apis/batch/v1/namespaces/default/jobs", job, "Bearer t0k3n")]
    assert api.get("Job", "b") is None
    api.delete_job("b")


def test_a_namespace_and_a_context_are_those_of_the_compute(server, kubeconfig):
    path = kubeconfig()
    server.answers["GET", "/api/v1/namespaces/training/pods"] = (200, {"items": []})
    assert client.open_api({"namespace": "training", "kubeconfig": str(path)}).list("Pod") == []
    with pytest.raises(ApiRefusedError, match="has no user 'nobody', which its context 'two' names"):
        client.open_api({"context": "two"})
    with pytest.raises(ApiRefusedError, match="has no context 'three'"):
        client.open_api({"context": "three"})


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_a_credential_plugin_is_asked_as_kubectl_asks_it(server, kubeconfig, tmp_path, version):
    code = (
        "import json, os; asked = json.loads(os.environ['KUBERNETES_EXEC_INFO']);"
        "print(json.dumps({'status': {'token': asked['apiVersion'][-7:] + os.environ['MINE']}}))"
    )
    plugin = {"apiVersion": f"client.authentication.k8s.io/{version}", "command": sys.executable}
    kubeconfig(exec={**plugin, "args": ["-c", code], "env": [{"name": "MINE", "value": "-mine"}]})
    server.answers["GET", "/api/v1/namespaces/default/pods"] = (200, {"items": []})
    client.open_api({}).list("Pod")
    assert server.asked[0][3] == f"Bearer {plugin['apiVersion'][-7:]}-mine"


@pytest.mark.parametrize(
    ("status", "kind", "said"),
    [
        (403, ApiRefusedError, "Kubernetes refused it: no"),
        (409, ApiRefusedError, "Kubernetes refused it: no"),
        (429, ApiSilentError, "is busy: no"),
        (503, ApiSilentError, "is busy: no"),
    ],
)
def test_an_error_is_one_sentence(server, kubeconfig, status, kind, said):
    kubeconfig()
    answer = {"kind": "Status", "code": status, "message": "no"}
    server.answers["GET", "/api/v1/namespaces/default/pods"] = (status, answer)
    with pytest.raises(kind, match=said) as error:
        client.open_api({}).list("Pod")
    assert ("can-i" in error.value.hint) is (status == 403)


def test_a_server_that_is_away_is_named(server, kubeconfig):
    kubeconfig()
    server.close()
    with pytest.raises(ApiSilentError, match=f"Kubernetes at {server.url} does not answer"):
        client.open_api({}).list("Pod")
    assert "does not answer" in ENGINE.check({})[0]


def test_the_nodes_of_a_cluster(server, kubeconfig):
    kubeconfig()
    server.answers["GET", "/api/v1/nodes"] = (200, {"items": [NODE]})
    server.answers["GET", "/api/v1/pods"] = (200, {"items": []})
    (node,) = ENGINE.list_nodes({})
    assert (node.node, node.state, node.cores, node.gpus, node.memory_mb) == (
        "e1",
        "ready, cordoned",
        3,
        2,
        16384,
    )
    assert pods.amount("nonsense") == 0


def test_what_is_free_on_the_nodes(server, kubeconfig):
    kubeconfig()
    server.answers["GET", "/api/v1/nodes"] = (200, {"items": [NODE]})
    asked = {"resources": {"requests": {"cpu": "1500m", "memory": "1Gi", "nvidia.com/gpu": "1"}}}
    pods = [
        {"metadata": {"uid": "a"}, "spec": {"nodeName": "e1", "containers": [asked]}},
        {"metadata": {"uid": "b"}, "spec": {"nodeName": "e2", "containers": [asked]}},
        {"metadata": {"uid": "c"}, "spec": {"containers": [asked]}},
    ]
    # It runs between the two questions.
    server.answers["GET", "/api/v1/pods"] = [(200, {"items": pods[:1]}), (200, {"items": pods})]
    (node,) = ENGINE.list_nodes({})
    assert (node.free_cores, node.free_gpus, node.free_memory_mb) == (2.42, 1, 15360)
    assert [one["fieldSelector"] for one in server.words[1:]] == [
        "status.phase=Pending",
        "status.phase=Running",
    ]


def test_what_is_free_is_not_known_without_the_right_to_see_all_pods(server, kubeconfig, cli, drumline_home):
    path = kubeconfig()
    server.answers["GET", "/api/v1/nodes"] = (200, {"items": [NODE]})
    server.answers["GET", "/api/v1/pods"] = (403, {"kind": "Status", "code": 403, "message": "forbidden"})
    words = ["--type", "kubernetes", "--name", "k8s", "--kubeconfig", str(path), "--image", "none"]
    assert cli("compute", "attach", *words, "--no-check").rc == 0
    shown = cli("compute", "list-nodes", "k8s")
    assert (shown.rc, json.loads(shown.out)[0]["free_cores"]) == (0, None)
    assert shown.err == (
        "warning: what is free is not known: that needs the right to list the pods of all namespaces\n"
    )
    assert "FREE_CORES" in cli("compute", "list-nodes", "k8s", "-o", "table").out


def test_what_a_pod_takes_is_what_the_scheduler_counts():
    def container(cores, **more):
        return {"resources": {"requests": {"cpu": cores}}, **more}

    beside = container("250m", restartPolicy="Always")
    spec = {"initContainers": [container("1"), beside, container("2")], "containers": [container("500m"), {}]}
    assert pods.requests_of(spec) == {"cpu": 2.25}
    spec["containers"].append(container("3"))
    assert pods.requests_of({**spec, "overhead": {"cpu": "1"}}) == {"cpu": 4.75}
    assert pods.requests_of({**spec, "resources": {"requests": {"cpu": "8"}}}) == {"cpu": 8.0}


def test_a_cluster_is_described_by_its_server(server, kubeconfig):
    kubeconfig()
    server.answers["GET", "/version"] = (200, {"gitVersion": "v1.20.2"})
    assert ENGINE.describe({}) == {"version": "v1.20.2", "server": server.url, "namespace": "default"}


def test_the_engine_does_not_load_the_client():
    code = "import sys, drumline.engines.kubernetes.engine; print('lightkube' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_a_job_stays_in_the_context_that_was_current_when_it_was_submitted(server, kubeconfig, monkeypatch):
    path = kubeconfig()
    now = client.find_place({})
    assert now == {"kubeconfig": str(path), "context": "one"}
    assert client.find_place({"context": "two"}) == {"kubeconfig": str(path), "context": "two"}
    monkeypatch.setenv("KUBECONFIG", str(path.parent / "another"))
    server.answers["GET", "/api/v1/namespaces/default/pods"] = (200, {"items": []})
    assert client.open_api({**now}).list("Pod") == []
