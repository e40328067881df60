"""``drumline data``, ``environment``, ``model``, ``component`` and ``datastore``."""

import json
import sys

import pytest
from cli_jobs import one_rank, write_job

COMPONENT = """
name: train
display_name: Train
type: command
command: python train.py --lr ${{inputs.lr}}
code: ./src
environment: azureml:torch@latest
inputs:
  lr: {type: number, default: 0.1}
"""


@pytest.fixture
def drumline(cli):
    """`drumline` with the words of a line; what it prints is read as JSON."""

    def run(line, rc=0):
        done = cli(*line.split(" "))
        assert done.rc == rc, done.err
        return json.loads(done.out) if done.out else done.err

    return run


@pytest.fixture(autouse=True)
def digits(tmp_path):
    (tmp_path / "digits").mkdir()
    (tmp_path / "digits" / "a.csv").write_text("1,2\n")
    (tmp_path / "digits.yml").write_text("name: digits\nversion: 1\ntype: uri_folder\npath: ./digits\n")
    return tmp_path / "digits"


def test_data_from_a_file_and_from_flags(drumline, digits):
    shown = drumline(
        "data create -f digits.yml -g group --label prod --tags team=vision --set description=one"
    )
    context = shown.pop("creation_context")
    assert (context["created_at"][-1], context["created_by_type"]) == ("Z", "User")
    assert shown == {
        "name": "digits",
        "version": "1",
        "type": "uri_folder",
        "path": str(digits),
        "description": "one",
        "tags": {"team": "vision"},
        "id": "azureml:digits:1",
        "latest_version": "1",
        "labels": ["latest", "prod"],
        "is_archived": False,
    }
    second = drumline("data create -n digits -p digits/a.csv -t uri_file -d two --no-wait")
    assert (second["version"], second["path"], second["description"]) == ("2", str(digits / "a.csv"), "two")
    assert drumline("data show digits")["version"] == "2"
    assert drumline("data show -n digits --label prod")["version"] == "1"
    assert [one["version"] for one in drumline("data list -n digits")] == ["2", "1"]
    assert [one["version"] for one in drumline("data list")] == ["2"]


def test_what_show_prints_can_be_created(cli, tmp_path):
    cli("data", "create", "-f", "digits.yml")
    (tmp_path / "again.yml").write_text(cli("data", "show", "digits", "-o", "yaml").out)
    assert cli("data", "create", "-f", "again.yml").rc == 0
    cli("environment", "create", "-n", "e", "-i", "ubuntu", "--tags", "a=b")
    (tmp_path / "again.yml").write_text(cli("environment", "show", "e", "-o", "yaml").out)
    assert cli("environment", "create", "-f", "again.yml").rc == 0


def test_a_file_from_standard_input_is_beside_the_current_folder(tmp_path):
    import subprocess

    argv = [sys.executable, "-m", "drumline", "data", "create", "-f", "-", "--query", "path", "-o", "tsv"]
    done = subprocess.run(
        argv, cwd=tmp_path, input=b"name: d\npath: digits\n", capture_output=True, check=True, timeout=60
    )
    assert done.stdout.decode() == f"{tmp_path / 'digits'}\n"


def test_update_and_labels(drumline):
    drumline("data create -f digits.yml --label blue")
    drumline("data create -n digits -p digits")
    line = "data update digits -v 1 --set description=first tags.a=b --add labels prod --add labels best"
    shown = drumline(line + " --remove labels.blue")
    assert (shown["description"], shown["tags"], shown["labels"]) == ("first", {"a": "b"}, ["best", "prod"])
    shown = drumline("data update digits --label prod --remove tags.a description")
    assert ("tags" in shown, "description" in shown, shown["version"]) == (False, False, "1")
    assert drumline("data update digits --add labels prod")["labels"] == ["latest", "prod"]


def test_archive_and_restore(drumline):
    drumline("data create -f digits.yml")
    drumline("data create -n digits -p digits")
    drumline("data archive -n digits -v 2")
    assert drumline("data show digits")["version"] == "1"
    assert [one["version"] for one in drumline("data list digits --archived-only")] == ["2"]
    assert len(drumline("data list digits --include-archived")) == 2
    drumline("data archive digits")
    assert drumline("data list") == []
    assert "drumline data restore -n digits" in drumline("data show digits", rc=3)
    drumline("data restore digits")
    assert drumline("data show digits")["version"] == "2"


