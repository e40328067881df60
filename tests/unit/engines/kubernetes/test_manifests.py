"""The objects of a job: their fields, and what servers of newer versions say to them."""

import json

import pytest
import yaml
from planning import plan

from drumline.contract.errors import PlanError
from drumline.contract.folder import RunFolder
from drumline.contract.plan import Asked, Build, Fetch
from drumline.engines.kubernetes import bundle, manifests

FOLDER = RunFolder("/home/ann/jobs/calm_drum")
VERSIONS = [f"1.{minor}" for minor in range(25, 38)]
FULL = {
    "image": "python:3.12-slim",
    "namespace": "training",
    "cores_per_node": 4,
    "memory_per_node": "16G",
    "gpu_resource": "amd",
    "queue": "team",
    "resources": {"rdma/hca_shared_devices_a": "1", "hugepages-2Mi": "64Mi"},
    "annotations": {"k8s.v1.cni.cncf.io/networks": "ib0"},
    "host_network": True,
    "scheduler": "binpack",
    "runtime_class": "nvidia",
    "priority_class": "high",
    "node_selector": {"pool": "gpu"},
    "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": "60"}],
    "image_pull_secrets": ["registry"],
    "volumes": [
        {"claim": "data", "path": "/data", "read_only": True},
        {"claim": "models", "path": "/models", "read_only": False},
    ],
}
SPREADS = ("prefer", "require", "none")


def job(compute=None, nodes=2, gpus=0, **changed):
    made = plan(nodes, gpus=gpus, at={"engine": "kubernetes", "folder": FOLDER})
    return made._replace(compute={"image": "python:3.12", **(compute or {})}, **changed)


def made(*arguments, way="", **settings):
    return manifests.make_objects(job(*arguments, **settings), FOLDER, [{bundle.TOKEN_FILE: "eA=="}], way)


def pod_of(thing):
    return thing["spec"]["template"]["spec"]


