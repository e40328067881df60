"""Scripts of v1, with nothing but their import lines changed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from fake_slurm import FakeSlurm

from drumline.control.machine import computes
from drumline.exceptions import ResourceNotFoundError, UsageError, ValidationException
from drumline.v1 import (
    ActivityFailedException,
    AmlCompute,
    ComputeTarget,
    ComputeTargetException,
    Data,
    DataLocation,
    Dataset,
    Environment,
    Experiment,
    Gloo,
    Model,
    OutputFileDatasetConfig,
    PyTorch,
    PyTorchConfiguration,
    Run,
    ScriptRunConfig,
    ServicePrincipalAuthentication,
    Workspace,
)

SCRIPT = """
from drumline.v1 import (
    AmlCompute, ComputeTarget, ComputeTargetException, Environment, Experiment, MpiConfiguration, PyTorchConfiguration,
    ScriptRunConfig, Workspace,
)

ws = Workspace.from_config()
cluster_name = "gpu-cluster"
try:
    cluster = ComputeTarget(workspace=ws, name=cluster_name)
    print("Found existing compute target")
except ComputeTargetException:
    print("Creating a new compute target...")
    config = AmlCompute.provisioning_configuration(
        vm_size="STANDARD_NC24s_V3",
        vm_priority="lowpriority",
        min_nodes=0,
        max_nodes=4,
        idle_seconds_before_scaledown=300,
    )
    cluster = ComputeTarget.create(ws, cluster_name, config)
    cluster.wait_for_completion(show_output=True, min_node_count=0, timeout_in_minutes=30)

env = Environment.from_conda_specification("lightning", "conda.yml")
env.docker.enabled = True
env.docker.base_image = "mcr.microsoft.com/azureml/openmpi4.1.0-cuda11.1-cudnn8-ubuntu18.04"
src = ScriptRunConfig(
    source_directory="src",
    script="train.py",
    arguments=["--max_epochs", 2, "--num_nodes", 2],
    compute_target=cluster,
    environment=env,
    distributed_job_config=DISTRIBUTION,
)
run = Experiment(ws, "lightning").submit(src, tags={"who": "me"})
run.wait_for_completion(show_output=True)
print(run.get_status(), sorted(run.get_metrics().items()))
"""

TRAIN = """
import os, sys
from drumline.v1 import Run

run = Run.get_context()
rank = int(os.environ.get("RANK") or os.environ["OMPI_COMM_WORLD_RANK"])
size = int(os.environ.get("WORLD_SIZE") or os.environ["OMPI_COMM_WORLD_SIZE"])
print("rank", rank, "of", size, sys.argv[1:], run.experiment.name)
if rank == 0:
    run.log("loss", 0.5)
    run.log("loss", 0.25)
    run.log("nodes", 2)
    run.upload_file("model.pt", sys.argv[0])
"""


@pytest.fixture
def path_without_slurm(tmp_path):
    """Slurm's commands as on a machine that has no slurm.conf, whatever this one has."""
    fake = FakeSlurm(tmp_path / "slurm")
    fake.says("scontrol", err="scontrol: fatal: Could not establish a configuration source\n", rc=1)
    return f"{fake.bin}{os.pathsep}{os.environ['PATH']}"


@pytest.fixture
def ws():
    return Workspace.get(name="lab", subscription_id="s", resource_group="g")


@pytest.fixture
def src(tmp_path, monkeypatch):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text(TRAIN)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "src"


def two_by_two(**given):
    given.setdefault("script", "train.py")
    distribution = PyTorchConfiguration(process_count=4, node_count=2)
    return ScriptRunConfig("src", distributed_job_config=distribution, **given)


def one(command):
    return ScriptRunConfig(".", command=command)


