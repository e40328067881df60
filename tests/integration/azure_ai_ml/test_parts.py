"""Every part of a job: azure-ai-ml's, made ours, is what ours is with the same arguments."""

import pytest

azure_ai_ml = pytest.importorskip(
    "azure.ai.ml", reason="azure-ai-ml (96 MB with its dependencies) is not installed"
)

from importlib import import_module  # noqa: E402 - after what they need

from azure.ai.ml import entities, sweep  # noqa: E402

from drumline.spec.entity import Entity  # noqa: E402
from drumline.spec.foreign_parts import _HOMES, ours  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

BETWEEN = {"min_value": 0.5, "max_value": 2}
BELL = {"mu": 0, "sigma": 2}
TIMES = {"delay_evaluation": 2, "evaluation_interval": 3}
ACCOUNT = {"name": "d", "account_name": "a", "tags": {"t": "1"}, "description": "text"}
SERVICE = {"nodes": "all", "port": 8080}
APPLICATION = {
    "tenant_id": "t",
    "client_id": "c",
    "resource_url": "r",
    "authority_url": "https://a.example.org",
}
GIVEN = {
    "AccountKeyConfiguration": {"account_key": "k"},
    "AmlCompute": {
        "name": "cpu", "size": "S", "tier": "LowPriority", "min_instances": 1, "max_instances": 3,
        "idle_time_before_scale_down": 60, "description": "text", "tags": {"a": "1"}, "location": "here",
    },
    "AmlTokenConfiguration": {},
    "AzureBlobDatastore": {**ACCOUNT, "container_name": "c", "endpoint": "e", "protocol": "http"},
    "AzureDataLakeGen1Datastore": {"name": "d", "store_name": "s"},
    "AzureDataLakeGen2Datastore": {**ACCOUNT, "filesystem": "f", "endpoint": "e"},
    "AzureFileDatastore": {**ACCOUNT, "file_share_name": "f"},
    "BanditPolicy": {**TIMES, "slack_factor": 0.5},
    "BayesianSamplingAlgorithm": {},
    "BuildContext": {"path": "docker", "dockerfile_path": "Dockerfile.gpu"},
    "CertificateConfiguration": {**APPLICATION, "certificate": "c", "thumbprint": "t"},
    "Choice": {"values": [1, "a", 0.5]},
    "CommandJobLimits": {"timeout": 60},
    "Environment": {
        "name": "e", "version": "2", "image": "i", "description": "text", "tags": {"a": "1"},
        "conda_file": {"dependencies": ["python=3.11"]},
    },
    "GridSamplingAlgorithm": {},
    "Input": {"type": "uri_file", "path": "a.csv", "mode": "download", "path_on_compute": "/in", "datastore": "d"},
    "JobResourceConfiguration": {
        "instance_count": 3, "instance_type": "S", "properties": {"a": 1}, "docker_args": ["--ipc=host"],
        "shm_size": "3g", "locations": ["x"], "max_instance_count": 8,
    },
    "JobService": {**SERVICE, "type": "tensor_board", "properties": {"logDir": "l"}},
    "JupyterLabJobService": SERVICE,
    "LogNormal": BELL,
    "LogUniform": BETWEEN,
    "ManagedIdentityConfiguration": {"client_id": "c", "object_id": "o", "resource_id": "r"},
    "MedianStoppingPolicy": TIMES,
    "MpiDistribution": {"process_count_per_instance": 2},
    "NoneCredentialConfiguration": {},
    "Normal": BELL,
    "Objective": {"goal": "maximize", "primary_metric": "accuracy"},
    "OneLakeDatastore": {"name": "d", "one_lake_workspace_name": "w", "endpoint": "e"},
    "Output": {"type": "uri_file", "path": "p", "mode": "upload", "name": "n", "version": "3", "description": "text"},
    "PipelineJobSettings": {
        "default_compute": "cpu", "default_datastore": "d", "continue_on_step_failure": True, "force_rerun": True,
        "custom": 1,
    },
    "PyTorchDistribution": {"process_count_per_instance": 4},
    "QLogNormal": {**BELL, "q": 1},
    "QLogUniform": {**BETWEEN, "q": 1},
    "QNormal": {**BELL, "q": 1},
    "QUniform": {**BETWEEN, "q": 1},
    "QueueSettings": {"job_tier": "Spot", "priority": "high"},
    "Randint": {"upper": 4},
    "RandomSamplingAlgorithm": {"rule": "sobol", "seed": 3, "logbase": 2},
    "RayDistribution": {
        "port": 1, "address": "a", "include_dashboard": True, "dashboard_port": 2, "head_node_additional_args": "x",
        "worker_node_additional_args": "y",
    },
    "ResourceConfiguration": {"instance_count": 2, "instance_type": "S", "properties": {"a": 1}},
    "SasTokenConfiguration": {"sas_token": "s"},
    "ServicePrincipalConfiguration": {**APPLICATION, "client_secret": "s"},
    "SshJobService": {**SERVICE, "ssh_public_keys": "key"},
    "SweepJobLimits": {
        "max_total_trials": 4, "max_concurrent_trials": 2, "timeout": 600, "trial_timeout": 120,
    },
    "TensorBoardJobService": {**SERVICE, "log_dir": "logs"},
    "TensorFlowDistribution": {"parameter_server_count": 1, "worker_count": 2},
    "TruncationSelectionPolicy": {**TIMES, "truncation_percentage": 20},
    "Uniform": BETWEEN,
    "UserIdentityConfiguration": {},
    "VsCodeJobService": SERVICE,
}  # fmt: skip
FILES = {"Data": {"type": "uri_folder"}, "Model": {"type": "custom_model"}}


