import io
import textwrap
from typing import Any

import pytest

from drumline.contract.errors import SpecError
from drumline.spec.load import load_data, load_datastore, load_environment, load_model
from drumline.spec.parts.environment import Environment
from drumline.spec.registered.assets import Data, Model
from drumline.spec.registered.datastores import (
    AzureBlobDatastore,
    CertificateConfiguration,
    LocalDatastore,
    NoneCredentialConfiguration,
    OneLakeDatastore,
    SasTokenConfiguration,
    ServicePrincipalConfiguration,
)


def text(written):
    return io.StringIO(textwrap.dedent(written))


def told(load, written):
    with pytest.raises(SpecError) as error:
        load(text(written))
    return [(problem.line, problem.column, problem.what) for problem in error.value.problems]


def test_data_from_a_file(tmp_path):
    (tmp_path / "d.yml").write_text("$schema: x\nname: d\nversion: 2\npath: ./digits\ntags: {a: 1}\n")
    data = load_data(tmp_path / "d.yml", params_override=[{"description": "changed"}])
    assert data == Data(name="d", version="2", path="./digits", tags={"a": 1}, description="changed")
    assert data.base_path == str(tmp_path)
    assert load_data(tmp_path / "d.yml", relative_origin="/else").base_path == "/"


def test_a_model_from_a_file():
    model = load_model(
        text("name: m\npath: runs:/job/model\ntype: MLflow_Model\nflavors: {sklearn: {v: 1}}\n")
    )
    assert model == Model(
        name="m", path="runs:/job/model", type="mlflow_model", flavors={"sklearn": {"v": 1}}
    )
    assert Model(name="m", path="x").type == "custom_model"


def test_what_is_printed_loads_again():
    data = load_data(text("name: d\npath: digits\ndescription: 'yes'\n"), relative_origin="/data/x.yml")
    assert str(data) == "name: d\ntype: uri_folder\npath: /data/digits\ndescription: 'yes'\n"
    assert load_data(io.StringIO(str(data))).description == "yes"


@pytest.mark.parametrize(
    ("load", "written", "expected"),
    [
        (load_data, "name: d\n", (1, 1, "missing key 'path' in data")),
        (load_data, "name: 3\npath: x\n", (1, 7, "name must be text, got 3")),
        (load_data, "path: x\nurl: y\n", (2, 1, "unknown key 'url' in data")),
        (load_data, "path: x\ntype: 3\n", (2, 7, "type must be one of 'uri_file', 'uri_folder', 'mltable', got 3")),
        (load_model, "path: x\n", (1, 1, "missing key 'name' in a model")),
        (load_model, "name: m\nflavors: x\n", (2, 10, "flavors must be a mapping, got 'x'")),
        (load_environment, "name: e\n", (1, 1, "the environment needs 'image' or 'build'")),
        (load_environment, "name: e\npython: p\n", (2, 9, "python must be the absolute path of a Python, got 'p'")),
        (load_environment, "dependencies: []\n", (1, 1, "this is a conda file, not an environment")),
        (load_datastore, "name: s\n", (1, 1, "missing key 'type' in a datastore")),
        (load_datastore, "name: s\ntype: hdfs\n", (2, 7, "'hdfs' is not a type of datastore")),
        (load_datastore, "name: s\ntype: local\n", (1, 1, "missing key 'path' in a datastore")),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_place(load, written, expected):
    assert expected in told(load, written)


def test_an_unquoted_version_that_yaml_reads_as_something_else_is_told():
    assert "is a boolean in YAML 1.1" in load_data(text("path: x\ntags: {a: yes}\n"))._warnings[0]


def test_a_keyword_that_is_not_known_is_told():
    assert Data(name="d", pth="x")._warnings == ["pth: not known, and ignored; did you mean 'path'?"]  # type: ignore[call-arg]
    assert Model(name="m", system_metadata={})._warnings == [
        "system_metadata: not used; models are not deployed from here"
    ]


BLOB = "name: s\ntype: Azure_Blob\naccount_name: a\ncontainer_name: c\n"
LAKE = "name: s\ntype: azure_data_lake_gen2\naccount_name: a\nfilesystem: c\n"
APPLICATION = "  tenant_id: t\n  client_id: c\n"


@pytest.mark.parametrize(
    ("written", "kind"),
    [
        (BLOB + "credentials:\n  sas_token: secret\n", SasTokenConfiguration),
        (BLOB + "credentials: {}\n", NoneCredentialConfiguration),
        (LAKE + f"credentials:\n{APPLICATION}  client_secret: secret\n", ServicePrincipalConfiguration),
        (
            LAKE + f"credentials:\n{APPLICATION}  thumbprint: t\n  certificate: secret\n",
            CertificateConfiguration,
        ),
    ],
)
def test_credentials(written, kind):
    made = load_datastore(text(written))
    assert type(made.credentials) is kind
    assert "secret" not in str(made).replace("client_secret", "")
    assert "secret" not in repr(made.credentials)


@pytest.mark.parametrize("line", ["account_key: 12345678", "acount_key: 12345678", "account_key: '********'"])
def test_a_mistake_in_credentials_does_not_show_them(line):
    with pytest.raises(SpecError) as error:
        load_datastore(text(f"{BLOB}credentials:\n  {line}\n"))
    assert "12345678" not in str(error.value)


def test_datastores_of_every_type():
    assert type(load_datastore(text(BLOB))) is AzureBlobDatastore
    blob: Any = load_datastore(text(BLOB))
    assert blob.protocol == "https"
    local = load_datastore(text("name: s\ntype: local\npath: data\n"), relative_origin="/mnt/x.yml")
    assert (type(local), str(local)) == (LocalDatastore, "name: s\ntype: local\npath: /mnt/data\n")
    lake = "name: s\ntype: one_lake\none_lake_workspace_name: w\nartifact: {name: a, type: lake_house}\n"
    assert type(load_datastore(text(lake))) is OneLakeDatastore
    gen1: Any = load_datastore(text("name: s\ntype: azure_data_lake_gen1\nstore_name: x\n"))
    assert gen1.store_name == "x"
    assert (
        load_datastore(text("name: s\ntype: azure_file\naccount_name: x\nfile_share_name: y\n")).type
        == "azure_file"
    )


def test_an_environment_of_a_python_that_is_there():
    environment = load_environment(text("name: e\npython: /opt/torch/bin/python\nimage: ubuntu\n"))
    assert environment == Environment(name="e", python="/opt/torch/bin/python", image="ubuntu")
    assert (environment.id, environment.creation_context, environment.latest_version) == (None, None, None)
