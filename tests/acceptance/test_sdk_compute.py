"""``MLClient.compute``, in scripts shaped like those for azure-ai-ml."""

import os

import pytest

from drumline import AmlCompute, LocalCompute, MLClient, SlurmCompute, load_compute
from drumline.control.machine import computes
from drumline.engines.slurm.engine import SlurmEngine
from drumline.exceptions import ResourceNotFoundError, UsageError, ValidationException


@pytest.fixture
def client():
    return MLClient(None, "subscription", "group", "workspace")


@pytest.fixture
def here(client):
    return client.compute.begin_create_or_update(LocalCompute(name="here")).result()


def test_a_name_that_nobody_attached_is_what_a_job_means_by_it(client, monkeypatch):
    monkeypatch.setattr(SlurmEngine, "is_here", lambda self: False)
    found = client.compute.get("gpu-cluster")
    assert (found.name, found.type, found.provisioning_state) == ("gpu-cluster", "local", "Succeeded")
    assert computes.names() == []
    (size,) = client.compute.list_sizes()
    assert (size.name, size.v_cp_us, size.memory_gb > 0) == ("local", len(os.sched_getaffinity(0)), True)
    # Beside Slurm the script is to attach it, and where a cluster is attached jobs do not know the name either.
    monkeypatch.setattr(SlurmEngine, "is_here", lambda self: True)
    with pytest.raises(ResourceNotFoundError):
        client.compute.get("gpu-cluster")
    monkeypatch.setattr(SlurmEngine, "is_here", lambda self: False)
    computes.attach(SlurmCompute(name="lab", partition="p"), check=False)
    with pytest.raises(ResourceNotFoundError):
        client.compute.get("gpu-cluster")


def test_a_script_that_makes_its_cluster_finds_it_instead(client, here, capsys, monkeypatch):
    """As Azure's tutorials do; `here` was attached by whoever owns the machine."""
    monkeypatch.setattr(SlurmEngine, "is_here", lambda self: True)
    try:
        client.compute.get("missing")
    except ResourceNotFoundError:
        cluster = AmlCompute(
            name="here", type="amlcompute", size="STANDARD_DS3_V2", min_instances=1, tier="Dedicated"
        )
        made = client.begin_create_or_update(cluster).result()
    assert (made.name, made.type, made.provisioning_state) == ("here", "local", "Succeeded")
    assert client.compute.get("here").size == "STANDARD_DS3_V2"
    assert "warning: min_instances: not used" in capsys.readouterr().err


def test_list_get_and_nodes(client, here):
    assert [one.name for one in client.compute.list()] == ["local", "here"]
    assert list(client.compute.list(compute_type="slurm")) == []
    assert client.compute.get("here") == here
    (node,) = client.compute.list_nodes("here")
    assert (node.node_state, node.cores >= 1) == ("up", True)


def test_a_compute_file_is_attached_by_either_client_method(client, tmp_path):
    (tmp_path / "c.yml").write_text("name: cellar\ntype: local\ndescription: one\n")
    assert client.create_or_update(load_compute(tmp_path / "c.yml")).description == "one"
    changed = client.compute.get("cellar")
    changed.description = "two"
    assert client.compute.begin_update(changed).result().description == "two"
    assert client.compute.begin_attach(LocalCompute(name="attic")).done()


def test_an_update_is_of_one_that_is_there(client):
    with pytest.raises(ResourceNotFoundError):
        client.compute.begin_update(LocalCompute(name="nobody"))


def test_delete_forgets_it(client, here):
    with pytest.raises(UsageError):
        client.compute.begin_delete("here", action="Explode")
    poller = client.compute.begin_delete("here", action="Detach")
    assert (poller.result(), poller.status(), computes.names()) == (None, "Succeeded", [])


def test_what_is_no_compute_is_refused(client):
    with pytest.raises(ValidationException):
        client.compute.begin_create_or_update("gpu")
    with pytest.raises(ValidationException, match="partition"):
        client.compute.begin_create_or_update(SlurmCompute(name="gpu", partition="a b"))
