"""Workspaces: homes beside each other, on one machine, from the command line and from Python."""

import json
import os

import pytest
from cli_jobs import WAIT_FOR_SIGNAL, one_rank, write_job
from waiting import wait_until

from drumline import Input, LocalCompute, MLClient, Output, PyTorchDistribution, command, load_workspace
from drumline.contract.errors import PlanError, UsageError
from drumline.contract.folder import base_home, workspace
from drumline.control.facts import description
from drumline.entities import Data, Workspace
from drumline.exceptions import ResourceNotFoundError, ValidationException


def one(name, program="true", **fields):
    return command(
        name=name,
        command=program,
        distribution=PyTorchDistribution(process_count_per_instance=1),
        **fields,
    )


def client_of(name):
    return MLClient(None, "subscription", "group", name)


@pytest.fixture
def vision():
    return client_of("vision")


@pytest.fixture
def speech():
    return client_of("speech")


def finished(client, job):
    client.jobs.create_or_update(job)
    client.jobs.stream(job.name)
    return client.jobs.get(job.name)


# Python


def test_each_client_has_the_jobs_of_its_workspace(vision, speech, drumline_home, tmp_path, monkeypatch):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "f").write_text("from the snapshot")
    monkeypatch.chdir(tmp_path)
    for client in (vision, speech):
        program = 'grep snapshot f; echo "<$DRUMLINE_WORKSPACE>"'
        assert finished(client, one("same", program, code="src")).status == "Completed"
    for name in ("vision", "speech"):
        log = drumline_home / "workspaces" / name / "jobs" / "same" / "user_logs" / "std_log.txt"
        assert log.read_text() == f"from the snapshot\n<{name}>\n"
    assert [job.name for job in vision.jobs.list()] == ["same"]
    assert list(MLClient().jobs.list()) == []
    assert not (drumline_home / "jobs").exists()


def test_what_is_taken_now_and_used_later_stays_in_its_workspace(vision, speech):
    vision.jobs.create_or_update(one("long", f'exec python -c "{WAIT_FOR_SIGNAL}"'))
    listed = vision.jobs.list()
    poller = vision.jobs.begin_cancel("long")
    assert list(speech.jobs.list()) == []
    with workspace("speech"):
        poller.result()
        assert poller.done()
        assert [job.name for job in listed] == ["long"]


def test_a_client_without_a_workspace_follows_the_variable(vision, monkeypatch):
    finished(vision, one("job"))
    client = MLClient()
    with pytest.raises(ResourceNotFoundError, match="in workspace 'vision': add -w vision"):
        client.jobs.get("job")
    monkeypatch.setenv("DRUMLINE_WORKSPACE", "vision")
    assert client.jobs.get("job").status == "Completed"


def test_a_name_that_was_never_filled_in_is_none(drumline_home, capsys):
    finished(client_of("<AML_WORKSPACE_NAME>"), one("job"))
    assert (drumline_home / "jobs" / "job").is_dir()
    assert "workspace_name: <AML_WORKSPACE_NAME> is a placeholder" in capsys.readouterr().err


def test_a_name_that_cannot_be_is_refused():
    with pytest.raises(UsageError, match=r"'\.\./x' cannot be a workspace's name"):
        client_of("../x")


def test_from_config_names_the_workspace(tmp_path, drumline_home):
    names = {"subscription_id": "s", "resource_group": "g", "workspace_name": "vision"}
    (tmp_path / "config.json").write_text(json.dumps(names))
    finished(MLClient.from_config(path=tmp_path), one("job"))
    assert (drumline_home / "workspaces" / "vision" / "jobs" / "job").is_dir()


def test_the_older_form_of_a_configuration_names_the_workspace(tmp_path):
    """Of Azure's compute instances and of the first SDKs: one id in the place of three names."""
    scope = "/subscriptions/s/resourceGroups/g/providers/Microsoft.MachineLearningServices/workspaces/vision"
    (tmp_path / "config.json").write_text(json.dumps({"Id": None, "Scope": scope}))
    client = MLClient.from_config(path=tmp_path)
    assert (client.subscription_id, client.resource_group_name, client.workspace_name) == ("s", "g", "vision")
    assert client.workspaces.get().id == scope
    for wrong in ("/subscriptions/s", 3, scope + "/../x"):
        (tmp_path / "config.json").write_text(json.dumps({"Scope": wrong}))
        with pytest.raises(UsageError, match="is not a workspace's configuration"):
            MLClient.from_config(path=tmp_path)


