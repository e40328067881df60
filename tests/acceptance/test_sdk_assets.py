"""``MLClient.data`` and its like, in scripts shaped like those for azure-ai-ml."""

from typing import Any

import pytest

from drumline import (
    MLClient,
    Output,
    command,
    load_component,
    load_data,
    load_datastore,
    load_environment,
    load_model,
)
from drumline.constants import AssetTypes, ListViewType
from drumline.dsl import pipeline
from drumline.entities import (
    AccountKeyConfiguration,
    AzureBlobDatastore,
    CommandComponent,
    Data,
    Environment,
    LocalDatastore,
    Model,
)
from drumline.exceptions import PlanError, ResourceNotFoundError, UsageError, ValidationException


@pytest.fixture
def client():
    return MLClient(None, "subscription", "group")


@pytest.fixture(autouse=True)
def digits(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits").mkdir()
    return tmp_path / "digits"


def data(**fields):
    return Data(**{"name": "digits", "path": "digits", "type": AssetTypes.URI_FOLDER, **fields})


def test_a_script_that_registers_its_data_finds_it(client, digits):
    """As Azure's tutorials do."""
    try:
        client.data.get(name="digits", label="latest")
    except ResourceNotFoundError:
        made = client.data.create_or_update(data(description="of zip codes", version="initial"))
    assert (made.name, made.version, made.path) == ("digits", "initial", str(digits))
    assert client.data.get("digits", version="initial") == made
    assert client.data.get(name="digits", label="latest").id == "azureml:digits:initial"
    assert made.creation_context.created_by_type == "User"


def test_get_wants_a_version_or_a_label(client):
    client.data.create_or_update(data())
    with pytest.raises(UsageError, match="must provide either version or label"):
        client.data.get("digits")
    with pytest.raises(UsageError, match="exclude each other"):
        client.data.get("digits", "1", "latest")
    with pytest.raises(ResourceNotFoundError):
        client.data.get("digits", "2")


def test_lists(client):
    for _ in range(2):
        client.create_or_update(data())
    client.create_or_update(data(name="letters"))
    assert [(one.name, one.latest_version) for one in client.data.list()] == [
        ("digits", "2"),
        ("letters", "1"),
    ]
    assert [one.version for one in client.data.list(name="digits")] == ["2", "1"]
    client.data.archive("digits", version="2")
    assert [one.version for one in client.data.list("digits")] == ["1"]
    assert [one.version for one in client.data.list("digits", list_view_type=ListViewType.ARCHIVED_ONLY)] == [
        "2"
    ]
    assert len(list(client.data.list("digits", list_view_type=ListViewType.ALL))) == 2
    client.data.restore("digits", version="2")
    client.data.set_label("digits", "1", "prod")
    assert client.data.get("digits", label="prod").version == "1"


def test_environments(client, tmp_path):
    (tmp_path / "conda.yml").write_text("dependencies: [python=3.11]\n")
    made = client.environments.create_or_update(
        Environment(name="torch", image="ubuntu", conda_file="conda.yml", description="one")
    )
    assert (made.version, made.conda_file) == ("1", {"dependencies": ["python=3.11"]})
    (tmp_path / "e.yml").write_text("name: torch\npython: /opt/torch/bin/python\n")
    assert client.create_or_update(load_environment("e.yml")).version == "2"
    assert client.environments.get("torch", label="latest").python == "/opt/torch/bin/python"
    assert [one.latest_version for one in client.environments.list()] == ["2"]


def test_models(client, tmp_path, digits):
    (digits / "net.bin").write_text("weights")
    client.models.create_or_update(
        Model(name="net", path=digits, type=AssetTypes.CUSTOM_MODEL, stage="Staging")
    )
    (tmp_path / "m.yml").write_text("name: net\npath: ./digits/net.bin\n")
    client.create_or_update(load_model("m.yml"))
    assert [one.version for one in client.models.list("net", stage="Staging")] == ["1"]
    client.models.download("net", version="2", download_path=tmp_path / "out")
    assert (tmp_path / "out" / "net" / "net.bin").read_text() == "weights"


def test_components(client, tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text("")
    (tmp_path / "c.yml").write_text(
        "name: train\ncommand: python train.py\ncode: src\nenvironment: azureml:e:1\n"
    )
    made = client.components.create_or_update(load_component("c.yml"), version="0.1")
    assert (made.version, client.components.get("train", "0.1")) == ("0.1", made)
    assert client.components.validate(made).passed
    bad = CommandComponent(name="Train", command="true")
    assert list(client.components.validate(bad).error_messages) == ["name"]
    with pytest.raises(ValidationException):
        client.components.validate(bad, raise_on_failure=True)
    client.components.download("train", tmp_path / "out", version="0.1")
    assert (tmp_path / "out" / "train" / "component.yml").exists()
    node = made()
    assert node.component.name == "train"


def test_datastores(client, tmp_path):
    assert client.datastores.get_default().name == "workspaceblobstore"
    blob = AzureBlobDatastore(
        name="blob",
        account_name="a",
        container_name="c",
        credentials=AccountKeyConfiguration(account_key="hush"),
    )
    client.create_or_update(blob)
    assert client.datastores.get("blob").credentials.type == "none"
    assert client.datastores.get("blob", include_secrets=True).credentials.account_key == "hush"
    (tmp_path / "d.yml").write_text("name: blob\ntype: local\npath: ./digits\n")
    client.datastores.create_or_update(load_datastore("d.yml"))
    assert client.datastores.get("blob") == LocalDatastore(name="blob", path=str(tmp_path / "digits"))
    client.datastores.delete("blob")
    assert "blob" not in [one.name for one in client.datastores.list()]


def test_what_is_no_asset_of_a_group_is_refused(client):
    with pytest.raises(ValidationException, match="expected Data, got"):
        client.data.create_or_update(Model(name="m", path="digits"))
    with pytest.raises(ValidationException):
        client.datastores.create_or_update(data())
    with pytest.raises(PlanError, match="no such file"):
        client.data.create_or_update(data(path="no"))
    with pytest.raises(ValidationException, match="not supported"):
        client.create_or_update({"name": "digits"})


@pytest.mark.parametrize(
    "use",
    [
        lambda client: client.data.mount("azureml:digits:1"),
        lambda client: client.data.import_data(None),
        lambda client: client.data.share("digits", "1", share_with_name="d"),
        lambda client: client.models.package("net", "1", None),
        lambda client: client.components.prepare_for_sign(None),
        lambda client: client.datastores.mount("workspaceblobstore"),
    ],
)
def test_what_has_no_meaning_here_says_why(client, use):
    with pytest.raises(UsageError) as error:
        use(client)
    assert error.value.hint


def test_what_was_not_used_is_told(client, tmp_path, capsys):
    (tmp_path / "d.yml").write_text("name: digits\npath: ./digits\ndatastore: workspaceblobstore\n")
    client.data.create_or_update(load_data("d.yml"))
    assert "warning: datastore: not used" in capsys.readouterr().err


def test_a_workspace_has_its_own(client):
    other = MLClient(None, "subscription", "group", "team")
    other.data.create_or_update(data())
    assert list(client.data.list()) == []
    assert [one.name for one in other.data.list()] == ["digits"]
    client.data.create_or_update(data(name="shared"))
    assert other.data.get("shared", label="latest").version == "1"


def test_a_datastore_that_was_fetched_and_changed_keeps_its_secret(client):
    secret = AccountKeyConfiguration(account_key="hush")
    blob = AzureBlobDatastore(name="b", account_name="a", container_name="c", credentials=secret)
    fetched = client.datastores.create_or_update(blob)
    fetched.description = "changed"
    client.datastores.create_or_update(fetched)
    again = client.datastores.get("b", include_secrets=True)
    assert (again.description, again.credentials.account_key) == ("changed", "hush")
    again.credentials = None
    client.datastores.create_or_update(again)
    assert client.datastores.get("b", include_secrets=True).credentials is None


def test_a_pipeline_function_and_a_command_are_registered_and_used(tmp_path):
    echo = command(name="echo", command="echo ${{inputs.word}} > ${{outputs.o}}", inputs={"word": "w"})
    echo.outputs["o"] = Output(type="uri_file")
    ml_client = MLClient()
    made = ml_client.create_or_update(echo.component)
    assert (made.name, made.version) == ("echo", "1")

    @pipeline
    def twice(word: str):
        once = made(word=word)
        shown = command(command="cat ${{inputs.o}}", inputs={"o": once.outputs.o})
        shown.name = "shown"

    registered = ml_client.components.create_or_update(twice)
    assert (registered.name, registered.version) == ("twice", "1")

    @pipeline
    def outer():
        inner = ml_client.components.get("twice", version="1")(word="hi")
        inner.name = "inner"

    job = ml_client.jobs.create_or_update(outer())
    ml_client.jobs.stream(job.name)
    got: Any = ml_client.jobs.get(job.name)
    assert [step["status"] for step in got.steps] == ["Completed"]