@pytest.mark.parametrize(
    ("compute", "way"),
    [
        ({}, "own"),
        (FULL, "kueue"),
        ({**FULL, "spread": "require"}, "volcano"),
        ({"spread": "none"}, "coscheduling"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_newer_servers_know_every_field(compute, way):
    validate = pytest.importorskip("kubernetes_validate", reason="the schemas come with scripts/test")
    owner = {"metadata": {"name": "dl", "uid": "0f1e"}}
    things = made(compute, gpus=2, way=way)
    for thing in (things.supervisor, *things.secrets, things.service, things.nodes):
        for version in VERSIONS:
            validate.validate(manifests.own(thing, owner), version, strict=True)
    assert (things.group is None) is (way in ("own", "kueue"))


def test_a_field_that_no_server_knows_is_found():
    validate = pytest.importorskip("kubernetes_validate", reason="the schemas come with scripts/test")
    nodes = made().nodes
    pod_of(nodes)["automountServiceAccountTokens"] = False
    with pytest.raises(validate.ValidationError):
        validate.validate(nodes, VERSIONS[0], strict=True)


def test_all_objects_go_with_the_first_which_is_held_back():
    things = made()
    assert things.supervisor["spec"]["parallelism"] == 0
    assert things.supervisor["spec"]["backoffLimit"] == 0
    owned = manifests.own(things.secrets[0], {"metadata": {"name": "dl", "uid": "0f1e"}})
    assert owned["metadata"]["ownerReferences"] == [
        {"apiVersion": "batch/v1", "kind": "Job", "name": "dl", "uid": "0f1e"}
    ]
    assert "ownerReferences" not in things.secrets[0]["metadata"]


def test_a_node_is_a_pod_without_rights():
    things = made(nodes=3)
    assert (things.nodes["spec"]["parallelism"], things.nodes["spec"]["completions"]) == (3, 3)
    for thing in (things.supervisor, things.nodes):
        pod = pod_of(thing)
        (container,) = pod["containers"]
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert pod["restartPolicy"] == "Never"


def test_the_service_leads_to_the_supervisor_before_it_is_ready():
    things = made()
    spec = things.service["spec"]
    assert spec["clusterIP"] == "None"
    assert spec["publishNotReadyAddresses"] is True
    labels = things.supervisor["spec"]["template"]["metadata"]["labels"]
    assert spec["selector"].items() <= labels.items()
    assert not spec["selector"].items() <= things.nodes["spec"]["template"]["metadata"]["labels"].items()
    name, port = pod_of(things.nodes)["containers"][0]["args"][2:]
    assert (name, int(port)) == (
        f"{things.service['metadata']['name']}.default.svc",
        spec["ports"][0]["port"],
    )


def test_resources_are_those_of_the_compute():
    things = made(FULL, gpus=2)
    pod = pod_of(things.nodes)
    (container,) = pod["containers"]
    limits = {"memory": "16Gi", "amd.com/gpu": "2", **FULL["resources"]}
    assert container["resources"] == {"requests": {"cpu": "4", **limits}, "limits": limits}
    assert things.nodes["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team"
    assert pod["tolerations"][0]["tolerationSeconds"] == 60
    assert (pod["nodeSelector"], pod["priorityClassName"]) == ({"pool": "gpu"}, "high")
    assert (pod["schedulerName"], pod["runtimeClassName"]) == ("binpack", "nvidia")
    assert pod["imagePullSecrets"] == [{"name": "registry"}]
    assert things.nodes["spec"]["template"]["metadata"]["annotations"] == FULL["annotations"]
    (mount,) = [one for one in container["volumeMounts"] if one["mountPath"] == "/data"]
    (volume,) = [one for one in pod["volumes"] if one["name"] == mount["name"]]
    assert (mount["readOnly"], volume["persistentVolumeClaim"]) == (True, {"claimName": "data"})


def test_the_pods_of_a_silent_node_are_replaced_soon_unless_the_compute_says_otherwise():
    def said(*given):
        found = pod_of(made({"tolerations": list(given)}).nodes)["tolerations"]
        return {one.get("key"): one.get("tolerationSeconds") for one in found}

    both = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
    assert said() == dict.fromkeys(both, 30)
    own = {"key": both[1], "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": "600"}
    assert said(own) == {both[0]: 30, both[1]: 600}
    assert said({"operator": "Exists"}) == {None: None}


def test_nodes_alone_have_the_network_of_their_machine_and_lock_memory():
    things = made(FULL)
    pod = pod_of(things.nodes)
    assert (pod["hostNetwork"], pod["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    capabilities = pod["containers"][0]["securityContext"]["capabilities"]
    assert capabilities == {"drop": ["ALL"], "add": ["IPC_LOCK"]}
    supervisor = pod_of(things.supervisor)
    assert "hostNetwork" not in supervisor
    assert supervisor["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.parametrize("spread", SPREADS)
def test_nodes_of_a_job_are_on_machines_of_their_own(spread):
    things = made({"spread": spread})
    pod, labels = pod_of(things.nodes), things.nodes["spec"]["template"]["metadata"]["labels"]
    if spread == "require":
        (term,) = pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert term["topologyKey"] == "kubernetes.io/hostname"
        assert term["labelSelector"]["matchLabels"].items() <= labels.items()
    elif spread == "prefer":
        (soft,) = pod["topologySpreadConstraints"]
        assert soft["whenUnsatisfiable"] == "ScheduleAnyway"
        assert soft["labelSelector"]["matchLabels"].items() <= labels.items()
    assert ("affinity" in pod, "topologySpreadConstraints" in pod) == (
        spread == "require",
        spread == "prefer",
    )


@pytest.mark.parametrize(
    ("compute", "size"),
    [
        ({}, "4Gi"),
        ({"memory_per_node": "16G"}, "8192Mi"),
        ({"memory_per_node": "1K"}, "1Ki"),
        ({"memory_per_node": "16G", "shm_size": "2G"}, "2Gi"),
    ],
)
def test_shared_memory_has_a_size_always(compute, size):
    for thing in (made(compute).supervisor, made(compute).nodes):
        (shm,) = [one for one in pod_of(thing)["volumes"] if one["name"] == "shm"]
        assert shm["emptyDir"] == {"medium": "Memory", "sizeLimit": size}


def test_only_the_supervisor_has_the_secrets_of_the_job():
    things = manifests.make_objects(job(), FOLDER, [{bundle.SECRETS_FILE: "eA=="}])
    files = [
        {item["path"] for item in pod_of(thing)["volumes"][0]["projected"]["sources"][0]["secret"]["items"]}
        for thing in (things.supervisor, things.nodes)
    ]
    assert (bundle.SECRETS_FILE in files[0], bundle.SECRETS_FILE in files[1]) == (True, False)


def test_names_are_those_of_the_cluster_and_of_one_run_folder():
    names = [
        manifests.name_of(job()._replace(job=name), FOLDER) for name in ("Calm_Drum", "-", "x" * 64, "1_")
    ]
    other = manifests.name_of(job(), RunFolder("/home/bob/jobs/calm_drum"))
    assert other != names[0]
    for name in names:
        assert len(name + "-nodes") <= 63
        assert name.startswith("dl-")
        assert name.replace("-", "").isalnum()
        assert name == name.lower()


def test_what_is_printed_is_what_is_sent_but_for_the_bytes():
    printed = list(yaml.safe_load_all(manifests.render(job(FULL), FOLDER)))
    assert [one["kind"] for one in printed] == ["Job", "Secret", "Service", "Job"]
    sent = manifests.make_objects(job(FULL), FOLDER, [printed[1]["data"]])
    assert printed[0]["metadata"]["annotations"].pop(manifests.SUBMISSION_ANNOTATION) == "(random)"
    assert json.loads(json.dumps([printed[0], *printed[2:]])) == [sent.supervisor, sent.service, sent.nodes]
    (*_, group) = yaml.safe_load_all(manifests.render(job({"gang": "volcano"}), FOLDER))
    assert group["kind"] == "PodGroup"


def test_what_pods_cannot_have_is_refused_by_its_field():
    fetch = Fetch("inputs.x", "https://a/b", "file", "/home/ann/jobs/calm_drum/inputs/x", False, "download")
    build = Build("uv", "0", "/x", {})
    wrong = job(
        {"image": None, "max_instances": 1},
        asked=Asked(instance_type="big"),
        cwd="/home/ann/code",
        build=build,
        fetches=(fetch,),
        user_env={"AZURE_ML_OUTPUT_data": "/home/ann/data"},
    )
    with pytest.raises(PlanError) as error:
        bundle.check(wrong, FOLDER)
    told = error.value.message
    for word in (
        "image",
        "instance_count",
        "instance_type",
        "folder",
        "environment",
        "remote data",
        "/home/ann/data",
    ):
        assert word in told
    held = job({"volumes": [{"claim": "x", "path": "/home/ann/data"}]})
    bundle.check(held._replace(user_env={"AZURE_ML_OUTPUT_data": "/home/ann/data/a"}), FOLDER)


def test_an_output_that_comes_through_a_log_is_warned_of():
    own = {"AZURE_ML_OUTPUT_model": "/home/ann/jobs/calm_drum/named-outputs/model"}
    (warning,) = bundle.list_warnings(job()._replace(user_env=own))
    assert warning.startswith(
        "outputs.model: each pod brings back up to 4 MiB of outputs, and leaves larger files out"
    )
    held = job({"volumes": [{"claim": "x", "path": "/data"}]})
    assert bundle.list_warnings(held._replace(user_env={"AZURE_ML_OUTPUT_model": "/data/model"})) == []
    assert bundle.list_warnings(job()) == []


def test_the_pods_have_the_plan_with_their_own_paths(monkeypatch):
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    there = bundle.adapt(job(), FOLDER)
    assert there.cwd == "/drumline/home/jobs/calm_drum/code"
    assert "/home/ann/jobs" not in there.to_json()
    assert "PATH" not in there.user_env


def test_a_url_of_the_home_is_the_pods_own_too():
    folder = RunFolder("/home/ann b/jobs/calm_drum")
    here = job()._replace(user_env={"PLACE": "file:///home/ann%20b/x"})
    assert bundle.adapt(here, folder).user_env == {"PLACE": "file:///drumline/home/x"}


def test_a_run_of_mlflow_in_files_of_this_machine_is_not_resumed_in_pods():
    run = {"MLFLOW_TRACKING_URI": "file:///home/ann/mlruns", "MLFLOW_RUN_ID": "calm_drum", "MINE": "1"}
    assert bundle.adapt(job()._replace(user_env=run), FOLDER).user_env == {"MINE": "1"}
    run["MLFLOW_TRACKING_URI"] = "https://mlflow.example.com"
    assert bundle.adapt(job()._replace(user_env=run), FOLDER).user_env == run