def test_mlflow_can_read_where_a_workspace_says(vision, monkeypatch):
    """MLflow 3.7 and later refuse a file store that nothing allows."""
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.delenv("MLFLOW_ALLOW_FILE_STORE", raising=False)
    finished(vision, one("job"))
    mlflow.set_tracking_uri(vision.workspaces.get().mlflow_tracking_uri)
    assert mlflow.get_run("job").info.run_name == "job"


def test_computes_are_those_of_all_workspaces(vision, speech):
    vision.compute.begin_create_or_update(LocalCompute(name="here"))
    assert [found.name for found in speech.compute.list()] == ["local", "here"]
    assert finished(speech, one("job", compute="azureml:here")).status == "Completed"


def test_all_workspaces_stand_in_one_line(vision, speech):
    """Each job holds all cores, so that one waits for the other, which has the same name."""
    cores = len(os.sched_getaffinity(0))
    job = f'exec python -c "{WAIT_FOR_SIGNAL}"'
    distribution = PyTorchDistribution(process_count_per_instance=cores)
    for client in (vision, speech):
        client.jobs.create_or_update(command(name="same", command=job, distribution=distribution))
        if client is vision:
            wait_until(lambda: vision.jobs.get("same").status == "Running", 20.0)
    with workspace("speech"):
        wait_until(lambda: description.show_job("same")["status"] == "Queued", 20.0)
        assert "held by job same of workspace vision" in description.show_job("same")["reason"]
    vision.jobs.begin_cancel("same").result()
    wait_until(lambda: speech.jobs.get("same").status == "Running", 20.0)
    speech.jobs.begin_cancel("same").result()


def test_workspaces_as_scripts_use_them(vision, tmp_path):
    assert (vision.workspaces.get("vision").name, vision.workspaces.get().resource_group) == (
        "vision",
        "group",
    )
    with pytest.raises(ResourceNotFoundError, match="there is no workspace 'speech'"):
        vision.workspaces.get("speech")
    (tmp_path / "w.yml").write_text("name: speech\ndescription: one\nstorage_account: s\n")
    assert vision.workspaces.begin_create(load_workspace(tmp_path / "w.yml")).result().description == "one"
    made = vision.begin_create_or_update(Workspace(name="speech", description="two")).result()
    assert (made.description, [found.name for found in vision.workspaces.list()]) == ("two", ["speech"])
    vision.workspaces.begin_delete("speech", delete_dependent_resources=True).result()
    assert list(vision.workspaces.list()) == []


# one job after the other


@pytest.mark.parametrize("path", [None, "mine", "azureml://datastores/workspaceblobstore/paths/sets"])
def test_the_output_of_a_returned_job_feeds_the_next(vision, tmp_path, monkeypatch, path):
    program = 'echo made > "${{outputs.set}}/x"'
    monkeypatch.chdir(tmp_path)
    first = finished(vision, one("first", program, outputs={"set": Output(type="uri_folder", path=path)}))
    monkeypatch.chdir("/")
    given = {"set": Input(type="uri_folder", path=first.outputs.set.path)}
    assert (
        finished(vision, one("second", 'grep made "${{inputs.set}}/x"', inputs=given)).status == "Completed"
    )
    given = {"set": Input(path="azureml://jobs/first/outputs/set")}
    assert finished(vision, one("third", 'grep made "${{inputs.set}}/x"', inputs=given)).status == "Completed"
    given = {"set": first.outputs.set}
    assert (
        finished(vision, one("fourth", 'grep made "${{inputs.set}}/x"', inputs=given)).status == "Completed"
    )


def test_a_named_output_becomes_a_data_asset(vision, speech):
    for number in (1, 2):
        program = f'echo {number} > "${{{{outputs.set}}}}/x"'
        done = finished(vision, one(f"make{number}", program, outputs={"set": Output(name="digits")}))
        with workspace("vision"):
            assert description.show_job(done.name)["registered"] == {"set": f"azureml:digits:{number}"}
    for reference, number in (("azureml:digits:1", 1), ("azureml:digits@latest", 2)):
        given = {"set": Input(type="uri_folder", path=reference)}
        program = f'grep {number} "${{{{inputs.set}}}}/x"'
        assert finished(vision, one(f"use{number}", program, inputs=given)).status == "Completed"
    with pytest.raises(PlanError, match="there is no data 'digits'"):
        speech.jobs.create_or_update(one("use", inputs={"set": Input(path="azureml:digits:1")}))


