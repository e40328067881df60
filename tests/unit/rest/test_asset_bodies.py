"""Bodies of assets, datastores, computes and workspaces, as their files; and as Microsoft's client reads them."""

from typing import Any

import pytest

from drumline.contract.errors import SpecError
from drumline.control.machine import computes
from drumline.rest import asset_bodies
from drumline.spec.kinds.values import Report
from drumline.spec.parts import environment
from drumline.spec.reading.files import wrap_file
from drumline.spec.registered import assets, compute, datastores, workspace

WORKSPACE = "/subscriptions/s/resourceGroups/r/providers/Microsoft.MachineLearningServices/workspaces/w"
MADE = {"created_at": "2026-11-29T00:04:47.853Z", "created_by": "ada", "created_by_type": "User"}
COMMON = {"tags": {"someTag": "1"}, "description": "words"}
SENT = {"isAnonymous": False, "isArchived": False, "properties": {}, **COMMON}
COMPONENT = {
    "type": "command",
    "name": "azureml_anonymous",
    "version": "1",
    "_source": "YAML.COMPONENT",
    "command": "echo ${{inputs.n}}",
    "code": f"azureml:{WORKSPACE}/codes/0f/versions/1",
    "environment": f"azureml:{WORKSPACE}/environments/e/versions/1",
    "inputs": {"n": {"type": "integer", "default": "3"}, "d": {"type": "uri_folder", "mode": "ro_mount"}},
    "outputs": {"o": {"type": "uri_folder"}},
    "distribution": {"type": "pytorch", "process_count_per_instance": 2},
}
PIPELINE = {
    "type": "pipeline",
    "inputs": {"n": {"type": "integer"}},
    "jobs": {
        "a": {
            "name": "a",
            "type": "command",
            "componentId": f"{WORKSPACE}/components/greet/versions/2",
            "inputs": {"n": {"job_input_type": "literal", "value": "${{parent.inputs.n}}"}},
            "outputs": {},
        }
    },
    "sourceJobId": None,
}
VERSIONS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "data": (
        "data",
        {**SENT, "dataType": "uri_file", "dataUri": "azureml://datastores/blob/paths/x"},
        {**COMMON, "properties": {}, "type": "uri_file", "path": "azureml://datastores/blob/paths/x"},
    ),
    "a model": (
        "model",
        {
            **SENT,
            "modelType": "mlflow_model",
            "modelUri": "azureml://jobs/j/outputs/o",
            "flavors": {"python_function": {"data": {"loaderModule": "x"}}},
            "stage": "Production",
        },
        {
            **COMMON,
            "properties": {},
            "type": "mlflow_model",
            "path": "azureml://jobs/j/outputs/o",
            "flavors": {"python_function": {"loaderModule": "x"}},
            "stage": "Production",
        },
    ),
    "an environment": (
        "environment",
        {
            **SENT,
            "image": "ubuntu",
            "condaFile": "dependencies:\n- python=3.11\n- pip:\n  - numpy\n",
            "osType": "Linux",
        },
        {
            **COMMON,
            "properties": {},
            "image": "ubuntu",
            "conda_file": {"dependencies": ["python=3.11", {"pip": ["numpy"]}]},
            "os_type": "Linux",
        },
    ),
    "a component": (
        "component",
        {"componentSpec": COMPONENT},
        {
            **{key: value for key, value in COMPONENT.items() if key != "_source"},
            "code": "/",
            "environment": "azureml:e:1",
        },
    ),
    "a pipeline": (
        "component",
        {"componentSpec": PIPELINE},
        {
            "type": "pipeline",
            "inputs": {"n": {"type": "integer"}},
            "jobs": {
                "a": {
                    "type": "command",
                    "component": "azureml:greet:2",
                    "inputs": {"n": "${{parent.inputs.n}}"},
                    "outputs": {},
                }
            },
        },
    ),
}


def find_code(name, version):
    return {("0f", "1"): "/", ("component.n", "2"): "/"}[name, version]


@pytest.mark.parametrize("case", VERSIONS)
def test_a_version_becomes_a_file_and_comes_back(case):
    kind, sent, expected = VERSIONS[case]
    values = asset_bodies.read_asset(kind, "n", "2", {"properties": sent}, find_code)
    assert values == {**expected, "name": "n", "version": "2"}
    body = asset_bodies.write_asset(kind, {**values, "creation_context": MADE}, WORKSPACE)
    assert body["id"] == f"{WORKSPACE}/{asset_bodies.COLLECTIONS[kind]}/n/versions/2"
    assert body["systemData"]["createdBy"] == "ada"
    again = asset_bodies.read_asset(kind, "n", "2", body, find_code)
    assert again == values


def test_the_client_reads_partition_keys_as_text():
    described = {"name": "n", "version": "2", "type": "parallel", "partition_keys": ["a", "b"]}
    body = asset_bodies.write_asset("component", {**described, "creation_context": MADE}, WORKSPACE)
    assert body["properties"]["componentSpec"]["partition_keys"] == '["a", "b"]'
    assert asset_bodies.read_asset("component", "n", "2", body, find_code)["partition_keys"] == ["a", "b"]


def test_files_of_assets_are_what_the_tables_take():
    files = {
        case: asset_bodies.read_asset(kind, "n", "2", {"properties": sent}, find_code)
        for case, (kind, sent, _) in VERSIONS.items()
    }
    assert assets.from_tree("data", wrap_file(files["data"]), Report("/")).type == "uri_file"
    assert assets.from_tree("model", wrap_file(files["a model"]), Report("/")).tags == {"someTag": "1"}
    assert environment.from_tree(wrap_file(files["an environment"]), Report("/")).image == "ubuntu"