def theirs_of(name):
    return next(getattr(home, name) for home in (azure_ai_ml, entities, sweep) if hasattr(home, name))


def ours_of(name):
    return getattr(import_module(_HOMES[name]), name)


def shown(entity):
    return {
        name: shown(item) if isinstance(item, Entity) else item for name, item in entity._values().items()
    }


@pytest.mark.parametrize("name", sorted(GIVEN))
def test_a_part_keeps_all_that_it_was_given(name):
    given = GIVEN[name]
    artifact = entities.OneLakeArtifact(name="a", type="lake_house")
    theirs = theirs_of(name)(**given, **({"artifact": artifact} if name == "OneLakeDatastore" else {}))
    mine = {"artifact": {"type": "lake_house", "name": "a"}} if name == "OneLakeDatastore" else {}
    if name.endswith("Datastore"):
        mine["credentials"] = entities.NoneCredentialConfiguration()  # What theirs has when it is given none.
    assert type(ours(theirs)) is ours_of(name)
    assert shown(ours(theirs)) == shown(ours_of(name)(**given, **mine))


@pytest.mark.parametrize("name", sorted(FILES))
def test_an_asset_keeps_its_path_in_full(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = {
        "name": "n",
        "version": "1",
        "path": "./data",
        "description": "text",
        "tags": {"a": "1"},
        **FILES[name],
    }
    made = ours(theirs_of(name)(**given))
    assert shown(made) == {**shown(ours_of(name)(**given)), "path": str(tmp_path / "data")}


def test_every_part_is_among_them():
    assert sorted(_HOMES) == sorted({*GIVEN, *FILES})


def test_credentials_of_a_datastore_come_along():
    key = entities.AccountKeyConfiguration(account_key="secret")
    made = ours(entities.AzureBlobDatastore(name="d", account_name="a", container_name="c", credentials=key))
    assert made.credentials.account_key == "secret"


def test_an_environment_has_its_files_relative_to_where_it_was_made(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docker").mkdir()
    (tmp_path / "docker" / "Dockerfile").touch()
    made = ours(entities.Environment(build=entities.BuildContext(path="./docker")))
    monkeypatch.chdir("/")
    assert (made.base_path, made.build.path, made.name) == (str(tmp_path), "./docker", None)
