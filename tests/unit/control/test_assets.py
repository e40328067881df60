import json
import os
import stat

import pytest

from drumline.contract.errors import NotFoundError, PlanError, SpecError, UsageError
from drumline.contract.folder import workspace
from drumline.control.assets import asset_files, asset_verbs
from drumline.spec.jobs.command import CommandComponent
from drumline.spec.jobs.pipeline import PipelineComponent
from drumline.spec.load import load_component, load_data, load_environment
from drumline.spec.parts.environment import Environment
from drumline.spec.registered.assets import Data, Model

CONDA = "name: torch\nchannels: [conda-forge]\ndependencies:\n- python=3.11\n- pip: [torch]\n"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits").mkdir()
    (tmp_path / "digits" / "a.csv").write_text("1,2\n")
    (tmp_path / "conda.yml").write_text(CONDA)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text("print('one')\n")
    return tmp_path


def digits(**fields):
    return Data(**{"name": "digits", "path": "digits", **fields})


def trainer(**fields):
    given = {"name": "train", "command": "python train.py", "code": "src", "environment": {"image": "ubuntu"}}
    return CommandComponent(**{**given, **fields})


def versions(found):
    return [one.version for one in found]


# data and models


def test_data_stays_where_it_is_under_its_whole_path(here):
    made = asset_verbs.create(digits(tags={"team": "vision"}))
    assert (made.version, made.path, made.id) == ("1", str(here / "digits"), "azureml:digits:1")
    assert made.tags == {"team": "vision"}
    assert made.creation_context.created_at.endswith("Z")
    again = asset_verbs.get("data", "digits", "1")
    assert again == made
    assert sorted(os.listdir(here)) == ["conda.yml", "digits", "drumline home", "src"]


def test_a_path_of_a_file_is_beside_the_file(here, monkeypatch):
    (here / "digits" / "data.yml").write_text("name: d\npath: a.csv\ntype: uri_file\n")
    data = load_data("digits/data.yml")
    monkeypatch.chdir("/")
    assert asset_verbs.create(data).path == str(here / "digits" / "a.csv")


@pytest.mark.parametrize(
    "path",
    [
        "azureml://datastores/workspaceblobstore/paths/digits/",
        "azureml://jobs/a/outputs/model/paths/best",
        "https://example.org/digits.csv",
        "wasbs://c@account.blob.core.windows.net/digits",
    ],
)
def test_a_uri_is_kept_as_it_is(path):
    assert asset_verbs.create(digits(path=path)).path == path


@pytest.mark.parametrize(
    ("fields", "said", "hint"),
    [
        ({"path": "digitz"}, "no such file or folder", "did you mean 'digits'?"),
        ({"path": "no/where"}, "no such file or folder", "either"),
        ({"type": "uri_file"}, "there is no file .* but a folder", "uri_folder"),
        ({"path": "digits/a.csv"}, "there is no folder .* but a file", "uri_file"),
        ({"type": "mltable"}, "there is no file MLTable", "--skip-validation"),
    ],
)
def test_a_path_that_leads_to_something_else_is_refused(fields, said, hint):
    with pytest.raises(PlanError, match=said) as error:
        asset_verbs.create(digits(**fields))
    assert hint in error.value.hint
    with pytest.raises(NotFoundError):
        asset_verbs.get("data", "digits")


def test_an_mltable_may_be_taken_unseen():
    assert asset_verbs.create(digits(type="mltable"), check=False).type == "mltable"


@pytest.mark.parametrize(
    "fields", [{"type": "URI_FOLDER"}, {"type": "folder"}, {"path": None}, {"path": 3}, {"tags": ["a"]}]
)
def test_what_its_file_may_not_say_python_may_not_say_either(fields):
    with pytest.raises((SpecError, ValueError)):
        asset_verbs.create(digits(**fields))


def test_a_name_and_labels_are_checked_before_anything_is_made(drumline_home):
    for entity, labels in (
        (digits(name="a b"), []),
        (digits(name="../x"), []),
        (digits(name=3), []),
        (digits(version="a/b"), []),
        (digits(), ["latest"]),
        (digits(), ["a/b"]),
    ):
        with pytest.raises(UsageError):
            asset_verbs.create(entity, labels=labels)
    with pytest.raises(SpecError, match="no name"):
        asset_verbs.create(digits(name=None))
    with pytest.raises(SpecError, match="no asset"):
        asset_verbs.create({"name": "digits"})
    assert not [path for path in drumline_home.rglob("*") if path.is_file()]


