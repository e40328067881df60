"""Computes by name, in files of their own."""

from __future__ import annotations

import stat
from typing import Any

import pytest

from drumline.contract.errors import EngineError, NotFoundError, PlanError, SpecError, UsageError
from drumline.control.machine import computes
from drumline.engines import engine_table
from drumline.engines.base import ClusterNode
from drumline.spec.registered.compute import AmlCompute, LocalCompute, SlurmCompute

ARM = "/subscriptions/s/resourceGroups/g/providers/Microsoft.MachineLearningServices/workspaces/w/computes/"


class Engine:
    """Slurm as far as computes ask it; ``wrong``: what it finds, or raises."""

    def __init__(self, *wrong, is_here=True):
        self.wrong = wrong
        self._is_here = is_here

    def is_here(self):
        return self._is_here

    def check(self, compute):
        return [f"{field}: no such thing" for field in self.wrong]

    def describe(self, compute):
        if self.wrong:
            raise EngineError("Slurm does not answer")
        return {"partition": compute["partition"], "state": "UP"}

    def list_nodes(self, compute):
        return [ClusterNode("n1", "idle", 1, 0, 1)]


@pytest.fixture
def slurm(monkeypatch):
    """Put an engine in Slurm's place; first one that has nothing to say against anything."""

    def use(engine):
        monkeypatch.setattr(
            engine_table,
            "engine",
            lambda name, real=engine_table.engine: engine if name == "slurm" else real(name),
        )

    use(Engine())
    return use


@pytest.fixture
def gpu(slurm):
    computes.attach(SlurmCompute(name="gpu", partition="gpu", tags={"a": "1"}, time_limit=60))
    return slurm


def test_what_is_attached_is_there(gpu, drumline_home):
    compute = computes.get("gpu")
    assert compute == SlurmCompute(name="gpu", partition="gpu", tags={"a": "1"}, time_limit="60")
    assert (compute.id, compute.provisioning_state) == ("azureml:gpu", "Succeeded")


def test_the_file_is_for_its_owner_alone(gpu, drumline_home):
    file = drumline_home / "computes" / "gpu.yml"
    assert [stat.S_IMODE(path.stat().st_mode) for path in (file, file.parent)] == [0o600, 0o700]


def test_attaching_again_replaces(gpu):
    computes.attach(SlurmCompute(name="gpu", partition="other"))
    assert computes.get("gpu") == SlurmCompute(name="gpu", partition="other")


def test_what_the_engine_finds_wrong_is_told_and_nothing_attached(slurm):
    slurm(Engine("partition", "folder"))
    with pytest.raises(PlanError, match="compute 'gpu': partition: no such thing; compute 'gpu': folder:"):
        computes.attach(SlurmCompute(name="gpu"))
    assert computes.names() == []
    computes.attach(SlurmCompute(name="gpu"), check=False)
    assert computes.names() == ["gpu"]


@pytest.mark.parametrize("name", ["local", "Local", "serverless"])
def test_the_names_of_this_machine_are_taken(name):
    with pytest.raises(PlanError, match="is this machine"):
        computes.attach(LocalCompute(name=name))


@pytest.mark.parametrize("name", ["../gpu", "/etc/passwd", "a/b", "", "a.yml", "x\n"])
def test_a_name_leads_nowhere_else(gpu, name):
    with pytest.raises(SpecError):
        computes.attach(LocalCompute(name=name))
    with pytest.raises(NotFoundError):
        computes.get(name)
    with pytest.raises(NotFoundError):
        computes.detach(name)


def test_a_name_that_is_not_there_has_a_hint(gpu):
    with pytest.raises(NotFoundError, match="did you mean 'gpu'"):
        computes.get("gpus")
    with pytest.raises(NotFoundError, match="drumline compute list"):
        computes.get("elsewhere")


def test_a_damaged_file_is_named_and_can_be_detached(gpu, drumline_home):
    file = drumline_home / "computes" / "bad.yml"
    file.write_text("name: [")
    with pytest.raises(SpecError, match=r"bad\.yml:.*(?s:.*)or drumline compute detach -n bad"):
        computes.get("bad")
    said = []
    assert [compute.name for compute in computes.all(damaged=said.append)] == ["local", "gpu"]
    assert len(said) == 1
    computes.detach("bad")
    assert computes.names() == ["gpu"]


def test_a_file_under_another_name_is_damaged(gpu, drumline_home):
    (drumline_home / "computes" / "other.yml").write_text("name: gpu\ntype: slurm\n")
    with pytest.raises(SpecError, match="holds the compute 'gpu', not 'other'"):
        computes.get("other")


def test_all_can_be_of_one_type(gpu):
    computes.attach(LocalCompute(name="here"))
    assert [compute.name for compute in computes.all()] == ["local", "gpu", "here"]
    assert [compute.name for compute in computes.all("AmlCompute")] == ["gpu"]
    assert [compute.name for compute in computes.all("local")] == ["local", "here"]


def test_detach_forgets(gpu):
    computes.detach("gpu")
    with pytest.raises(NotFoundError):
        computes.detach("gpu")


def test_an_amlcompute_becomes_a_slurm_compute(slurm):
    warnings = computes.attach(AmlCompute(name="gpu", size="A", min_instances=1))
    assert warnings == ["min_instances: not used; Slurm keeps the nodes"]
    assert computes.get("gpu") == SlurmCompute(name="gpu", max_instances=4, instance_types={"A": {}})


def test_an_amlcompute_changes_only_what_it_speaks_of(gpu):
    """A script of Azure's that makes its cluster first must not undo the settings of the one that stands for it."""
    computes.update("gpu", {"instance_types.A.gpus_per_node": 8})
    computes.attach(AmlCompute(name="gpu", size="A", max_instances=2))
    found: Any = computes.get("gpu")
    assert (found.partition, found.max_instances) == ("gpu", 2)
    assert found.instance_types == {"A": {"gpus_per_node": 8}}