@pytest.mark.parametrize(
    ("line", "rc", "said"),
    [
        ("data create -f digits.yml --set type=folder", 2, "did you mean 'uri_folder'?"),
        ("data create -f digits.yml --set url=x", 2, "unknown key 'url'"),
        ("data create -n digits -p digitz", 2, "did you mean 'digits'?"),
        ("data create -n digits", 2, "missing key 'path'"),
        ("data create -p digits", 2, "the data has no name"),
        ("data create -n a/b -p digits", 2, "'a/b' cannot be a name"),
        ("data create -n d -v a/b -p digits", 2, "'a/b' cannot be a version"),
        ("data create -n d -p digits --tags x", 2, "not of the form NAME=VALUE"),
        ("data create -n d -p digits --label latest", 2, "always marks the newest version"),
        ("data create -n d -p digits --registry-name r", 2, "registries are not supported"),
        ("data create -n d -p digits -t mltable", 2, "there is no file MLTable"),
        ("data show nobody", 3, "drumline data list shows those there are"),
        ("data show d -v 1 -l latest", 2, "exclude each other"),
        ("data list nobody", 3, "there is no data 'nobody'"),
        ("data update nobody --set description=x", 3, "there is no data 'nobody'"),
        ("data create -n d --path=", 2, "path is missing"),
        ("data create -n d -v= -p digits", 2, "'' cannot be a version"),
        ("data archive d -v=", 2, "'' cannot be a version"),
        ("data list -r -1", 2, "'-1' is not a number"),
        ("datastore list -r x", 2, "'x' is not a number"),
        ("datastore create -n d -t local --path=", 2, "there is no folder ''"),
        ("datastore update workspaceblobstore --remove tags.a", 2, "the datastore has no 'tags.a'"),
        ("model archive m --registry-name r", 2, "registries are not supported"),
        ("data mount --path azureml:d", 2, "data is not mounted here"),
        ("data import", 2, "database inputs are not supported"),
        ("environment create -n e", 2, "needs 'image' or 'build'"),
        ("environment create -n e -i u -b digits", 2, "has both 'image' and 'build'"),
        ("environment create -n e -d Dockerfile", 2, "--build-context FOLDER"),
        ("environment create -n e --python bin/python", 2, "such as /opt/envs/torch/bin/python"),
        ("environment create -n e -i u -c digits.yml.x", 2, "no such file"),
        ("model download nobody", 3, "there is no model 'nobody'"),
        ("model package -n m", 2, "deploying models is not supported"),
        ("component create", 2, "drumline component create --file component.yml"),
        ("component create -f digits.yml", 2, "missing key 'command'"),
        ("datastore create -n d", 2, "drumline datastore create --name NAME --type local --path /FOLDER"),
        ("datastore create -n d -t local", 2, "missing key 'path'"),
        ("datastore create -n d -t local -p nowhere", 2, "hint: mkdir -p"),
        ("datastore show nobody", 3, "drumline datastore create --name nobody --type local --path /FOLDER"),
        ("datastore delete workspaceblobstore", 2, "always there"),
        ("datastore mount --path d", 2, "datastores are not mounted here"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_what_to_do(drumline, line, rc, said):
    assert said in drumline(line, rc=rc)


def test_a_mistake_in_a_file_is_told_with_its_place(cli, tmp_path):
    (tmp_path / "digits.yml").write_text("name: digits\npath: ./digits\ntype: folder\n")
    done = cli("data", "create", "-f", "digits.yml")
    assert done.rc == 2
    assert done.err.startswith("error: digits.yml:3:7: type must be one of")
    assert cli("data", "list", "-o", "none").rc == 0


def test_what_cannot_change_is_not_changed(drumline):
    drumline("data create -f digits.yml")
    said = drumline("data create -f digits.yml -p digits/a.csv -t uri_file", rc=2)
    assert "there already, with another type, path" in said
    assert "leave the version out to make the next one, or give another" in said
    assert "'path' of a data cannot be changed" in drumline("data update digits --set path=/", rc=2)
    assert "nothing to change" in drumline("data update digits", rc=2)
    assert drumline("data create -f digits.yml -v 7")["version"] == "7"


def test_an_environment_of_a_python_that_is_there_runs_a_job(drumline, cli, tmp_path):
    name = "AzureML-acpt-pytorch-2.2-cuda12.1"
    python = tmp_path / "python"
    python.symlink_to(sys.executable)
    shown = drumline(f"environment create --name {name} --python {python} --os-type linux")
    assert (shown["version"], shown["python"], shown["os_type"]) == ("1", str(python), "linux")
    job = write_job(
        tmp_path,
        "python -c 'import sys; print(sys.executable)'",
        environment=f"azureml:{name}@latest",
        **one_rank(),
    )
    done = cli("job", "create", "-f", job, "--stream")
    assert done.rc == 0, done.err
    assert str(python) in done.out


def test_an_environment_of_azures_is_kept(drumline, tmp_path):
    (tmp_path / "conda.yml").write_text("dependencies: [python=3.11]\n")
    shown = drumline("environment create -n e -i ubuntu -c conda.yml --tags a=b")
    assert (shown["image"], shown["conda_file"]) == ("ubuntu", {"dependencies": ["python=3.11"]})
    shown = drumline("environment create -n e -b digits -d Dockerfile.gpu")
    assert shown["build"] == {"path": str(tmp_path / "digits"), "dockerfile_path": "Dockerfile.gpu"}
    shown = drumline("environment create -n odd --python /no/such/python -o json --query version")
    assert shown == "1"


def test_models(drumline, tmp_path):
    shown = drumline("model create -n net -p digits -t custom_model -s Staging --tags a=b")
    assert (shown["type"], shown["stage"]) == ("custom_model", "Staging")
    assert drumline("model update net --stage Production")["stage"] == "Production"
    assert drumline("model list -s Staging") == []
    assert [one["name"] for one in drumline("model list -s Production")] == ["net"]
    assert "downloaded to" in drumline("model download -n net -v 1 -p out")
    assert (tmp_path / "out" / "net" / "digits" / "a.csv").exists()


def test_components(drumline, cli, tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text("print('one')\n")
    (tmp_path / "component.yml").write_text(COMPONENT)
    assert drumline("component validate -f component.yml") == {"result": "Succeeded"}
    shown = drumline("component create -f component.yml --version 3 --set display_name=Other")
    assert (shown["version"], shown["display_name"], shown["inputs"]["lr"]["default"]) == ("3", "Other", 0.1)
    (tmp_path / "src" / "train.py").write_text("print('two')\n")
    drumline("component download train -p out")
    assert (tmp_path / "out" / "train" / "code" / "train.py").read_text() == "print('one')\n"
    assert cli("component", "validate", "-f", "out/train/component.yml").rc == 0
    assert drumline("component update train --set display_name=Best")["display_name"] == "Best"


def test_datastores(drumline, cli, tmp_path):
    assert [one["name"] for one in drumline("datastore list") if one["is_default"]] == ["workspaceblobstore"]
    shown = drumline("datastore create -n lustre --type local --path digits --description one --tags a=b")
    assert shown == {
        "name": "lustre",
        "type": "local",
        "description": "one",
        "tags": {"a": "b"},
        "path": str(tmp_path / "digits"),
        "id": "azureml://datastores/lustre",
        "is_default": False,
    }
    assert drumline("datastore update lustre --set description=two --remove tags")["description"] == "two"
    drumline("datastore delete -n lustre -y")
    assert cli("datastore", "show", "lustre").rc == 3


def test_a_datastores_secrets_are_shown_only_when_asked_for(drumline, cli, tmp_path):
    written = (
        "name: blob\ntype: azure_blob\naccount_name: a\ncontainer_name: c\ncredentials: {account_key: hush}\n"
    )
    (tmp_path / "blob.yml").write_text(written)
    for line in ("create -f blob.yml", "show blob", "update blob --set account_name=b", "list"):
        done = cli("datastore", *line.split(" "))
        assert done.rc == 0, done.err
        assert "hush" not in done.out + done.err
    assert drumline("datastore show blob --include-secrets")["credentials"] == {"account_key": "hush"}


def test_lists_are_tables(cli):
    cli("data", "create", "-f", "digits.yml")
    heading, row = cli("data", "list", "-o", "table").out.splitlines()
    assert heading.split() == ["NAME", "VERSION", "TYPE", "PATH", "DESCRIPTION"]
    assert row.split()[:3] == ["digits", "1", "uri_folder"]


def test_a_workspace_of_its_own(drumline):
    drumline("data create -f digits.yml -w team")
    assert drumline("data list") == []
    assert drumline("data list -w team --query [].name") == ["digits"]


@pytest.mark.parametrize(
    "text",
    [
        "name: blob\ntype: azure_blob\naccount_key: hush\n",
        "name: blob\ntype: azure_blob\ncredential: {account_key: hush}\n",
        "name: blob\ntype: azure_blob\ncredentials: hush\n",
        '{"name": "blob", "type": "azure_blub", "credentials": {"account_key": "hush"}}',
        '{"name": "blob", "credentials": {"account_key": "hush"}}',
    ],
)
def test_no_mistake_in_a_datastores_file_shows_a_secret(cli, tmp_path, text):
    (tmp_path / "blob.yml").write_text(text)
    done = cli("datastore", "create", "-f", "blob.yml")
    assert (done.rc, "hush" in done.out + done.err) == (2, False)


def test_a_datastores_tag_can_be_removed(drumline):
    drumline("datastore create -n d -t local -p digits --tags a=b c=d")
    assert drumline("datastore update d --remove tags.a")["tags"] == {"c": "d"}
    assert "tags" not in drumline("datastore update d --remove tags")
