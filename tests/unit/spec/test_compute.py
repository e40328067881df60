"""A compute as users write it, and as Azure's files have it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from drumline.contract.errors import SpecError
from drumline.spec.entity import to_dict
from drumline.spec.load import load_compute
from drumline.spec.registered.compute import (
    AmlCompute,
    KubernetesCompute,
    LocalCompute,
    SlurmCompute,
    check_compute,
    from_dict,
    to_slurm,
)

FULL = """
$schema: ours
name: gpu-cluster
type: Slurm
description: the one in the cellar
tags: {team: vision}
partition: gpu,gpu-long
account: vision
qos: normal
tier: dedicated
spot_partition: scavenge
spot_qos: low
sbatch_options: [--constraint=a100, --exclusive, --dependency=singleton]
folder: /shared/runs
scratch: /scratch/$USER/${SLURM_JOB_ID}
python: /opt/drumline/bin/python
setup: |
  module purge
  module load cuda/12
cores_per_node: 64
gpus_per_node: "4"
memory_per_node: 500G
max_instances: 8
interface: ib0
nccl_topo_file: /opt/topology.xml
instance_types:
  a100: {partition: a100, gpus_per_node: 8, cores_per_node: 96, memory_per_node: 1T, sbatch_options: [--exclusive]}
  cpu:
    gpus_per_node: 0
priorities:
  low: {nice: 1000}
  high: {qos: urgent, partition: fast}