def test_fields_without_effect_are_told(here):
    made = asset_verbs.create(digits(datastore="blob", colour="red"))
    assert sorted(made._warnings) == [
        "colour: not known, and ignored",
        "datastore: not used; registered assets stay where they are",
    ]


def test_a_model_has_a_stage_and_flavours():
    model = Model(name="net", path="digits", stage="Staging", flavors={"python_function": {"a": 1}})
    made = asset_verbs.create(model)
    assert (made.type, made.stage, made.flavors) == ("custom_model", "Staging", {"python_function": {"a": 1}})
    asset_verbs.update("model", "net", changes={"stage": "Production"})
    assert asset_verbs.get("model", "net").stage == "Production"


# versions and labels


def test_a_version_cannot_become_something_else():
    asset_verbs.create(digits(version="7"))
    with pytest.raises(UsageError, match="there already, with another type, path") as error:
        asset_verbs.create(digits(version="7", path="digits/a.csv", type="uri_file"))
    assert error.value.hint == "leave the version out to make the next one, or give another"
    assert asset_verbs.get("data", "digits", "7").type == "uri_folder"
    assert asset_verbs.create(digits()).version == "8"


def test_the_same_again_changes_nothing_and_notes_may_change():
    first = asset_verbs.create(digits(version="1", description="one", tags={"a": "1"}))
    assert asset_verbs.create(digits(version="1")) == first
    changed = asset_verbs.create(digits(version="1", tags={"b": "2"}))
    assert (changed.description, changed.tags) == ("one", {"b": "2"})
    assert changed.creation_context.created_at == first.creation_context.created_at
    assert versions(asset_verbs.all("data", "digits")) == ["1"]


def test_without_a_version_every_creation_is_a_new_one():
    assert [asset_verbs.create(digits()).version for _ in range(3)] == ["1", "2", "3"]
    assert versions(asset_verbs.all("data", "digits")) == ["3", "2", "1"]


def test_labels():
    asset_verbs.create(digits(), labels=["prod"])
    asset_verbs.create(digits())
    assert asset_verbs.get("data", "digits").version == "2"
    assert asset_verbs.get("data", "digits", label="latest").version == "2"
    assert asset_verbs.get("data", "digits", label="prod").version == "1"
    asset_verbs.update("data", "digits", "2", changes={}, labels=["prod"])
    assert asset_verbs.describe("data", "digits", label="prod")["labels"] == ["latest", "prod"]
    asset_verbs.update("data", "digits", "2", changes={}, unlabel=["prod"])
    with pytest.raises(NotFoundError, match="has the label 'prod'"):
        asset_verbs.get("data", "digits", label="prod")
    with pytest.raises(UsageError, match="exclude each other"):
        asset_verbs.get("data", "digits", "1", "latest")


def test_what_is_not_there_is_told_with_what_is():
    asset_verbs.create(digits())
    with pytest.raises(NotFoundError, match="no data 'digit'") as error:
        asset_verbs.get("data", "digit")
    assert error.value.hint == "did you mean 'digits'?"
    with pytest.raises(NotFoundError, match="no version '9'") as error:
        asset_verbs.get("data", "digits", "9")
    assert error.value.hint == "its versions, newest first: 1"
    with pytest.raises(NotFoundError, match="no model 'digits'"):
        asset_verbs.get("model", "digits")


def test_archived_versions_are_not_the_latest_and_in_no_list():
    for _ in range(3):
        asset_verbs.create(digits())
    asset_verbs.archive("data", "digits", "3")
    assert asset_verbs.get("data", "digits").version == "2"
    assert asset_verbs.get("data", "digits", "3").version == "3"
    assert versions(asset_verbs.all("data", "digits")) == ["2", "1"]
    assert versions(asset_verbs.all("data", "digits", archived=True)) == ["3"]
    assert versions(asset_verbs.all("data", archived=True)) == []
    asset_verbs.restore("data", "digits", "3")
    assert [(one.version, one.latest_version) for one in asset_verbs.all("data")] == [("3", "3")]


def test_an_archived_name_hides_all_versions():
    asset_verbs.create(digits())
    asset_verbs.create(digits(name="letters"))
    asset_verbs.archive("data", "digits")
    assert [one.name for one in asset_verbs.all("data")] == ["letters"]
    assert [one.name for one in asset_verbs.all("data", archived=True)] == ["digits"]
    assert [one.name for one in asset_verbs.all("data", archived=None)] == ["digits", "letters"]
    with pytest.raises(NotFoundError, match="every version") as error:
        asset_verbs.get("data", "digits")
    assert "drumline data restore -n digits" in error.value.hint
    with pytest.raises(UsageError, match="all of data 'digits' is archived"):
        asset_verbs.restore("data", "digits", "1")
    asset_verbs.restore("data", "digits")
    assert asset_verbs.get("data", "digits").version == "1"


