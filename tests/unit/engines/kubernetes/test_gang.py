"""All nodes of a job or none, as the cluster can do it; and fields that a server has left out."""

import pytest
from planning import plan

from drumline.contract.errors import EngineError
from drumline.contract.folder import RunFolder
from drumline.engines.kubernetes import cluster_view, courier, manifests, submission
from drumline.engines.kubernetes.client import ApiRefusedError
from drumline.engines.kubernetes.manifests import find_dropped

FOLDER = RunFolder("/home/ann/jobs/calm_drum")
KUEUE, VOLCANO, COSCHEDULING = "kueue.x-k8s.io", "scheduling.volcano.sh", "scheduling.x-k8s.io"


def made(way, nodes=3, **compute):
    job = plan(nodes, at={"engine": "kubernetes", "folder": FOLDER})
    return manifests.make_objects(job._replace(compute={"image": "x", **compute}), FOLDER, [{}], way)


@pytest.mark.parametrize(
    ("compute", "groups", "way"),
    [
        ({}, [], "own"),
        ({}, [KUEUE], "own"),
        ({"queue": "team"}, [KUEUE, VOLCANO], "kueue"),
        ({"queue": "team"}, [VOLCANO], "volcano"),
        ({}, [VOLCANO, COSCHEDULING], "volcano"),
        ({}, [COSCHEDULING], "coscheduling"),
        ({"gang": "own"}, [VOLCANO], "own"),
        ({"gang": "coscheduling"}, [VOLCANO, COSCHEDULING], "coscheduling"),
    ],
)
def test_what_the_cluster_has_is_used(compute, groups, way):
    assert manifests.choose(compute, groups) == way


@pytest.mark.parametrize(
    ("compute", "said"),
    [
        (
            {"gang": "volcano"},
            "gang: the cluster has no volcano: its server knows no objects of scheduling.volcano.sh",
        ),
        ({"queue": "team"}, "queue: team is a queue of Kueue or Volcano, and the cluster has neither"),
        ({"gang": "kueue"}, "gang: kueue starts the nodes of a job by its queue"),
        ({"gang": "own", "queue": "team"}, "queue: team is a queue of Kueue or Volcano, and gang says own"),
    ],
)
def test_what_the_cluster_lacks_is_said_before_anything_is_made(compute, said):
    with pytest.raises(EngineError) as error:
        manifests.choose(compute, ["batch", COSCHEDULING])
    assert (error.value.message, error.value.exit_code) == (said, 2)


def test_volcano_has_a_group_and_its_queue():
    things = made("volcano", queue="team")
    group, template = things.group, things.nodes["spec"]["template"]
    assert (group["apiVersion"], group["spec"]) == (f"{VOLCANO}/v1beta1", {"minMember": 3, "queue": "team"})
    assert template["metadata"]["annotations"] == {"scheduling.k8s.io/group-name": group["metadata"]["name"]}
    assert template["spec"]["schedulerName"] == "volcano"
    assert "schedulerName" not in things.supervisor["spec"]["template"]["spec"]
    assert manifests.QUEUE_LABEL not in things.nodes["metadata"]["labels"]


def test_coscheduling_has_a_group_and_the_scheduler_of_the_compute():
    things = made("coscheduling", scheduler="scheduler-plugins-scheduler")
    template = things.nodes["spec"]["template"]
    assert (things.group["apiVersion"], things.group["spec"]) == (
        f"{COSCHEDULING}/v1alpha1",
        {"minMember": 3},
    )
    assert template["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] == things.group["metadata"]["name"]
    assert template["spec"]["schedulerName"] == "scheduler-plugins-scheduler"


def test_nothing_is_added_for_a_cluster_without():
    assert made("own").group is None
    assert made("own") == made("")


class OldServer:
    """Knows a field less."""

    def __init__(self):
        self.did = []

    def create(self, thing):
        self.did.append(thing["kind"])
        kept = {**thing, "metadata": {**thing["metadata"], "uid": "0f1e"}}
        if thing["kind"] == "Service":
            kept["spec"] = {key: value for key, value in thing["spec"].items() if key != "ports"}
        return kept

    def delete_job(self, name):
        self.did.append("delete")


def test_a_field_that_the_server_dropped_is_told_and_nothing_is_left():
    server = OldServer()
    with pytest.raises(ApiRefusedError, match=r"has left spec.ports out of the Service dl-"):
        submission.send(server, made("own"))
    assert server.did == ["Job", "Secret", "Service", "delete"]


@pytest.mark.parametrize(
    ("sent", "kept", "missing"),
    [
        ({"a": {"memory": "1024Mi"}}, {"a": {"memory": "1Gi"}}, ""),
        ({"a": [1, 2]}, {"a": [1]}, "a.1"),
        ({"a": {"b": 1}}, {"a": None}, "a.b"),
        ({"readOnly": False, "runAsNonRoot": True}, {"runAsNonRoot": True}, ""),
        ({"readOnly": True}, {}, "readOnly"),
        ({"suspend": False}, {}, "suspend"),
        ({"tolerations": [{"key": "a", "value": ""}]}, {"tolerations": [{"key": "a"}]}, ""),
        ({"a": {}, "b": [], "c": {"d": "x"}}, {"c": {}}, "c.d"),
        ({"parallelism": 0}, {}, "parallelism"),
    ],
)
def test_what_is_missing_is_found(sent, kept, missing):
    assert find_dropped(sent, kept) == missing


class Cluster:
    """One whose quota has room for the nodes, and for no supervisor."""

    def __init__(self):
        labels = {manifests.ROLE_LABEL: "node"}
        self.pods = [{"metadata": {"name": "n", "labels": labels}, "status": {"phase": "Running"}}]
        self.has_job = True

    def get(self, kind, name):
        return {}

    def list(self, kind, labels=None, fields=None):
        if kind == "Pod":
            return self.pods
        return [{"reason": "FailedCreate", "message": "Error creating: exceeded quota: small"}]

    def follow_log(self, pod, since_s=None):
        yield from ()

    def delete_job(self, name):
        self.has_job = False


def test_nodes_that_wait_for_a_supervisor_that_never_comes_are_given_back(tmp_path):
    folder = RunFolder(str(tmp_path / "jobs" / "calm_drum"))
    folder.create()
    job = plan(1, at={"engine": "kubernetes", "folder": folder})._replace(compute={"gang_timeout": 30})
    folder.write(folder.plan, job.to_json())
    cluster, carries = Cluster(), courier.Courier(folder)
    carries._warnings._asked -= 60.0
    assert not carries._look(cluster)
    assert cluster.has_job
    carries._alone_since -= 31.0
    assert carries._look(cluster)
    assert not cluster.has_job
    known = cluster_view.read(folder)
    assert (known.state, known.status) == ("gone", "Failed")
    assert known.reason == (
        "the pod of its supervisor did not come: 1 of 1 pods run, and not that of the supervisor; "
        "no pod is made: exceeded quota: small"
    )