requeue: true
time_limit: 1:30:00
slurm_conf: /etc/slurm/other.conf
"""


def write(folder, text):
    path = folder / "compute.yml"
    path.write_text(text)
    return path


def only_problem(folder, line):
    with pytest.raises(SpecError) as caught:
        load_compute(write(folder, f"name: a\ntype: slurm\n{line}\n"))
    (problem,) = caught.value.problems
    return problem


def test_a_full_file_has_every_field(tmp_path):
    compute: Any = load_compute(write(tmp_path, FULL))
    assert [type(compute)] == [SlurmCompute]
    assert (compute.type, compute.gpus_per_node, compute.time_limit) == ("slurm", 4, "1:30:00")
    assert compute.setup == "module purge\nmodule load cuda/12\n"
    assert compute.instance_types["cpu"] == {"gpus_per_node": 0}
    assert set(to_dict(compute)) == set(SlurmCompute._fields)
    assert compute._warnings == []


def test_what_is_dumped_loads_back_to_the_same(tmp_path):
    compute = load_compute(write(tmp_path, FULL))
    compute.dump(tmp_path / "again.yml")
    assert load_compute(tmp_path / "again.yml") == compute
    with pytest.raises(FileExistsError):
        compute.dump(tmp_path / "again.yml", overwrite=False)


@pytest.mark.parametrize(
    ("line", "column", "path", "what"),
    [
        ("partitoin: gpu", 1, "partitoin", "unknown key 'partitoin' in a slurm compute"),
        ("partition: a b", 12, "partition", "one word"),
        ("partition: $(reboot)", 12, "partition", "one word"),
        ("account: --wrap=x", 10, "account", "one word"),
        ('qos: "a\\nb"', 6, "qos", "one line"),
        ('python: "/a\\0b"', 9, "python", "one line"),
        ("folder: runs", 9, "folder", "an absolute path"),
        ("folder: /a/$HOME", 9, "folder", "an absolute path"),
        ("scratch: /scratch/$HOME", 10, "scratch", "only $USER and $SLURM_JOB_ID"),
        ("scratch: /scratch/`id`", 10, "scratch", "only $USER and $SLURM_JOB_ID"),
        ("setup: 5", 8, "setup", "setup must be text, got 5"),
        ("cores_per_node: -1", 17, "cores_per_node", "0 or more"),
        ("max_instances: 0", 16, "max_instances", "1 or more"),
        ("memory_per_node: 64", 18, "memory_per_node", "with its unit K, M, G or T, got 64"),
        ("memory_per_node: 64GB", 18, "memory_per_node", "with its unit K, M, G or T"),
        ("interface: a/b", 12, "interface", "one network interface"),
        ("time_limit: 2 hours", 13, "time_limit", "a time of Slurm"),
        ("time_limit: 0", 13, "time_limit", "a time of Slurm"),
        ("tier: spot", 7, "tier", "'low_priority', 'dedicated'"),
        ("priorities: {urgent: {nice: 1}}", 14, "priorities.urgent", "unknown key 'urgent'"),
        ("priorities: {low: {nice: much}}", 26, "priorities.low.nice", "a whole number"),
        ("instance_types: {x: {partition: a b}}", 33, "instance_types.x.partition", "one word"),
        ("requeue: maybe", 10, "requeue", "true or false"),
        ("min_instances: 1", 1, "min_instances", "unknown key"),
    ],
)
def test_a_mistake_is_told_with_its_place(tmp_path, line, column, path, what):
    problem = only_problem(tmp_path, line)
    assert (problem.line, problem.column, problem.path) == (3, column, path)
    assert what in problem.what


@pytest.mark.parametrize(
    ("option", "hint"),
    [
        ("--nodes=2", "instance_count"),
        ("-N2", "instance_count"),
        ("-N 2", "instance_count"),
        ("--ntasks-per-node=4", "an agent a node"),
        ("--outp=x", "run folder"),
        ("--requeue", "use `requeue: true`"),
        ("--no-requeue", "use `requeue: false`"),
        ("--partition=x", "use `partition:`"),
        ("-C a100", "write it long: --constraint=a100"),
        ("--constraint a100", "write it as one: --constraint=a100"),
        ("constraint=a100", "write it as --NAME or --NAME=VALUE"),
        ("--wrap=x", "the batch script is Drumline"),
        ("", "write it as --NAME or --NAME=VALUE"),
    ],
)
def test_an_option_that_is_not_the_users_is_refused_with_the_reason(tmp_path, option, hint):
    problem = only_problem(tmp_path, f"sbatch_options: [{json.dumps(option)}]")
    assert (problem.line, problem.column, problem.path) == (3, 18, "sbatch_options.0")
    assert hint in problem.hint


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: a\n", "missing key 'type' in a compute"),
        ("name: a\ntype: synapsespark\n", "computes of type 'synapsespark' are not supported"),
        ("name: a\ntype: slrum\n", "'slrum' is not a type of compute"),
        ("type: slurm\n", "missing key 'name'"),
        ("type: local\nname: ../x\n", "letters, digits"),
        ("type: local\nname: a.b\n", "letters, digits"),
        ("type: local\nname: a\npartition: gpu\n", "unknown key 'partition' in a local compute"),
    ],
)
def test_what_is_no_compute_is_refused(tmp_path, text, said):
    with pytest.raises(SpecError, match=said):
        load_compute(write(tmp_path, text))


@pytest.mark.parametrize("time", ["60", "90:30", "12:00:00", "1-12", "1-12:30", "2-00:00:00"])
def test_every_form_of_a_time_limit_is_kept_as_it_is_written(tmp_path, time):
    compute: Any = load_compute(write(tmp_path, f"name: a\ntype: slurm\ntime_limit: {time}\n"))
    assert (compute.time_limit, compute._warnings) == (time, [])


def test_an_override_comes_before_the_checks(tmp_path):
    path = write(tmp_path, "name: a\ntype: slurm\nmax_instances: 0\n")
    compute: Any = load_compute(
        path, params_override=[{"max_instances": "2", "priorities.high.qos": "urgent"}]
    )
    assert (compute.max_instances, compute.priorities) == (2, {"high": {"qos": "urgent"}})


def test_a_compute_built_in_python_is_checked_as_its_file_would_be():
    compute: Any = check_compute(SlurmCompute(name="a", time_limit=60))
    assert compute.time_limit == "60"
    with pytest.raises(SpecError, match="partition must be one line"):
        check_compute(SlurmCompute(name="a", partition="a\nb"))


def test_an_amlcompute_stands_for_a_slurm_compute(tmp_path):
    text = "name: cpu\ntype: AmlCompute\nsize: STANDARD_NC6\ntier: low_priority\nmin_instances: 0\nmax_instances: 2\n"
    aml = load_compute(write(tmp_path, text + "ssh_settings: {admin_username: a, admin_password: secret}\n"))
    slurm, warnings = to_slurm(aml)
    expected = SlurmCompute(
        name="cpu", tier="low_priority", max_instances=2, instance_types={"STANDARD_NC6": {}}
    )
    assert (slurm, "secret" in repr(aml)) == (expected, False)
    assert [warning.partition(":")[0] for warning in warnings] == ["min_instances", "ssh_settings"]


def test_azures_constructor_takes_any_spelling_of_a_tier_and_has_its_defaults():
    aml = AmlCompute(name="cpu", tier="LowPriority", unknown=1)  # type: ignore[call-arg]
    assert (aml.min_instances, aml.max_instances, aml.idle_time_before_scale_down) == (0, 4, 120)
    checked_aml: Any = check_compute(aml)
    slurm: Any
    slurm, warnings = to_slurm(aml)
    assert (checked_aml.tier, slurm.tier, slurm.max_instances) == ("low_priority", "low_priority", 4)
    assert warnings == ["unknown: not known, and ignored"]


def test_what_show_prints_can_be_read_again():
    shown = {
        "name": "a",
        "type": "local",
        "id": "x",
        "provisioning_state": "Succeeded",
        "local": {"cores": 2},
    }
    assert from_dict({**shown, "reason": ""}) == LocalCompute(name="a")


VERDICTS = {
    "full": ("tier: low_priority\nidle_time_before_scale_down: 120\ntags: {a: b}", True),
    "min_gt_max": ("min_instances: 5", True),
    "negative": ("max_instances: -1", True),
    "idle_str": ("idle_time_before_scale_down: PT2M", False),
    "tier_camel": ("tier: LowPriority", False),
    "tier_dash": ("tier: low-priority", False),
    "unknown_field": ("gpus: 1", False),
}
"""Those of azure-ai-ml 1.35.2 on files that differ in one thing each."""


@pytest.mark.parametrize("case", VERDICTS)
def test_the_verdict_on_an_amlcompute_is_that_of_azure_ai_ml(tmp_path, case):
    line, accepted = VERDICTS[case]
    path = write(tmp_path, f"name: cpu\ntype: amlcompute\nsize: Standard_DS3_v2\n{line}\n")
    try:
        load_compute(path)
    except SpecError:
        assert not accepted
    else:
        assert accepted


def test_every_field_is_in_its_page():
    page = (Path(__file__).parents[3] / "docs" / "howto" / "computes.md").read_text()
    fields = {*SlurmCompute._fields, *AmlCompute._fields, *LocalCompute._fields}
    assert [field for field in sorted(fields) if f"`{field}" not in page] == []


SETTINGS = [name for name in KubernetesCompute._fields if name not in ("name", "type", "description", "tags")]


def test_every_field_of_kubernetes_is_in_its_page_and_nearly_all_in_its_file(tmp_path):
    page = (Path(__file__).parents[3] / "docs" / "howto" / "kubernetes.md").read_text()
    assert [field for field in SETTINGS if f"| `{field}`" not in page] == []
    (block,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    compute: Any = load_compute(write(tmp_path, block))
    assert compute.volumes == [{"claim": "datasets", "path": "/data", "read_only": True}]
    # With a gang of Kueue, the cluster's own scheduler is the right one.
    given = to_dict(compute).keys() | {"kubeconfig", "description", "tags", "scheduler"}
    assert given == {"name", "type", "description", "tags", *SETTINGS}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("partition: gpu", "unknown key 'partition' in a kubernetes compute"),
        ("namespace: A_b", "lower-case letters, digits and '-'"),
        ("image: 'a b'", "the name of an image"),
        ("memory_per_node: 64", "a size with its unit"),
        ("volumes: [{claim: data}]", "missing key 'path'"),
        ("volumes: [{claim: data, path: data}]", "an absolute path"),
        ("shm_size: 2Gi", "a size with its unit"),
    ],
)
def test_what_no_pod_can_have_is_refused(tmp_path, line, said):
    with pytest.raises(SpecError, match=said):
        load_compute(write(tmp_path, f"name: k8s\ntype: kubernetes\n{line}\n"))


def test_the_file_of_its_page_is_valid(tmp_path):
    page = (Path(__file__).parents[3] / "docs" / "howto" / "computes.md").read_text()
    (block,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    compute: Any = load_compute(write(tmp_path, block))
    assert compute.max_instances == 16


AKS = """
name: aks
type: kubernetes
namespace: training
properties:
  namespace: other
  vcName: v
  defaultInstanceType: gpu
  instanceTypes:
    gpu:
      nodeSelector: {pool: gpu}
      resources:
        requests: {cpu: "3500m", memory: 16Gi}
        limits: {cpu: "8", memory: 32Gi, nvidia.com/gpu: 2}
    small: {}