def test_update_changes_notes_alone():
    asset_verbs.create(digits(description="one"))
    asset_verbs.update("data", "digits", changes={"description": None, "tags": {"a": "1"}})
    found = asset_verbs.get("data", "digits")
    assert (found.description, found.tags) == (None, {"a": "1"})
    with pytest.raises(UsageError, match="the path of a data cannot be changed"):
        asset_verbs.update("data", "digits", changes={"path": "/"})


def test_a_damaged_record_is_told_and_does_not_hide_the_others(drumline_home):
    asset_verbs.create(digits())
    asset_verbs.create(digits(name="letters"))
    (drumline_home / "assets" / "data" / "digits" / "1.yml").write_text("a: [")
    said = []
    assert [one.name for one in asset_verbs.all("data", damaged=said.append)] == ["letters"]
    assert "digits/1.yml:1" in said[0]
    with pytest.raises(SpecError):
        asset_verbs.all("data")
    (drumline_home / "assets" / "data" / "digits" / "1.yml").write_text("tags: 3\n")
    with pytest.raises(SpecError, match="is damaged"):
        asset_verbs.get("data", "digits")


# workspaces


def test_a_workspace_has_its_own_and_sees_those_of_the_base_home():
    asset_verbs.create(digits(description="base"))
    with workspace("team"):
        assert asset_verbs.get("data", "digits").description == "base"
        asset_verbs.create(digits(name="letters"))
        assert [one.name for one in asset_verbs.all("data")] == ["digits", "letters"]
        assert asset_verbs.create(digits(description="team")).version == "1"
        asset_verbs.create(digits(version="5"))
        assert asset_verbs.get("data", "digits", "1").description == "team"
    assert [one.name for one in asset_verbs.all("data")] == ["digits"]
    assert asset_verbs.get("data", "digits").description == "base"
    asset_verbs.create(digits(description="second", version="2"))
    with workspace("team"):
        assert asset_verbs.get("data", "digits").version == "5"
        assert asset_verbs.get("data", "digits", "2").description == "second"


def test_data_of_the_base_home_is_in_its_own_datastores(drumline_home):
    inside = "azureml://datastores/workspaceblobstore/paths/digits/"
    asset_verbs.create(digits(path=inside))
    at = drumline_home / "datastores" / "workspaceblobstore" / "digits"
    with workspace("team"):
        assert asset_verbs.get("data", "digits").path.rstrip("/") == str(at)
        assert asset_files.path_of(asset_verbs.get("data", "digits")).rstrip("/") == str(at)
        own = asset_verbs.create(digits(name="own", path=inside))
        assert own.path == inside
        assert asset_files.path_of(own).startswith(str(drumline_home / "workspaces" / "team"))
    assert asset_verbs.get("data", "digits").path == inside


# environments


def test_an_environment_keeps_the_content_of_its_conda_file(here):
    (here / "env.yml").write_text("name: e\nimage: ubuntu\nconda_file: conda.yml\n")
    made = asset_verbs.create(load_environment("env.yml"))
    (here / "conda.yml").write_text("dependencies: []\n")
    kept = asset_verbs.get("environment", "e", "1").conda_file
    assert kept == made.conda_file
    assert kept["dependencies"] == ["python=3.11", {"pip": ["torch"]}]
    with pytest.raises(UsageError, match="with another conda_file"):
        asset_verbs.create(Environment(name="e", version="1", image="ubuntu", conda_file="conda.yml"))


def test_a_build_context_stays_a_path(here):
    made = asset_verbs.create(
        Environment(name="e", build={"path": "digits", "dockerfile_path": "Dockerfile.gpu"})
    )
    assert (made.build.path, made.build.dockerfile_path) == (str(here / "digits"), "Dockerfile.gpu")


def test_a_python_that_is_there_takes_the_place_of_an_image(here):
    python = here / "python"
    made = asset_verbs.create(Environment(name="AzureML-acpt-pytorch-2.2-cuda12.1", python=python))
    assert made.python == str(python)
    assert "no program" in made._warnings[0]
    python.write_text("#!/bin/sh\n")
    python.chmod(0o700)
    assert asset_verbs.create(Environment(name="e", image="ubuntu", python=python))._warnings == []