def test_a_version_has_what_the_client_cannot_do_without():
    body = asset_bodies.write_asset("model", {"name": "m", "version": "1", "type": "custom_model"}, WORKSPACE)
    properties = body["properties"]
    assert (properties["flavors"], properties["tags"], properties["properties"]) == ({}, {}, {})


def test_a_container_knows_the_versions():
    body = asset_bodies.write_container(
        "data", {"name": "d", "version": "3", "creation_context": MADE}, WORKSPACE, "4"
    )
    assert body["id"] == f"{WORKSPACE}/data/d"
    assert body["type"] == "Microsoft.MachineLearningServices/workspaces/data"
    assert body["properties"] == {
        "dataType": "uri_folder",
        "latestVersion": "3",
        "nextVersion": "4",
        "isArchived": False,
        "tags": {},
        "properties": {},
    }


@pytest.mark.parametrize(
    ("kind", "sent", "expected"),
    [
        (
            "AzureBlob",
            {"credentialsType": "AccountKey", "secrets": {"secretsType": "AccountKey", "key": "k"}},
            {"account_key": "k"},
        ),
        (
            "AzureBlob",
            {"credentialsType": "Sas", "secrets": {"secretsType": "Sas", "sasToken": "s"}},
            {"sas_token": "s"},
        ),
        ("AzureBlob", {"credentialsType": "None"}, {}),
    ],
)
def test_a_datastore_becomes_a_file_with_its_secrets_and_a_body_without(kind, sent, expected):
    properties = {
        "datastoreType": kind,
        "accountName": "a",
        "containerName": "c",
        "credentials": sent,
        "isDefault": False,
    }
    values = asset_bodies.read_datastore("d", {"properties": properties})
    assert values == {
        "name": "d",
        "type": "azure_blob",
        "account_name": "a",
        "container_name": "c",
        **({"credentials": expected} if expected else {}),
    }
    store = datastores.to_dict(datastores.from_dict(values))
    written = asset_bodies.write_datastore(store, WORKSPACE, "host:1/")["properties"]
    assert (written["accountName"], written["containerName"]) == ("a", "c")
    assert written["credentials"] == {"credentialsType": "None"}


def test_an_application_is_a_credential_too():
    credentials = {
        "credentialsType": "ServicePrincipal",
        "tenantId": "t",
        "clientId": "c",
        "secrets": {"secretsType": "ServicePrincipal", "clientSecret": "s"},
    }
    properties = {
        "datastoreType": "AzureDataLakeGen2",
        "accountName": "a",
        "filesystem": "f",
        "credentials": credentials,
    }
    store = datastores.from_dict(asset_bodies.read_datastore("d", {"properties": properties}))
    assert (store.type, store.credentials.client_secret) == ("azure_data_lake_gen2", "s")


def test_a_folder_is_a_container_of_the_account():
    described = {"name": "blobs", "type": "local", "path": "/data", "is_default": True}
    written = asset_bodies.write_datastore(described, WORKSPACE, "host:1/", "core.windows.net")["properties"]
    assert written["datastoreType"] == "AzureBlob"
    assert (written["accountName"], written["containerName"], written["isDefault"]) == (
        "host:1/",
        "blobs",
        True,
    )
    assert "path" not in written


def test_secrets_are_of_either_kind():
    assert asset_bodies.write_secrets("sv=1") == {"secretsType": "Sas", "sasToken": "sv=1"}
    assert asset_bodies.write_secrets(key="k") == {"secretsType": "AccountKey", "key": "k"}


def test_a_cluster_becomes_a_file_and_comes_back():
    inner = {
        "vmSize": "Standard_NC6",
        "vmPriority": "LowPriority",
        "scaleSettings": {"minNodeCount": 1, "maxNodeCount": 3, "nodeIdleTimeBeforeScaleDown": "PT5M"},
    }
    body = {
        "location": "here",
        "tags": {"a": "b"},
        "properties": {"computeType": "AmlCompute", "properties": inner},
    }
    values = asset_bodies.read_compute("c", body)
    again = asset_bodies.read_compute(
        "c",
        asset_bodies.write_compute(
            computes.settings(compute.from_tree(wrap_file(values), Report("/"))), WORKSPACE, "here"
        ),
    )
    assert again == values
    assert values["idle_time_before_scale_down"] == 300
    assert values["tier"] == "low_priority"


def test_this_machine_is_a_cluster_too():
    body = asset_bodies.write_compute({"name": "local", "type": "local"}, WORKSPACE)
    assert body["properties"]["computeType"] == "AmlCompute"
    assert body["properties"]["properties"]["scaleSettings"]["maxNodeCount"] == 1


def test_another_compute_is_refused():
    with pytest.raises(SpecError, match="computes of type 'Databricks' are not supported"):
        asset_bodies.read_compute("c", {"properties": {"computeType": "Databricks"}})


def test_a_workspace_becomes_a_file_and_comes_back():
    body = {
        "location": "here",
        "tags": {"a": "b"},
        "properties": {"friendlyName": "Vision", "keyVault": "/x"},
    }
    values = asset_bodies.read_workspace("w", body)
    made = workspace.from_tree(wrap_file(values), Report("/"))
    assert made._warnings == ["key_vault: not used; a workspace is a folder of this machine"]
    written = asset_bodies.write_workspace(values, WORKSPACE, "https://h/discovery", "azureml://h/mlflow")
    assert (written["id"], written["name"], written["location"]) == (WORKSPACE, "w", "here")
    assert written["properties"]["friendlyName"] == "Vision"
    assert written["properties"]["mlFlowTrackingUri"] == "azureml://h/mlflow"
