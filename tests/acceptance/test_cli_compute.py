"""``drumline compute``: names for the machines that jobs run on."""

import json
import os

import pytest
from cli_jobs import background, write_job
from fake_slurm import FakeSlurm
from waiting import wait_until

CLUSTER = """
name: gpu-cluster
type: slurm
partition: gpu
max_instances: 4
"""
AZURE = """
$schema: https://azuremlschemas.azureedge.net/latest/amlCompute.schema.json
name: cpu-cluster
type: amlcompute
size: STANDARD_DS3_v2
min_instances: 0
max_instances: 2
idle_time_before_scale_down: 120
"""

THIS_MACHINE = {
    "name": "local",
    "type": "local",
    "description": "this machine",
    "id": "azureml:local",
    "provisioning_state": "Succeeded",
}


@pytest.fixture
def compute(cli):
    """`drumline compute` with the words of a line; what it prints is read as JSON."""

    def run(line, rc=0):
        done = cli("compute", *line.split(" "))
        assert done.rc == rc, done.err
        return json.loads(done.out) if done.out else done.err

    return run


def test_a_slurm_compute_from_a_file_with_flags_over_it(compute, tmp_path):
    (tmp_path / "c.yml").write_text(CLUSTER)
    line = "attach -f c.yml --set max_instances=8 --partition long --sbatch-option=--constraint=a100"
    shown = compute(line + " --sbatch-option=--exclusive --requeue --tags team=vision --no-check --no-wait")
    assert shown == {
        "name": "gpu-cluster",
        "type": "slurm",
        "tags": {"team": "vision"},
        "partition": "long",
        "sbatch_options": ["--constraint=a100", "--exclusive"],
        "max_instances": 8,
        "requeue": True,
        "id": "azureml:gpu-cluster",
        "provisioning_state": "Succeeded",
    }
    assert compute("list") == [THIS_MACHINE, shown]


def test_a_slurm_compute_from_flags_alone(compute):
    line = "create -n gpu --type slurm --gpus-per-node 8 --size a100 --time-limit 1-00:00:00 --no-requeue"
    shown = compute(line + " --no-check")
    assert (shown["gpus_per_node"], shown["instance_types"], shown["requeue"]) == (8, {"a100": {}}, False)


def test_azures_file_is_a_slurm_compute_and_says_what_is_not_used(cli, tmp_path):
    (tmp_path / "c.yml").write_text(AZURE)
    done = cli(
        "compute", "create", "-g", "group", "-w", "space", "-f", "c.yml", "--partition", "cpu", "--no-check"
    )
    shown = json.loads(done.out)
    assert (shown["type"], shown["partition"], shown["max_instances"]) == ("slurm", "cpu", 2)
    assert shown["instance_types"] == {"STANDARD_DS3_v2": {}}
    assert "warning: min_instances: not used; Slurm keeps the nodes" in done.err
    assert "warning: idle_time_before_scale_down: not used" in done.err


def test_azures_flags_make_one_too(cli):
    line = "compute create -n cpu --type AmlCompute --min-instances 0 --max-instances 3 --size X -d 60 --no-check"
    done = cli(*line.split(" "))
    assert json.loads(done.out)["max_instances"] == 3
    assert "warning: min_instances: not used" in done.err


def test_azures_file_can_be_this_machine(compute, tmp_path):
    (tmp_path / "c.yml").write_text(AZURE)
    shown = compute("attach -f c.yml --type local")
    assert (shown["name"], shown["type"]) == ("cpu-cluster", "local")
    assert compute("show cpu-cluster")["local"]["cores"] >= 1
    (node,) = compute("list-nodes -n cpu-cluster")
    assert node["state"] == "up"


def test_what_show_prints_can_be_attached(cli, tmp_path):
    cli("compute", "attach", "-t", "local", "-n", "here")
    (tmp_path / "c.yml").write_text(cli("compute", "show", "here", "-o", "yaml").out)
    assert cli("compute", "attach", "-f", "c.yml").rc == 0


def test_update_detach_and_delete(compute):
    compute("attach -n gpu -t slurm --qos low --no-check")
    shown = compute("update gpu --set max_instances=2 priorities.high.qos=urgent --remove qos --no-check")
    assert (shown["max_instances"], shown["priorities"], "qos" in shown) == (
        2,
        {"high": {"qos": "urgent"}},
        False,
    )
    compute("attach -n cpu -t local")
    assert [one["name"] for one in compute("list --type local")] == ["local", "cpu"]
    compute("detach gpu")
    compute("delete -n cpu -y")
    assert compute("list") == [THIS_MACHINE]


def test_this_machine_is_a_compute_that_nobody_attaches(compute):
    assert compute("list") == [THIS_MACHINE]
    shown = compute("show -n local")
    assert {**shown, **THIS_MACHINE} == shown
    assert shown["local"]["cores"] > 0
    assert "'local' is this machine" in compute("detach local", rc=2)
    assert "'local' is this machine" in compute("update local --set description=x", rc=2)


def test_lists_are_tables(cli):
    cli("compute", "attach", "-t", "local", "-n", "here")
    heading, this_machine, row = cli("compute", "list", "-o", "table").out.splitlines()
    assert heading.split() == ["NAME", "TYPE", "PARTITION", "MAX_INSTANCES", "DESCRIPTION"]
    assert this_machine.split()[:2] == ["local", "local"]
    assert row.split()[:2] == ["here", "local"]
    assert cli("compute", "list-nodes", "here", "-o", "table").out.startswith("NODE")


