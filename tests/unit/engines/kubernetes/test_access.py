"""The Role that users need: what jobs really ask of an API server, no less and no more."""

import base64
import json
import os
import re

import pytest
import yaml
from planning import plan
from waiting import wait_until

from drumline.contract import events as e
from drumline.contract.errors import EngineError
from drumline.contract.folder import RunFolder
from drumline.contract.outcome import fold
from drumline.control.driver import children
from drumline.engines.kubernetes import access, client, cluster_view, courier, manifests, submission
from drumline.engines.kubernetes.client import ApiSilentError
from drumline.engines.kubernetes.engine import ENGINE

JOBS, PODS = "/apis/batch/v1/namespaces/default/jobs", "/api/v1/namespaces/default/pods"
EVENTS, NODES = "/api/v1/namespaces/default/events", "/api/v1/nodes"
VERBS = {"POST": "create", "PATCH": "patch", "DELETE": "delete"}


@pytest.fixture
def folder(tmp_path, server):
    pytest.importorskip("lightkube", reason="the extra kubernetes, which scripts/test installs")
    (tmp_path / "config").write_text(server.config())
    made = RunFolder(str(tmp_path / "jobs" / "calm_drum"))
    made.create()
    job = plan(2, at={"engine": "kubernetes", "folder": made})
    compute = {"image": "x", "kubeconfig": str(tmp_path / "config")}
    made.write(made.plan, job._replace(compute=compute).to_json())
    made.begin(e.JobSubmitted(1.0, "ann", "kubernetes"))
    return made


def pod(name, role, phase):
    return {"metadata": {"name": name, "labels": {manifests.ROLE_LABEL: role}}, "status": {"phase": phase}}


def rights_asked(server):
    """What a Role has to allow for all that was asked, as (group, resource, verb); `server.asked` is then empty."""
    found = set()
    for method, path, _, _ in server.asked:
        group, rest = re.fullmatch(r"/(?:api|apis/([^/]+))/v[^/]+/(?:namespaces/[^/]+/)?(.*)", path).groups()
        resource, _, name = rest.partition("/")
        name, _, part = name.partition("/")
        verb = VERBS.get(method) or ("get" if name else "list")
        found.add((group or "", f"{resource}/{part}" if part else resource, verb))
    server.asked.clear()
    return found


