"""What azure-ai-ml makes besides jobs, given to the client of ours."""

import pytest

azure_ai_ml = pytest.importorskip(
    "azure.ai.ml", reason="azure-ai-ml (96 MB with its dependencies) is not installed"
)

from azure.ai.ml import entities, load_component  # noqa: E402

import drumline.entities  # noqa: E402
from drumline.exceptions import ValidationException  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def client(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "conda.yml").write_text("dependencies: [python=3.11]")
    (tmp_path / "component.yml").write_text(
        "name: greet\nversion: 2\ntype: command\ncommand: echo ${{inputs.who}}\nenvironment: azureml:e:1\n"
        "inputs: {who: {type: string}}\n"
    )
    return drumline.MLClient()


def test_an_environment(client):
    made = entities.Environment(name="torch", version="4", image="ubuntu", conda_file="conda.yml")
    returned = client.create_or_update(made)
    assert isinstance(returned, drumline.entities.Environment)
    found = client.environments.get("torch", "4")
    assert (found.image, found.conda_file) == ("ubuntu", {"dependencies": ["python=3.11"]})


def test_data_and_a_model(client, tmp_path):
    client.data.create_or_update(entities.Data(name="digits", version="1", path="./data", type="uri_folder"))
    client.models.create_or_update(entities.Model(name="net", path="./data", type="custom_model"))
    assert client.data.get("digits", label="latest").path == str(tmp_path / "data")
    assert client.models.get("net", label="latest").type == "custom_model"


def test_a_component(client):
    client.components.create_or_update(load_component("component.yml"))
    found = client.components.get("greet", "2")
    assert found.inputs["who"].type == "string"
    assert found(who="you").component is found


def test_a_datastore(client):
    made = entities.AzureBlobDatastore(name="blobs", account_name="account", container_name="container")
    client.datastores.create_or_update(made)
    assert client.datastores.get("blobs").container_name == "container"


def test_a_compute(client, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))  # A machine without Slurm.
    made = entities.AmlCompute(name="gpu", size="Standard_NC6", tier="LowPriority", max_instances=2)
    assert client.begin_create_or_update(made).result().name == "gpu"
    assert client.compute.get("gpu").type == "local"


def test_a_credential_of_azure_is_taken_and_not_used(tmp_path, monkeypatch):
    identity = pytest.importorskip("azure.identity", reason="azure-identity is not installed")
    client = drumline.MLClient(identity.DefaultAzureCredential(), "subscription", "group", "workspace")
    assert list(client.jobs.list()) == []


def test_what_has_no_counterpart_is_refused_by_its_type(client):
    for made in (
        entities.ComputeInstance(name="mine", size="S"),
        entities.KubernetesCompute(name="k", namespace="n"),
        entities.ManagedOnlineEndpoint(name="e"),
    ):
        with pytest.raises(ValidationException, match=f"{type(made).__name__} is not supported"):
            client.create_or_update(made)