def test_an_output_that_was_not_written_fails_no_job(vision):
    outputs = {"set": Output(type="uri_file", name="digits")}
    assert finished(vision, one("job", outputs=outputs)).status == "Completed"
    with workspace("vision"):
        said = description.show_job("job")["registered"]
    assert said == {"set": "not registered: the job did not write it"}


# the command line


@pytest.fixture
def there(cli, tmp_path):
    """A job ``job`` that has completed, in the workspace ``vision``."""
    made = cli(
        "job", "create", "-f", write_job(tmp_path, "true", **one_rank()), "-n", "job", "-w", "vision", "-s"
    )
    assert made.rc == 0, made.err
    return "vision"


def test_every_verb_takes_the_workspace(cli, there, tmp_path):
    assert json.loads(cli("job", "list", "-w", there, "--query", "[].name").out) == ["job"]
    assert f"{base_home()}/workspaces/vision/" in cli("job", "show", "job", "-w", there).out
    assert cli("job", "stream", "-n", "job", "--workspace-name", there).rc == 0
    assert cli("job", "archive", "-n", "job", "-w", there).rc == 0
    assert cli("job", "download", "-n", "job", "-w", there, "-p", tmp_path / "d").rc == 0
    planned = cli("plan", "-f", tmp_path / "job.yml", "-w", there, "-n", "x")
    assert f"{base_home()}/workspaces/vision/jobs/x/code" in planned.out
    ran = cli("run", "-w", "speech", "--name", "job", "--", "sh", "-c", "echo $DRUMLINE_WORKSPACE; exit 3")
    assert (ran.rc, ran.out) == (3, "speech\n")
    assert "next: drumline job show -n job -w speech" in ran.err


def test_a_job_of_another_workspace_is_told_where_it_is(cli, there, tmp_path):
    missing = cli("job", "show", "-n", "job")
    assert (missing.rc, "hint: it is in workspace 'vision': add -w vision" in missing.err) == (3, True)
    assert "no jobs here; workspace 'vision' has 1 job: add -w vision" in cli("job", "list").err
    cli("run", "--name", "mine", "--", "true")
    assert "it is in no workspace: add -w ''" in cli("job", "show", "-n", "mine", "-w", there).err
    assert cli("job", "show", "-n", "mine", "-w", "", env={"DRUMLINE_WORKSPACE": there}).rc == 0


def test_a_default_is_configured_once(cli, there, drumline_home):
    assert cli("configure", "--defaults", f"workspace={there}", "group=g").rc == 0
    assert cli("job", "show", "-n", "job").rc == 0
    assert oct((drumline_home / "defaults.json").stat().st_mode & 0o777) == "0o600"
    listed = json.loads(cli("configure", "--list-defaults").out)
    assert {one["name"]: one["value"] for one in listed} == {"workspace": "vision", "group": "g"}
    assert cli("job", "show", "-n", "job", env={"DRUMLINE_WORKSPACE": "speech"}).rc == 3
    assert cli("configure", "--defaults", "workspace=").rc == 0
    assert cli("job", "show", "-n", "job").rc == 3
    for wrong in ("workspace=../x", "workspace"):
        assert cli("configure", "--defaults", wrong).rc == 2
    (drumline_home / "defaults.json").write_text("[")
    damaged = cli("job", "list")
    assert (damaged.rc, "defaults.json is damaged" in damaged.err) == (2, True)


def test_the_configured_workspace_is_shown_and_updated_without_its_name(cli, there):
    assert cli("workspace", "show").rc == 2
    cli("configure", "--defaults", "workspace=speech", "group=team")
    fresh = json.loads(cli("workspace", "show", "--out", "json").out)
    assert (fresh["name"], fresh["jobs"]) == ("speech", 0)
    assert "/subscriptions/local/resourceGroups/team/providers/" in fresh["id"]
    words = ["--set", "tags.a=1", "public_network_access=Enabled", "--description", "d", "-c", "/id"]
    updated = cli("workspace", "update", *words)
    assert "warning: public_network_access: not used" in updated.err
    assert "warning: --container-registry: not used" in updated.err
    kept = json.loads(cli("workspace", "update", "--set", "tags.b=2", "--remove", "description").out)
    assert (kept["tags"], "description" in kept) == ({"a": "1", "b": "2"}, False)
    assert cli("workspace", "update", "-n", "none").rc == 3
    assert cli("workspace", "update", "-n", there, "--set", "name=x").rc == 2
    assert cli("workspace", "delete", "--yes").rc == 2
    assert json.loads(cli("job", "list", "--workspace", there, "--query", "[].name").out) == ["job"]