def rights_given(manifest):
    return {
        (group, resource, verb)
        for rule in manifest["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def run_a_job(server, folder):
    """Submit one, which waits, is asked to cancel, and ends."""
    job = courier.Plan.read(folder.plan)
    made = manifests.make_objects(job, folder, [{}])
    name = made.supervisor["metadata"]["name"]
    server.answers |= {
        ("POST", JOBS): (201, lambda thing: {**thing, "metadata": {**thing["metadata"], "uid": "0f1e"}}),
        ("POST", "/api/v1/namespaces/default/secrets"): (201, lambda thing: thing),
        ("POST", "/api/v1/namespaces/default/services"): (201, lambda thing: thing),
        ("PATCH", f"{JOBS}/{name}"): (200, {}),
        ("GET", f"{JOBS}/{name}"): (200, {"metadata": {"name": name}}),
        ("GET", PODS): (200, {"items": [pod("s", "supervisor", "Running")]}),
        ("GET", EVENTS): (200, {"items": [{"reason": "FailedCreate", "message": "exceeded quota"}]}),
        ("PATCH", f"{PODS}/s"): (200, {}),
        ("DELETE", f"{JOBS}/{name}"): (200, {}),
    }
    with client.open_api(job.compute) as api:
        submission.send(api, made)
        carries = courier.Courier(folder)
        carries._warnings._asked -= 60.0
        folder.write(folder.cancel, "{}")
        assert not carries._look(api)
        assert cluster_view.read(folder).reason == "0 of 2 pods run; no pod is made: exceeded quota"
        wait_until(lambda: ("GET", f"{PODS}/s/log") in [one[:2] for one in server.asked], 20.0, "the log")
        server.answers["GET", PODS] = (200, {"items": []})
        api.delete_job(name)


def test_a_job_that_kubernetes_has_is_not_submitted_again_while_the_server_is_away(
    server, folder, monkeypatch
):
    monkeypatch.setattr(courier, "ensure", lambda _: None)
    server.answers |= {
        ("GET", "/apis"): (200, {"groups": []}),
        ("POST", JOBS): (201, lambda thing: {**thing, "metadata": {**thing["metadata"], "uid": "0f1e"}}),
        ("POST", "/api/v1/namespaces/default/secrets"): (201, lambda thing: thing),
        ("POST", "/api/v1/namespaces/default/services"): (503, {"message": "away"}),
    }
    monkeypatch.setattr(submission, "PATIENCE_S", 0.0)
    # A submitter that was killed has not come to write this down.
    monkeypatch.setattr(cluster_view, "write_engine", lambda *_: None)
    os.makedirs(folder.code)
    folder.write(folder.job, "{}")
    with pytest.raises(ApiSilentError):
        ENGINE.submit(folder, None)
    monkeypatch.undo()
    monkeypatch.setattr(courier, "ensure", lambda _: None)
    place = cluster_view.read_place(folder)
    cluster_view.write_place(folder, {key: place[key] for key in place if key != "withdrawn"})
    assert ENGINE.view_job(folder, may_withdraw=True).state == "unknown"
    name = place["name"]
    first = next(body for method, path, body, _ in server.asked if (method, path) == ("POST", JOBS))
    there = {**first, "metadata": {**first["metadata"], "uid": "0f1e"}}
    server.answers |= {
        ("POST", JOBS): [(409, {"message": "exists"}), (201, lambda thing: thing)],
        ("GET", f"{JOBS}/{name}"): (200, there),
        ("POST", "/api/v1/namespaces/default/secrets"): (409, {"message": "exists"}),
        ("POST", "/api/v1/namespaces/default/services"): (201, lambda thing: thing),
        ("PATCH", f"{JOBS}/{name}"): (200, {}),
    }
    children._complete_elsewhere(folder, fold(folder.read_events()))
    assert folder.read_json(folder.engine) == {"kubernetes_job": name, "uid": "0f1e"}
    assert not fold(folder.read_events()).is_final
    server.close()
    cluster_view.write(folder, "unknown", "Kubernetes does not answer")
    children._complete_elsewhere(folder, fold(folder.read_events()))
    assert not fold(folder.read_events()).is_final
    assert cluster_view.was_sent(folder)
    assert not cluster_view.is_withdrawn(folder)


def test_the_role_has_what_a_job_asks_for_and_no_more(server, folder):
    server.answers["GET", PODS] = (200, {"items": []})
    assert ENGINE.check(courier.Plan.read(folder.plan).compute) == []
    run_a_job(server, folder)
    role, _ = access.make_manifests("default", {"kind": "User", "name": "ann"}, "own")
    assert rights_asked(server) == rights_given(role)


def test_the_nodes_of_a_cluster_are_not_in_the_role(server, folder):
    server.answers["GET", NODES] = server.answers["GET", "/api/v1/pods"] = (200, {"items": []})
    ENGINE.list_nodes(courier.Plan.read(folder.plan).compute)
    assert rights_asked(server) == {("", "nodes", "list"), ("", "pods", "list")}
    printed = access.render("default", {"kind": "User", "name": "ann"}).split("apiVersion")[0]
    assert "a ClusterRole: list of nodes, for drumline compute list-nodes.\n" in printed
    assert "a ClusterRole: list of pods, for what is free on nodes, in the same command.\n" in printed


def test_the_client_asks_for_nothing_that_the_table_lacks(server, folder):
    with client.open_api(courier.Plan.read(folder.plan).compute) as api:
        with pytest.raises(EngineError, match="not supported"):
            api.get("Secret", "a")
        with pytest.raises(KeyError):
            api.list("ConfigMap")
    assert server.asked == []


def test_a_group_of_pods_is_made_where_its_scheduler_looks(server, folder):
    path = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"
    server.answers["POST", path] = (201, lambda thing: thing)
    job = courier.Plan.read(folder.plan)
    with client.open_api(job.compute) as api:
        group = manifests.make_objects(job, folder, [{}], "volcano").group
        assert api.create(group) == group
    assert rights_asked(server) == {("scheduling.volcano.sh", "podgroups", "create")}


def test_a_server_says_which_groups_it_has(server, folder):
    server.answers["GET", "/apis"] = (200, {"groups": [{"name": "batch"}, {"name": "kueue.x-k8s.io"}]})
    with client.open_api(courier.Plan.read(folder.plan).compute) as api:
        assert api.groups() == {"batch", "kueue.x-k8s.io"}


@pytest.mark.parametrize("gang", ["", "own", "volcano"])
def test_the_printed_role_is_one_of_every_version(gang):
    text = access.render("training", access.find_subject("ann", ""), gang)
    role, binding = yaml.safe_load_all(text)
    assert (role["metadata"]["namespace"], binding["subjects"][0]["name"]) == ("training", "ann")
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert (("scheduling.volcano.sh", "podgroups", "create") in rights_given(role)) is (gang != "own")
    validate = pytest.importorskip("kubernetes_validate", reason="the schemas come with scripts/test")
    for thing in (role, binding):
        for version in ("1.25", "1.37"):
            validate.validate(thing, version, strict=True)


def test_a_token_of_an_account_says_whose_it_is():
    claims = base64.urlsafe_b64encode(
        json.dumps({"sub": "system:serviceaccount:training:bot"}).encode()
    ).decode()
    subject = access.find_subject("ann", f"x.{claims.rstrip('=')}.y")
    assert subject == {"kind": "ServiceAccount", "namespace": "training", "name": "bot"}
    (_, binding) = access.make_manifests("training", subject)
    assert binding["subjects"] == [subject]
    for token in ("", "a.b", "a.b.c", "a.e30.c", "a.W10.c"):
        assert access.find_subject("ann", token) == {"kind": "User", "name": "ann"}