def test_without_slurm_an_amlcompute_becomes_this_machine(slurm):
    slurm(Engine(is_here=False))
    (warning,) = computes.attach(AmlCompute(name="gpu", size="A", tags={"a": "1"}))
    assert warning.startswith("compute 'gpu' is this machine, which has no Slurm")
    assert "drumline compute attach --type slurm --name gpu" in warning
    assert computes.get("gpu") == LocalCompute(name="gpu", tags={"a": "1"}, size="A")
    with pytest.raises(SpecError, match="max_instances"):
        computes.attach(AmlCompute(name="cpu", max_instances=-1))
    computes.attach(AmlCompute(name="other"), check=False)
    assert computes.get("other").type == "slurm"


def test_an_amlcompute_that_is_this_machine_stays_it():
    computes.attach(LocalCompute(name="cpu"))
    assert computes.attach(AmlCompute(name="cpu")) == ["compute 'cpu' is this machine, and stays so"]
    assert computes.get("cpu").type == "local"


def test_what_only_a_cluster_has_is_a_warning_on_this_machine():
    computes.attach(LocalCompute(name="cpu", size="A"))
    said = computes.update("cpu", {"max_instances": "8", "description": "here"})
    assert said == ["max_instances: not used; compute 'cpu' is this machine"]
    found: Any = computes.get("cpu")
    assert (found.description, found.size, found.max_instances) == ("here", "A", None)


def test_a_size_is_that_of_the_amlcompute_on_a_cluster_too(slurm):
    computes.attach(AmlCompute(name="gpu", size="A"))
    found: Any = computes.get("gpu")
    assert found.size == "A"
    assert SlurmCompute(name="x").size is None


def test_numbers_that_azures_client_takes_and_no_cluster_has_are_refused(slurm):
    with pytest.raises(SpecError, match="max_instances must be a whole number, 1 or more, got -1"):
        computes.attach(AmlCompute(name="cpu", max_instances=-1))


def test_update_changes_and_removes(gpu):
    computes.update("gpu", {"max_instances": "3", "tags.b": "2"}, remove=["time_limit", "tags.a"])
    expected = SlurmCompute(name="gpu", partition="gpu", tags={"b": "2"}, max_instances=3)
    assert computes.get("gpu") == expected


@pytest.mark.parametrize(
    ("changes", "removed", "error"),
    [
        ({"name": "x"}, [], UsageError),
        ({"type": "local"}, [], UsageError),
        ({"max_instances": "0"}, [], SpecError),
        ({"nothing": "0"}, [], SpecError),
        ({}, ["qos"], UsageError),
    ],
)
def test_an_update_that_cannot_be_changes_nothing(gpu, changes, removed, error):
    before = computes.get("gpu")
    with pytest.raises(error):
        computes.update("gpu", changes, remove=removed)
    assert computes.get("gpu") == before


def test_describe_has_the_settings_and_what_the_engine_says(gpu):
    described = computes.describe("gpu")
    assert (described["partition"], described["provisioning_state"]) == ("gpu", "Succeeded")
    assert (described["slurm"], described["reason"]) == ({"partition": "gpu", "state": "UP"}, "")


def test_describe_without_an_answer_has_the_reason(gpu):
    gpu(Engine("down"))
    described = computes.describe("gpu")
    assert ("slurm" in described, described["reason"]) == (False, "Slurm does not answer")


def test_nodes_are_the_engines(gpu):
    assert computes.nodes("gpu") == [ClusterNode("n1", "idle", 1, 0, 1)]


@pytest.mark.parametrize("text", [None, "", "local", "azureml:local", "azureml:LOCAL", "serverless"])
def test_this_machine_needs_no_compute(gpu, text):
    assert computes.resolve(text) is None


@pytest.mark.parametrize("text", ["gpu", "azureml:gpu", ARM + "gpu", "azureml:" + ARM + "gpu"])
def test_a_compute_is_found_by_each_of_its_names(gpu, text):
    assert computes.resolve(text).name == "gpu"


def test_a_name_of_azures_is_this_machine_while_nothing_is_attached():
    assert computes.resolve("azureml:gpu-cluster") is None


def test_a_name_that_nobody_attached_is_refused_once_something_is(gpu):
    with pytest.raises(PlanError, match="there is no compute 'gpuu'\nhint: did you mean 'gpu'") as caught:
        computes.resolve("azureml:gpuu")
    assert [problem.path for problem in caught.value.problems] == ["compute"]
    with pytest.raises(PlanError, match="attach --type local --name cpu-cluster"):
        computes.resolve("azureml:cpu-cluster")


def test_another_number_makes_another_name():
    computes.attach(LocalCompute(name="node1"))
    assert computes.resolve("azureml:node12") is None
    computes.attach(LocalCompute(name="node21"))
    assert computes.resolve("azureml:node12") is None


def test_a_local_compute_is_told_from_none():
    computes.attach(LocalCompute(name="cpu-cluster"))
    assert computes.resolve("azureml:cpu-cluster").type == "local"
    assert computes.nodes("cpu-cluster")[0].cores >= 1
    assert computes.describe("cpu-cluster")["local"]["cores"] >= 1


def test_while_only_this_machine_has_names_an_unknown_name_is_this_machine_too():
    computes.attach(LocalCompute(name="cpu-cluster"))
    assert computes.resolve("azureml:gpu-cluster") is None
    computes.attach(SlurmCompute(name="big", partition="p"), check=False)
    with pytest.raises(PlanError, match="no compute 'gpu-cluster'"):
        computes.resolve("azureml:gpu-cluster")
