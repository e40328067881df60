"""The SDK, in scripts shaped like those for azure-ai-ml with their imports changed."""

import json
import os
import subprocess
import sys
import threading

import pytest
from cli_jobs import WAIT_FOR_SIGNAL, job_names, wait_for_status

from drumline import Input, MLClient, PyTorchDistribution, command, load_job
from drumline.control.submission.planning import plan
from drumline.exceptions import JobException, ResourceNotFoundError, UserErrorException, ValidationException

SCRIPT = """
from drumline import Input, MLClient, command
from drumline.constants import AssetTypes, InputOutputModes
from drumline.entities import PyTorchDistribution

ml_client = MLClient(
    credential=None, subscription_id="<SUBSCRIPTION>", resource_group_name="<GROUP>", workspace_name="<WORKSPACE>"
)
job = command(
    code="./src",
    command="python train.py --data ${{inputs.data}} --epochs ${{inputs.epochs}}",
    inputs={
        "data": Input(type=AssetTypes.URI_FILE, path="data.txt", mode=InputOutputModes.RO_MOUNT),
        "epochs": 3,
    },
    environment="AzureML-acpt-pytorch-2.2-cuda12.1@latest",
    compute="gpu-cluster",
    instance_count=2,
    distribution=PyTorchDistribution(process_count_per_instance=2),
    display_name="from-a-script",
    experiment_name="scripts",
)
returned_job = ml_client.jobs.create_or_update(job)
assert returned_job.studio_url.startswith("file://"), returned_job.studio_url
ml_client.jobs.stream(returned_job.name)
assert ml_client.jobs.get(returned_job.name).status == "Completed"
"""


@pytest.fixture
def client():
    """In no workspace, as what waits for its jobs here; test_workspaces.py has those in one."""
    return MLClient(None, "subscription", "group")


@pytest.fixture
def ended(client):
    """A job that has completed, as ``get`` gives it back."""
    job = command(name="ended", command="echo hello; echo r > outputs/r", tags={"a": "1"}, **one())
    client.create_or_update(job)
    client.jobs.stream("ended")
    return client.jobs.get("ended")


def one():
    return {"distribution": PyTorchDistribution(process_count_per_instance=1)}


def long_job(name):
    return command(name=name, command=f'exec python -c "{WAIT_FOR_SIGNAL}"', **one())


def test_a_script_of_the_docs_runs_with_its_imports_changed(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text(
        "import os, sys; print('rank', os.environ['RANK'], sys.argv[1:])"
    )
    folder = tmp_path / "data.txt"
    folder.write_text("x")
    (tmp_path / "submit.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "submit.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    lines = [
        f"[{rank}|node-{rank // 2}] rank {rank} ['--data', '{folder}', '--epochs', '3']" for rank in range(4)
    ]
    assert lines == sorted(line for line in done.stdout.splitlines() if line.startswith("["))
    assert done.stdout.startswith("RunId: ")
    assert "Execution Summary" in done.stdout
    assert "warning: compute: 'gpu-cluster' is not attached" in done.stderr


def test_what_is_streamed_is_in_order_on_a_pipe(client, ended, tmp_path, monkeypatch):
    """The header goes through a text layer, the lines past it."""
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    script = "from drumline import MLClient; MLClient().jobs.stream('ended')"
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60).stdout
    assert out.index("RunId:") < out.index("hello") < out.index("Execution Summary")


def test_a_job_without_a_name_gets_one(client):
    job = command(command="true", **one())
    returned = client.create_or_update(job)
    assert returned.name == job.name
    wait_for_status(returned.name, "Completed")


def test_get_gives_the_job_back(ended, drumline_home):
    assert (ended.name, ended.status, ended.tags) == ("ended", "Completed", {"a": "1"})
    assert ended.distribution == PyTorchDistribution(process_count_per_instance=1)
    assert ended.creation_context.created_at.endswith("Z")
    assert ended.log_files == {
        "user_logs/std_log.txt": str(drumline_home / "jobs/ended/user_logs/std_log.txt")
    }


def test_a_submitted_job_says_where_it_is_to_be_found(ended, drumline_home, tmp_path):
    """As scripts print it; what was found is no part of the job that is written or submitted again."""
    assert ended.services["Studio"].endpoint == ended.studio_url == f"file://{drumline_home}/jobs/ended"
    assert ended.services.Tracking.endpoint.startswith("file://")
    ended.dump(tmp_path / "again.yml")
    assert "services" not in (tmp_path / "again.yml").read_text()
    assert not any("services" in said for said in plan(ended).warnings)


def test_get_of_a_job_that_is_not_there_raises(client):
    with pytest.raises(ResourceNotFoundError, match="there is no job 'none'"):
        client.jobs.get("none")


def test_update_changes_what_is_given(client, ended):
    updated = client.jobs.update("ended", description="new")
    assert (updated.description, updated.tags) == ("new", {"a": "1"})


def test_a_job_that_was_fetched_can_be_submitted_again(client, tmp_path, monkeypatch):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "x.py").write_text("print('again')")
    (tmp_path / "in").write_text("")
    monkeypatch.chdir(tmp_path)
    client.create_or_update(
        command(
            name="one",
            command="python x.py ${{inputs.i}}",
            code="src",
            inputs={"i": Input(type="uri_file", path="in")},
            **one(),
        )
    )
    wait_for_status("one", "Completed")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    fetched = client.jobs.get("one")
    fetched.name = "two"
    client.create_or_update(fetched)
    assert wait_for_status("two", "Completed", "Failed")["reason"] == "its only rank ended with exit code 0"