def test_workspaces_are_listed_made_and_removed(cli, there, drumline_home):
    made = cli("workspace", "create", "-n", "speech", "--description", "words", "--kind", "hub")
    assert (made.rc, json.loads(made.out)["description"]) == (0, "words")
    assert "--kind: not used" in made.err
    assert json.loads(cli("workspace", "list", "--query", "[].[name, jobs]").out) == [
        ["speech", 0],
        ["vision", 1],
    ]
    assert json.loads(cli("workspace", "show", "-w", "speech").out)["name"] == "speech"
    assert cli("workspace", "show", "-n", "none").rc == 3
    asked = cli("workspace", "delete", "-n", there)
    assert (asked.rc, "workspace 'vision' has 1 job" in asked.err) == (2, True)
    assert cli("workspace", "delete", "-n", there, "--yes").rc == 0
    assert os.listdir(drumline_home / "workspaces") == ["speech"]


def test_a_workspace_with_a_job_that_runs_is_not_removed(cli, vision):
    vision.jobs.create_or_update(one("long", f'exec python -c "{WAIT_FOR_SIGNAL}"'))
    refused = cli("workspace", "delete", "-n", "vision", "--yes")
    assert (refused.rc, "jobs that have not ended: long" in refused.err) == (2, True)
    assert "drumline job cancel -n long -w vision" in refused.err
    vision.jobs.begin_cancel("long").result()
    assert cli("workspace", "delete", "-n", "vision", "--yes").rc == 0


def test_what_is_not_given_of_a_workspace_stays(cli, vision):
    def shown(*words):
        return json.loads(cli("workspace", "create", "-n", "speech", *words).out)

    shown("--description", "one", "--tags", "a=b")
    assert (shown()["description"], shown("--set", "display_name=S")["tags"]) == ("one", {"a": "b"})
    made = vision.workspaces.begin_create(Workspace(name="speech", location="here")).result()
    assert (made.description, made.display_name, made.location) == ("one", "S", "here")
    with pytest.raises(ValidationException, match="description must be text"):
        vision.workspaces.begin_create(Workspace(name="speech", description=["two"]))
    assert vision.workspaces.get("speech").description == "one"
    assert shown("--description", "")["description"] == ""


def test_one_that_is_damaged_hides_no_other(cli, vision, drumline_home, capsys):
    for name in ("good", "bad"):
        cli("workspace", "create", "-n", name)
    (drumline_home / "workspaces" / "not one").mkdir()
    (drumline_home / "workspaces" / "bad" / "workspace.yml").write_text("[")
    listed = cli("workspace", "list", "--query", "[].name")
    assert (json.loads(listed.out), "bad/workspace.yml" in listed.err) == (["good"], True)
    assert [found.name for found in vision.workspaces.list()] == ["good"]
    assert "bad/workspace.yml" in capsys.readouterr().err
    assert cli("workspace", "create", "-n", "bad").rc == 0
    assert cli("workspace", "list", "-r", "-1").rc == 2


def test_folders_that_a_job_has_closed_go_with_their_workspace(vision, drumline_home):
    closed = "mkdir -p outputs/a/b && touch outputs/a/b/c && chmod 0 outputs/a/b && chmod 500 outputs/a"
    finished(vision, one("closed", closed))
    vision.workspaces.begin_delete("vision").result()
    assert os.listdir(drumline_home / "workspaces") == []


def test_a_version_of_the_base_home_is_no_hindrance(vision, drumline_home, tmp_path):
    vision_of_none = MLClient(None, "subscription", "group", None)
    vision_of_none.data.create_or_update(Data(name="set", version="1", path=tmp_path))
    outputs = {"set": Output(type="uri_folder", name="set", version="1")}
    assert finished(vision, one("first", "true", outputs=outputs)).status == "Completed"
    assert "first" in vision.data.get("set", version="1").path
    with pytest.raises(PlanError, match="there is version '1' of data 'set' already"):
        vision.jobs.create_or_update(one("second", "true", outputs=outputs))
    outputs["set"].version = "a b"
    with pytest.raises(PlanError, match=r"outputs\.set\.version: 'a b' cannot be a version"):
        vision.jobs.create_or_update(one("second", "true", outputs=outputs))