"""


def test_azures_properties_of_a_kubernetes_compute(tmp_path):
    (tmp_path / "aks.yml").write_text(AKS)
    compute: Any = load_compute(tmp_path / "aks.yml")
    assert (compute.namespace, compute.node_selector) == ("training", {"pool": "gpu"})
    got = (compute.cores_per_node, compute.memory_per_node, compute.gpus_per_node, compute.gpu_resource)
    assert got == (4, "16384M", 2, None)
    assert compute._warnings == [
        "properties.instanceTypes.small: not used; jobs get the default one",
        "properties.vcName: not used",
    ]
    changed: Any = load_compute(
        tmp_path / "aks.yml", params_override=[{"properties": {"instance_types": {}}}]
    )
    assert changed.gpus_per_node is None
    assert changed._warnings[0] == "properties.instance_types: not used"


def test_an_identity_of_a_kubernetes_compute_is_told_as_not_used(tmp_path):
    (tmp_path / "aks.yml").write_text("name: aks\ntype: kubernetes\nidentity: {type: system_assigned}\n")
    compute: Any = load_compute(tmp_path / "aks.yml")
    assert compute._warnings == ["identity: not used; pods have no identity of Azure's"]
    (tmp_path / "aks.yml").write_text("name: aks\ntype: kubernetes\nidentity: {kind: system_assigned}\n")
    with pytest.raises(SpecError, match="kind"):
        load_compute(tmp_path / "aks.yml")


def test_the_python_of_pods_may_have_a_blank_in_its_path(tmp_path):
    for python in ("python3.12", "/opt/our tools/bin/python"):
        (tmp_path / "k.yml").write_text(f"name: k\ntype: kubernetes\npython: {python}\n")
        compute: Any = load_compute(tmp_path / "k.yml")
        assert compute.python == python
    # Kubernetes fills in $(NAME) in the command of a container.
    for python in ("our python", "bin/python", "/opt/$(HOME)/python"):
        (tmp_path / "k.yml").write_text(f"name: k\ntype: kubernetes\npython: {python}\n")
        with pytest.raises(SpecError, match="a program's name or absolute path"):
            load_compute(tmp_path / "k.yml")