@pytest.mark.parametrize(
    "distribution",
    [
        "PyTorchConfiguration(process_count=4, node_count=2)",
        pytest.param(
            "MpiConfiguration(node_count=2, process_count_per_node=2)",
            marks=pytest.mark.skipif(
                not shutil.which("mpirun"), reason="MPI's tests need an MPI; scripts/test installs it as root"
            ),
        ),
    ],
)
def test_a_script_makes_its_cluster_and_trains_on_two_nodes(
    src, tmp_path, drumline_home, path_without_slurm, distribution
):
    (tmp_path / "conda.yml").write_text("dependencies: [python=3.11, {pip: [lightning]}]\n")
    (tmp_path / "config.json").write_text(
        '{"subscription_id": "s", "resource_group": "g", "workspace_name": "lab"}'
    )
    (tmp_path / "submit.py").write_text(SCRIPT.replace("DISTRIBUTION", distribution))
    done = subprocess.run(
        [sys.executable, "submit.py"],
        cwd=tmp_path,
        # The packages of its conda file are large, and it imports none of them.
        env={**os.environ, "PATH": path_without_slurm, "DRUMLINE_ENVIRONMENT": "current"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Creating a new compute target...\nSucceeded\n")
    lines = [line for line in done.stdout.splitlines() if line.startswith("[")]
    assert sorted(lines) == [
        f"[{rank}|node-{rank // 2}] rank {rank} of 4 ['--max_epochs', '2', '--num_nodes', '2'] lightning"
        for rank in range(4)
    ]
    for word in ("RunId: ", "Web View: file://", "Streaming user_logs", "Execution Summary"):
        assert word in done.stdout
    assert done.stdout.endswith("Completed [('loss', [0.5, 0.25]), ('nodes', 2.0)]\n")
    assert "warning: compute 'gpu-cluster' is this machine, which has no Slurm" in done.stderr
    assert "is not attached" not in done.stderr
    assert [path.name for path in (drumline_home / "workspaces").iterdir()] == ["lab"]


def test_a_run_and_what_is_known_of_it(ws, src, tmp_path):
    experiment = Experiment(ws, "digits")
    run = experiment.submit(two_by_two(compute_target="local"), tags={"a": "1"})
    details = run.wait_for_completion()
    assert (details["runId"], details["status"], details["target"]) == (run.id, "Completed", "local")
    assert details["endTimeUtc"] >= details["startTimeUtc"]
    assert list(details["logFiles"]) == [f"user_logs/std_log_process_0{rank}.txt" for rank in range(4)]
    text = run.get_details_with_logs()["logFiles"]["user_logs/std_log_process_03.txt"]
    assert text == "rank 3 of 4 [] digits\n"
    assert run.get_portal_url() == f"file://{tmp_path}/drumline home/workspaces/lab/jobs/{run.id}"
    run.tag("b", "2")
    assert run.get_tags() == {"a": "1", "b": "2"}
    assert "outputs/model.pt" in run.get_file_names()
    run.download_file("outputs/model.pt", "here/")
    assert (tmp_path / "here" / "model.pt").read_text() == TRAIN
    with pytest.raises(ResourceNotFoundError, match="has no file 'nothing'"):
        run.download_file("nothing")
    assert [one.id for one in experiment.get_runs(tags={"a": "1"})] == [run.id]
    assert list(experiment.get_runs(tags="other")) == list(Experiment(ws, "other").get_runs()) == []
    assert list(ws.experiments) == ["digits"]
    again = Run(experiment, run.id)
    assert again.get_metrics() == ws.get_run(run.id).get_metrics() == {"loss": [0.5, 0.25], "nodes": 2.0}
    model = run.register_model("digits", "outputs/model.pt", tags={"kind": "torch"})
    assert (model.version, model.id, model.run_id) == (1, "digits:1", run.id)
    with pytest.raises(ResourceNotFoundError):
        Run(Experiment(Workspace.get("other"), "digits"), run.id)


def test_a_failed_run_raises_unless_told_not_to(ws, capfd):
    run = Experiment(ws, "e").submit(one("echo bad; exit 3"))
    with pytest.raises(ActivityFailedException, match="exit code 3"):
        run.wait_for_completion(show_output=True)
    assert "bad" in capfd.readouterr().out
    details = run.wait_for_completion(raise_on_error=False)
    assert (details["status"], run.get_status()) == ("Failed", "Failed")
    assert "exit code 3" in details["error"]["error"]["message"]


def test_a_run_can_be_canceled(ws):
    run = Experiment(ws, "e").submit(one("exec sleep 1000"))
    run.cancel()
    assert run.wait_for_completion()["status"] == "Canceled"


def test_data_goes_through_a_datastore_to_the_script_and_back(ws, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x.txt").write_text("digits")
    store = ws.get_default_datastore()
    assert (store.datastore_type, store.account_name, store.container_name) == ("local", None, None)
    store.upload("data", target_path="my digits")
    data = Dataset.File.from_files((store, "my digits/**")).register(ws, "digits")
    assert (data.version, list(ws.datasets)) == ("1", ["digits"])
    out = OutputFileDatasetConfig("copied", destination=(store, "out"))
    config = ScriptRunConfig(
        ".",
        command=["cp"],
        arguments=[Dataset.get_by_name(ws, "digits").as_named_input("d").as_mount(), "-rT", out],
    )
    Experiment(ws, "e").submit(config).wait_for_completion()
    assert store.download(tmp_path / "back", prefix="out") == 1
    assert (tmp_path / "back" / "out" / "x.txt").read_text() == "digits"


def test_models_are_registered_found_and_downloaded(ws, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.pt").write_text("weights")
    first = Model.register(ws, "model.pt", "digits", tags={"a": "1"}, model_framework=Model.Framework.PYTORCH)
    second = Model.register(workspace=ws, model_path="model.pt", model_name="digits", description="d")
    assert (first.version, second.version, first.model_framework) == (1, 2, "PyTorch")
    assert Model(ws, "digits").version == Model(ws, id="digits:2").version == ws.models["digits"].version == 2
    assert Model(ws, "digits", tags=[["a", "1"]]).version == 1
    assert [one.id for one in Model.list(ws, "digits", latest=True)] == ["digits:2"]
    assert [one.id for one in Model.list(ws)] == ["digits:2", "digits:1"]
    with pytest.raises(ResourceNotFoundError, match="no matching model 'digits', version 3"):
        Model(ws, "digits", version=3)
    second.add_tags({"b": "2"})
    assert Model(ws, "digits").tags == {"b": "2"}
    assert second.download("here") == "here/model.pt"
    with pytest.raises(UsageError, match="exist_ok"):
        second.download("here")
    second.download("here", exist_ok=True)
    # In a rank the model is that of the job's workspace.
    script = "from drumline.v1 import Model; print(open(Model.get_model_path('digits')).read())"
    run = Experiment(ws, "e").submit(ScriptRunConfig(".", command=["python", "-c", script]))
    run.wait_for_completion()
    assert run.get_details_with_logs()["logFiles"]["user_logs/std_log.txt"] == "weights\n"
    second.delete()
    assert Model(ws, "digits").version == 1
    with pytest.raises(UsageError, match="deploying models"):
        Model.deploy(ws, "service", [first])


def test_a_file_dataset_is_mounted_where_it_is_downloaded_and_listed(ws, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data" / "deep").mkdir(parents=True)
    (tmp_path / "data" / "deep" / "x.txt").write_text("digits")
    store = ws.get_default_datastore()
    store.upload("data", target_path="set")
    data = Dataset.File.from_files(path=(store, "set/"))
    assert data.to_path() == ["/deep/x.txt"]
    with data.mount() as mounted:
        assert (Path(mounted.mount_point) / "deep" / "x.txt").read_text() == "digits"
    at = data.mount(str(tmp_path / "point"))
    at.start()
    assert (tmp_path / "point" / "deep" / "x.txt").read_text() == "digits"
    at.stop()
    assert not (tmp_path / "point").exists()
    assert data.download("copy") == [str(tmp_path / "copy" / "deep" / "x.txt")]
    registered = data.register(ws, "digits")
    assert registered.to_path() == ["/deep/x.txt"]
    program = ScriptRunConfig(
        ".", command=["cat"], arguments=[registered.as_mount("/tmp/x"), data.as_mount()]
    )
    program.command = ["ls"]
    run = Experiment(ws, "e").submit(program)
    assert run.wait_for_completion()["status"] == "Completed"
    assert run.get_details_with_logs()["logFiles"]["user_logs/std_log.txt"].count("deep") == 2


def test_an_estimator_trains_on_two_nodes_and_finds_its_data(ws, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x.txt").write_text("digits")
    (tmp_path / "train.py").write_text(
        "import os, sys\nprint(os.environ['RANK'], sys.argv[1:], os.listdir(os.environ['DIGITS']))\n"
    )
    estimator = PyTorch(
        ".", entry_script="train.py", script_params={"--lr": 0.1}, node_count=2, distributed_training=Gloo()
    )
    data = Dataset.File.from_files("data").register(ws, "digits")
    estimator.run_config.data = {
        "d": Data(
            DataLocation(Dataset(dataset_id=data.id)), mechanism="mount", environment_variable_name="DIGITS"
        )
    }
    run = Experiment(ws, "e").submit(estimator)
    assert run.wait_for_completion()["status"] == "Completed"
    logs = run.get_details_with_logs()["logFiles"].values()
    assert sorted(logs) == [f"{rank} ['--lr', '0.1'] ['x.txt']\n" for rank in range(2)]


def test_environments_are_registered_and_azure_s_own_go_by_their_name(ws):
    made = Environment("mine").register(ws)
    assert (made.version, list(ws.environments)) == ("1", ["mine"])
    assert (
        Environment.get(ws, "AzureML-PyTorch-1.6-GPU").reference == "azureml:AzureML-PyTorch-1.6-GPU@latest"
    )
    lower = "azureml-pytorch-1.6-gpu"
    assert (
        Environment.get(ws, lower).reference == ws.environments[lower].reference == f"azureml:{lower}@latest"
    )
    with pytest.raises(ResourceNotFoundError):
        Environment.get(ws, "nobody-s")


def test_a_cluster_that_is_there_is_found(ws, monkeypatch, path_without_slurm):
    monkeypatch.setenv("PATH", path_without_slurm)
    with pytest.raises(ComputeTargetException, match="there is no compute 'cpu'"):
        AmlCompute(ws, "cpu")
    assert ws.compute_targets["cpu"].provisioning_state == "Succeeded"
    assert "cpu" not in ws.compute_targets
    made = ComputeTarget.create(
        ws, "cpu", AmlCompute.provisioning_configuration("STANDARD_D2_V2", max_nodes=2)
    )
    assert list(ws.compute_targets) == ["cpu"]
    assert made.get_status().serialize()["provisioningState"] == made.provisioning_state == "Succeeded"
    assert ComputeTarget(ws, "cpu").list_nodes()[0]["nodeState"] == "up"
    made.update(max_nodes=3)
    made.delete()
    assert computes.names() == []
    with pytest.raises(UsageError, match="vm_priority must be 'dedicated' or 'lowpriority'; got 'cheap'"):
        AmlCompute.provisioning_configuration(vm_priority="cheap")


def test_what_cannot_be_submitted_creates_nothing(ws, src, drumline_home):
    experiment = Experiment(ws, "e")
    with pytest.raises(ValidationException, match=r"there is no tarin.py in .*/src"):
        experiment.submit(two_by_two(script="tarin.py"))
    with pytest.raises(ValidationException, match="object cannot be submitted"):
        experiment.submit(object())
    with pytest.raises(ValidationException, match="no such file or folder"):
        experiment.submit(ScriptRunConfig("nowhere", command="true"))
    with pytest.raises(ValidationException, match="tags must be a dict"):
        experiment.submit(two_by_two(), tags=["a"])
    with pytest.raises(UsageError, match="interactive runs are not supported"):
        experiment.start_logging()
    assert list(experiment.get_runs()) == []


def test_a_configuration_is_written_and_found(ws, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"there is no config\.json"):
        Workspace.from_config()
    ws.write_config()
    (tmp_path / "deep").mkdir()
    found = Workspace.from_config(path="deep")
    assert (found.name, found.resource_group) == ("lab", "g")
    with pytest.raises(UsageError, match="cannot be a workspace's name"):
        Workspace.get("a/b")


def test_a_registered_environment_keeps_its_interpreter(ws):
    made = Environment("mine")
    made.python.user_managed_dependencies, made.python.interpreter_path = True, sys.executable
    made.environment_variables = {"A": "1"}
    assert made.register(ws).environment_variables == {"A": "1"}
    copied = Environment.get(ws, "mine").clone("other")
    assert copied.python.interpreter_path == sys.executable
    assert ws.environments["AzureML-Minimal"].reference == "azureml:AzureML-Minimal@latest"
    with pytest.raises(KeyError):
        ws.environments["nobody-s"]


def test_the_address_for_mlflow_is_that_of_the_workspace(ws, drumline_home):
    assert ws.get_mlflow_tracking_uri() == f"file://{drumline_home}/workspaces/lab/mlruns".replace(" ", "%20")


def test_who_signs_in_need_not(tmp_path):
    signed = ServicePrincipalAuthentication(
        tenant_id="t", service_principal_id="i", service_principal_password="s3"
    )
    found = Workspace("s", "g", "lab", auth=signed)
    assert (found.name, vars(signed)) == ("lab", {})


def test_the_last_who_tags_is_right(ws, src):
    (src / "train.py").write_text("from drumline.v1 import Run\nRun.get_context().tag('phase', 'trained')\n")
    run = Experiment(ws, "e").submit(ScriptRunConfig("src", "train.py"), tags={"phase": "new", "who": "me"})
    run.wait_for_completion()
    assert run.get_tags() == {"phase": "trained", "who": "me"}
    run.tag("phase", "seen")
    assert run.get_tags() == {"phase": "seen", "who": "me"}