@pytest.mark.parametrize(
    "fields",
    [
        {"python": "bin/python"},
        {"python": "/a\nb"},
        {"image": "u", "build": {"path": "digits"}},
        {"conda_file": "conda.yml"},
    ],
)
def test_an_environment_that_is_none_is_refused(fields):
    with pytest.raises(SpecError):
        asset_verbs.create(Environment(name="e", **fields))


# components


def test_a_component_keeps_its_code_as_it_was(here, drumline_home):
    made = asset_verbs.create(trainer())
    (here / "src" / "train.py").write_text("print('two')\n")
    assert made.code.startswith(str(drumline_home / "snapshots"))
    with open(os.path.join(made.code, "train.py"), encoding="utf-8") as file:
        assert file.read() == "print('one')\n"
    with pytest.raises(UsageError, match="with another code"):
        asset_verbs.create(trainer(version="1"))
    assert asset_verbs.create(trainer()).version == "2"


def test_additional_includes_become_part_of_the_code(here):
    (here / "common").mkdir()
    (here / "common" / "util.py").write_text("")
    made = asset_verbs.create(trainer(additional_includes=["common", "conda.yml"]))
    assert sorted(os.listdir(made.code)) == ["common", "conda.yml", "train.py"]
    assert made.additional_includes == []


def test_a_component_comes_back_as_it_was_given():
    given = trainer(
        inputs={"lr": {"type": "number", "default": 0.1}, "data": {"type": "uri_folder"}},
        outputs={"model": {"type": "uri_folder"}},
        command="python train.py --lr ${{inputs.lr}} ${{inputs.data}} ${{outputs.model}}",
        distribution={"type": "pytorch", "process_count_per_instance": 2},
        resources={"instance_count": 2},
        display_name="Train",
        environment={"image": "ubuntu", "conda_file": "conda.yml"},
    )
    made = asset_verbs.create(given)
    again = asset_verbs.get("component", "train")
    assert again == made
    assert (again.inputs["lr"].default, again.distribution.process_count_per_instance) == (0.1, 2)
    assert (again.resources.instance_count, again.display_name) == (2, "Train")
    assert again.environment.conda_file["name"] == "torch"
    assert asset_verbs.create(again).version == "1"


def test_a_pipeline_component_keeps_the_code_of_its_nodes(drumline_home):
    node = {"type": "command", "command": "python train.py", "code": "src", "environment": {"image": "u"}}
    pipeline = PipelineComponent(name="whole", jobs={"one": node, "two": trainer()})
    made = asset_verbs.create(pipeline)
    snapshots = str(drumline_home / "snapshots")
    assert made.jobs["one"].code.startswith(snapshots)
    assert asset_verbs.describe("component", "whole")["jobs"]["two"]["component"]["code"].startswith(
        snapshots
    )


def test_a_component_that_is_none_is_refused():
    with pytest.raises(SpecError, match="did you mean 'train'"):
        asset_verbs.create(trainer(name="Train"))
    with pytest.raises(SpecError, match="not declared"):
        asset_verbs.create(trainer(command="python train.py ${{inputs.x}}"))
    with pytest.raises(SpecError, match="code: no such file or folder"):
        asset_verbs.create(trainer(code="scr"))


# copies


def test_a_model_is_copied(here):
    asset_verbs.create(Model(name="net", path="digits"))
    copied = asset_files.download_model("net", target="out")
    assert copied == str(here / "out" / "net" / "digits")
    assert (here / "out" / "net" / "digits" / "a.csv").read_text() == "1,2\n"
    asset_verbs.create(Model(name="net", path="digits/a.csv"))
    assert asset_files.download_model("net", target="out").endswith("out/net/a.csv")


def test_a_model_that_cannot_be_copied_is_told(here):
    (here / "gone").write_text("")
    asset_verbs.create(Model(name="net", path="gone"))
    (here / "gone").unlink()
    with pytest.raises(NotFoundError, match="is gone"):
        asset_files.download_model("net")
    asset_verbs.create(Model(name="far", path="https://example.org/net"))
    with pytest.raises(UsageError, match="not fetched from here"):
        asset_files.download_model("far")
    asset_verbs.create(Model(name="loop", version="1", path="azureml:loop:1"))
    with pytest.raises(UsageError, match="in a circle"):
        asset_files.download_model("loop")
    asset_verbs.create(Model(name="lost", path="azureml://datastores/workspaceblobstore/paths/net"))
    with pytest.raises(NotFoundError, match="is gone"):
        asset_files.download_model("lost")