@pytest.mark.parametrize(
    ("line", "rc", "said"),
    [
        ("attach", 2, "hint: drumline compute attach --type slurm --name gpu-cluster --partition gpu"),
        ("attach -t slurm", 2, "a compute's name is missing"),
        ("attach -t synapsespark -n a", 2, "computes of type 'synapsespark' are not supported"),
        ("attach -t local -n local", 2, "is this machine, without being attached"),
        ("attach -t local -n ../x", 2, "letters, digits"),
        ("attach -t local -n a --partition gpu", 2, "unknown key 'partition' in a local compute"),
        ("attach -f wrong.yml", 2, "wrong.yml:3:12: partition must be one word"),
        ("attach -f nothing.yml", 2, "no such file"),
        ("attach -f good.yml --type local", 2, "good.yml is of type slurm"),
        ("attach -t slurm -n a --max-instances 0 --no-check", 2, "1 or more"),
        ("attach -t slurm -n a --tags x --no-check", 2, "NAME=VALUE"),
        ("attach -t slurm -n a --dry-run", 2, "a slurm compute needs none"),
        ("show nobody", 3, "there is no compute 'nobody'"),
        ("list-nodes nobody", 3, "there is no compute 'nobody'"),
        ("update nobody --set qos=x", 3, "there is no compute 'nobody'"),
        ("update nobody", 2, "nothing to change"),
        ("detach nobody", 3, "there is no compute 'nobody'"),
    ],
)
def test_what_cannot_be_is_told(cli, tmp_path, line, rc, said):
    (tmp_path / "wrong.yml").write_text("name: a\ntype: slurm\npartition: a b\n")
    (tmp_path / "good.yml").write_text(CLUSTER)
    done = cli("compute", *line.split(" "))
    assert (done.rc, done.out) == (rc, "")
    assert said in done.err
    assert "Traceback" not in done.err


def test_the_image_of_a_cluster_is_changed_by_its_flag(cli):
    assert cli("compute", "attach", "-t", "kubernetes", "-n", "k8s", "--image", "x", "--no-check").rc == 0
    done = cli("compute", "update", "k8s", "--image", "train:2", "--no-check")
    assert (done.rc, done.err, json.loads(done.out)["image"]) == (0, "", "train:2")


def test_inputs_on_a_volume_of_the_pods_are_not_looked_for_here(cli, tmp_path):
    words = ["--no-check", "-t", "kubernetes", "-n", "k8s", "--set", "image=x"]
    volumes = 'volumes=[{"claim": "data", "path": "/volume"}]'
    assert cli("compute", "attach", *words, volumes).rc == 0
    fields = {"compute": "azureml:k8s", "code": "src"}
    (tmp_path / "src").mkdir()
    for path, said in (("/volume/digits", ""), ("/volumes", "there is no /volumes")):
        inputs = {"data": {"type": "uri_folder", "path": path}}
        job = write_job(tmp_path, "ls ${{inputs.data}}", inputs=inputs, **fields)
        done = cli("plan", "-f", job)
        assert (done.rc, said in done.err) == (2 if said else 0, True), done.err


def test_the_rights_that_jobs_need_are_printed_and_nothing_is_attached(cli):
    done = cli("compute", "attach", "-t", "kubernetes", "-n", "k8s", "--namespace", "team", "--dry-run")
    assert done.rc == 0, done.err
    assert "kind: RoleBinding" in done.out
    assert "namespace: team" in done.out
    assert json.loads(cli("compute", "list").out) == [THIS_MACHINE]


def test_a_cluster_that_cannot_be_reached_is_not_attached(cli, tmp_path):
    done = cli("compute", "attach", "-t", "slurm", "-n", "gpu", env={"PATH": str(tmp_path)})
    assert (done.rc, done.out) == (2, "")
    assert "compute 'gpu'" in done.err
    assert "drumline compute attach --type local --name gpu" in done.err
    assert json.loads(cli("compute", "list").out) == [THIS_MACHINE]


def test_one_that_does_not_answer_is_shown_with_the_reason(cli, tmp_path):
    cli("compute", "attach", "-t", "slurm", "-n", "gpu", "--no-check")
    done = cli("compute", "show", "gpu", env={"PATH": str(tmp_path)})
    assert done.rc == 0
    assert json.loads(done.out)["reason"]


@pytest.mark.parametrize("silence", ["hangs", "silent"])
def test_two_signals_end_a_run_whose_controller_is_silent(
    compute, tmp_path, drumline_home, monkeypatch, silence
):
    """It asked the controller in its signal handler, and followed the job for ever."""
    slurm = FakeSlurm(tmp_path / "slurm")
    slurm.says("sbatch", "7\n")
    for program in ("squeue", "scontrol", "scancel", "sacct"):
        getattr(slurm, silence)(program)
    monkeypatch.setenv("PATH", f"{slurm.bin}{os.pathsep}{os.environ['PATH']}")
    compute("attach --type slurm --name cluster --no-check")
    engine = drumline_home / "jobs" / "job" / "engine.json"
    with background("run", "--compute", "cluster", "--name", "job", "--", "true", cwd=tmp_path) as command:
        wait_until(engine.exists, 20, "the job to be with Slurm")
        wait_until(lambda: slurm.calls("squeue"), 20, "the command to follow it")
        command.process.terminate()
        command.wait_for_error("stopping the job; press Ctrl-C again to kill it")
        command.process.terminate()
        assert command.end() == 130
        assert "job job was canceled and has not ended yet; see drumline job show -n job" in command.err
    assert json.loads((drumline_home / "jobs" / "job" / "cancel").read_text())["at_once"] is True