def test_list_archive_and_restore(client, ended):
    def listed(**kwargs):
        return [job.name for job in client.jobs.list(**kwargs)]

    assert listed() == ["ended"]
    client.jobs.archive("ended")
    assert (listed(), listed(list_view_type="ArchivedOnly"), listed(list_view_type="All")) == (
        [],
        ["ended"],
        ["ended"],
    )
    client.jobs.restore("ended")
    assert listed() == ["ended"]


def test_stream_of_a_failed_job_raises_with_the_reason(client, capfd):
    client.create_or_update(command(name="failed", command="echo last words; exit 3", **one()))
    with pytest.raises(
        JobException, match=r"job failed failed: rank 0 on node 0 failed [\d.]+ s in: exit code 3"
    ):
        client.jobs.stream("failed")
    assert "last words" in capfd.readouterr().out


def test_a_submission_returns_before_the_end_and_begin_cancel_waits_for_it(client):
    returned = client.jobs.create_or_update(long_job("long"))
    assert returned.name == "long"
    assert returned.status not in ("Completed", "Failed", "Canceled")
    wait_for_status("long", "Running")
    poller = client.jobs.begin_cancel("long")
    poller.result()
    assert poller.done()
    assert (poller.status(), client.jobs.get("long").status) == ("Succeeded", "Canceled")


def test_cancel_asks_and_returns(client):
    client.create_or_update(long_job("long"))
    wait_for_status("long", "Running")
    client.jobs.cancel("long")
    wait_for_status("long", "Canceled")


def test_download_brings_artifacts(client, ended, tmp_path):
    client.jobs.download("ended", download_path=tmp_path / "here", all=True)
    assert (tmp_path / "here" / "artifacts" / "outputs" / "r").read_text() == "r\n"


def test_the_default_output_is_the_folder_outputs(client, ended):
    assert ended.outputs["default"].path == "azureml://jobs/ended/outputs/default"
    given = {"e": Input(path=ended.outputs["default"].path)}
    client.create_or_update(command(name="next", command='grep r "${{inputs.e}}/r"', inputs=given, **one()))
    wait_for_status("next", "Completed")


def test_a_fetched_job_writes_to_its_own_outputs_when_it_is_submitted_again(client, drumline_home):
    client.create_or_update(
        command(name="one", command="date > ${{outputs.o}}/x", outputs={"o": None}, **one())
    )
    wait_for_status("one", "Completed")
    again = client.jobs.get("one")
    again.name = "two"
    client.create_or_update(again)
    wait_for_status("two", "Completed")
    assert (drumline_home / "jobs" / "two" / "named-outputs" / "o" / "x").exists()


def test_validate_tells_every_problem(client):
    job = command(command="echo ${{inputs.x}}", inputs={"a b": 1}, **one())
    result = client.jobs.validate(job)
    assert not result.passed
    assert len(result.problems) == 2
    with pytest.raises(ValidationException):
        client.jobs.validate(job, raise_on_failure=True)


def test_a_job_that_cannot_be_raises_and_creates_nothing(client, drumline_home):
    with pytest.raises(UserErrorException, match=r"inputs\.x"):
        client.create_or_update(command(command="echo ${{inputs.x}}", **one()))
    assert job_names(drumline_home) == []


def test_a_job_file_is_submitted_as_it_is(client, tmp_path):
    (tmp_path / "job.yml").write_text("command: echo from yaml\nname: yaml\ndistribution: {type: pytorch}\n")
    client.create_or_update(load_job(source=str(tmp_path / "job.yml")))
    client.jobs.stream("yaml")


def test_from_config_reads_the_names(tmp_path):
    config = {"subscription_id": "s", "resource_group": "g", "workspace_name": "w"}
    (tmp_path / ".azureml").mkdir()
    (tmp_path / ".azureml" / "config.json").write_text(json.dumps(config))
    (tmp_path / "below").mkdir()
    client = MLClient.from_config(path=tmp_path / "below")
    assert (client.subscription_id, client.resource_group_name, client.workspace_name) == ("s", "g", "w")


def test_submitting_does_not_fork_this_process(client, monkeypatch):
    def no_fork():
        raise AssertionError("forked")

    monkeypatch.setattr(os, "fork", no_fork)
    client.create_or_update(command(name="job", command="true", **one()))
    wait_for_status("job", "Completed")


def test_two_threads_may_submit_at_once(client, drumline_home):
    def submit(name):
        client.create_or_update(command(name=name, command="true", **one()))

    threads = [threading.Thread(target=submit, args=(f"job{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(4):
        wait_for_status(f"job{number}", "Completed")
    assert sorted(job.name for job in client.jobs.list()) == ["job0", "job1", "job2", "job3"]