def test_a_component_is_copied_with_its_code(here):
    asset_verbs.create(trainer(environment={"image": "ubuntu", "conda_file": "conda.yml"}))
    folder = asset_files.download_component("train", target="out")
    again = load_component(os.path.join(folder, "component.yml"))
    assert (again.code, again.environment.conda_file["name"]) == ("./code", "torch")
    assert (here / "out" / "train" / "code" / "train.py").read_text() == "print('one')\n"
    assert asset_verbs.create(again).version == "1"
    with pytest.raises(UsageError, match="is there already"):
        asset_files.download_component("train", target="out")


def test_what_is_described_is_json_and_its_record_is_private(drumline_home):
    asset_verbs.create(digits(tags={"n": 1}))
    assert json.loads(json.dumps(asset_verbs.describe("data", "digits")))["tags"] == {"n": 1}
    record = drumline_home / "assets" / "data" / "digits" / "1.yml"
    assert stat.S_IMODE(record.stat().st_mode) == 0o600


@pytest.mark.parametrize("which", [{"version": ""}, {"label": ""}])
def test_an_empty_version_is_neither_the_latest_nor_all(which):
    asset_verbs.create(digits())
    for verb in (asset_verbs.get, asset_verbs.archive, asset_verbs.restore):
        with pytest.raises(UsageError, match="'' cannot be a"):
            verb("data", "digits", **which)
    assert versions(asset_verbs.all("data", "digits")) == ["1"]
    with pytest.raises(UsageError, match="'' cannot be a version"):
        asset_verbs.create(digits(version=""))


def test_a_label_is_taken_off_the_version_that_it_is_on():
    asset_verbs.create(digits(), labels=["prod"])
    asset_verbs.create(digits())
    with pytest.raises(NotFoundError, match="has no label 'prod'") as error:
        asset_verbs.update("data", "digits", "2", changes={}, unlabel=["prod"])
    assert error.value.hint == "it is on version '1'"
    with pytest.raises(NotFoundError, match="has no label 'best'"):
        asset_verbs.update("data", "digits", "1", changes={}, unlabel=["best"])
    assert asset_verbs.get("data", "digits", label="prod").version == "1"


def test_a_model_is_not_copied_into_itself(here):
    (here / "digits" / "net").mkdir()
    asset_verbs.create(Model(name="net", path="digits"))
    with pytest.raises(UsageError, match="is in the model itself"):
        asset_files.download_model("net", target="digits")
    assert os.listdir(here / "digits" / "net") == []


def test_a_component_whose_code_is_gone_leaves_nothing(here, drumline_home):
    asset_verbs.create(trainer())
    (drumline_home / "snapshots").rename(here / "elsewhere")
    with pytest.raises(NotFoundError, match="code of the component is gone"):
        asset_files.download_component("train", target="out")
    assert os.listdir(here / "out") == []


def test_a_folder_is_no_python(here):
    assert "there is no program" in asset_verbs.create(Environment(name="e", python=str(here)))._warnings[0]


def test_properties_of_an_environment_are_what_yaml_can_hold():
    made = asset_verbs.create(Environment(name="e", image="ubuntu", properties={"a": 1, "b": {2}}))
    assert made.properties == {"a": 1, "b": "{2}"}
    with pytest.raises(SpecError, match="properties must be a mapping"):
        asset_verbs.create(Environment(name="e", image="ubuntu", properties=5))


@pytest.mark.parametrize(
    ("path", "said"),
    [("azureml://registries/r/models/net/versions/1", "in a registry"), ("azureml:net", "names no version")],
)
def test_a_model_that_is_elsewhere_is_not_one_of_the_same_name(here, path, said):
    asset_verbs.create(Model(name="net", path="digits"))
    asset_verbs.create(Model(name="other", path=path))
    with pytest.raises(UsageError, match=said):
        asset_files.download_model("other", target="out")
    assert not (here / "out").exists()


@pytest.mark.parametrize("which", ["versions/2", "labels/latest"])
def test_a_component_of_ours_stands_in_for_a_registrys(which):
    from drumline.control.submission.planning import find_component

    reference = f"azureml://registries/azureml/components/scorer/{which}"
    with pytest.raises(NotFoundError, match="in a registry of Azure's, which is not asked") as caught:
        find_component(reference)
    assert caught.value.hint.startswith(
        "to have one of your own stand in for it: drumline component create -f FILE"
    )
    for version in ("1", "2"):
        asset_verbs.create(CommandComponent(name="scorer", version=version, command=f"echo {version}"))
    assert find_component(reference).command == "echo 2"
