"""What the studio does to jobs: submit, cancel, preempt, archive, restore, rerun."""

import json

import pytest
import yaml
from cli_jobs import WAIT_FOR_SIGNAL, one_rank, status_of, wait_for_status, write_job
from studio_server import run_studio
from waiting import wait_until

JOB = {"command": "true", "inputs": {"lr": 0.5}, "tags": {"a": "b"}}


@pytest.fixture
def studio():
    with run_studio() as server:
        yield server


def row_of(studio, name):
    return {job["name"]: job for job in studio.get("/jobs?archived=all")["jobs"]}.get(name)


def test_a_job_is_submitted_from_text(studio, tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text("print('trained')\n")
    text = json.dumps({"command": "python train.py ${{inputs.lr}}", "code": "src", "inputs": {"lr": 0.5}})
    answer = studio.post("/jobs", {"yaml": text, "set": {"inputs.lr": 0.25}, "folder": str(tmp_path)})
    assert answer.status == 201, answer.data
    name = answer.json["name"]
    assert row_of(studio, name), "the answer to the next question has it"
    wait_for_status(name, "Completed")
    assert yaml.safe_load(studio.get(f"/jobs/{name}/spec")["yaml"])["inputs"]["lr"] == 0.25


MISTAKES = (
    ({"yaml": "comand: true"}, "comand"),
    ({"yaml": "command: ["}, ""),
    ({"yaml": " "}, "the job file is missing"),
    ({"yaml": 7}, "yaml must be a text"),
    ({"yaml": "command: true", "set": [1]}, "set must be an object"),
    ({"yaml": "command: true", "folder": "nowhere"}, "there is no folder"),
    ({"yaml": "command: 'true'\nenvironment_variables: {MY_TOKEN: (hidden)}"}, "a value that was hidden"),
    ({"yaml": "command: 'true'", "set": {"environment_variables.A": "(hidden)"}}, "a value that was hidden"),
    ({"yaml": "command: 'true'\nresources: {instance_count: -1}"}, "instance_count"),
)


def test_a_job_file_with_a_mistake_is_refused_with_its_place(studio):
    for given, says in MISTAKES:
        answer = studio.post("/jobs", given)
        assert answer.status == 400, f"{given}: {answer.data!r}"
        error = answer.json["error"]
        assert says in error["message"], given
        assert "\n" not in error["message"], given
        if "comand" in str(given):
            assert error["problems"][0]["line"] == 1
    assert studio.get("/jobs")["total"] == 0


def test_running_jobs_are_canceled_one_by_one_and_together(studio, cli, tmp_path):
    write_job(tmp_path, f'python -c "{WAIT_FOR_SIGNAL}"', **one_rank())
    for name in ("one", "two"):
        cli("job", "create", "-f", "job.yml", "-n", name)
    wait_until(lambda: (row_of(studio, "one") or {}).get("status") in ("Running", "Queued"), 20.0)
    assert studio.post("/jobs/one/cancel", {"at_once": True}).json == {"name": "one", "requested": True}
    wait_for_status("one", "Canceled")
    assert studio.post("/jobs/one/cancel", {}).json["requested"] is False
    told = studio.post("/jobs/cancel", {"names": ["two", "one", "three"], "at_once": True}).json
    assert told["done"] == ["two"]
    assert {one["name"]: one["message"] for one in told["failed"]} == {
        "one": "job one has ended already",
        "three": "there is no job 'three'",
    }
    wait_for_status("two", "Canceled")
    wait_until(lambda: row_of(studio, "two")["status"] == "Canceled", 20.0)


def test_ended_jobs_are_archived_and_restored(studio, cli, tmp_path):
    write_job(tmp_path, "true")
    cli("job", "create", "-f", "job.yml", "-n", "job", "--stream")
    assert studio.post("/jobs/job/archive", {}).json == {"name": "job", "archived": True}
    assert studio.get("/jobs")["jobs"] == []
    assert studio.post("/jobs/job/restore", {}).json == {"name": "job", "archived": False}
    assert studio.get("/jobs")["total"] == 1
    assert studio.post("/jobs/archive", {"names": ["job"]}).json["done"] == ["job"]
    assert studio.post("/jobs/archive", {"names": ["job"], "archived": False}).json["done"] == ["job"]
    assert studio.get("/jobs")["total"] == 1


def test_a_job_runs_again_with_changes(studio, cli, tmp_path):
    (tmp_path / "job.yml").write_text(json.dumps(JOB))
    cli("job", "create", "-f", "job.yml", "-n", "job", "--stream")
    answer = studio.post(
        "/jobs/job/rerun", {"set": {"inputs.lr": 0.125}, "new_name": "again", "compute": None}
    )
    assert (answer.status, answer.json["name"]) == (201, "again")
    wait_for_status("again", "Completed")
    assert yaml.safe_load(studio.get("/jobs/again/spec")["yaml"])["inputs"]["lr"] == 0.125
    assert studio.post("/jobs/job/rerun", {"code": "later"}).status == 400


def test_a_job_whose_ranks_do_not_run_is_not_preempted(studio, cli, tmp_path):
    write_job(tmp_path, "true")
    cli("job", "create", "-f", "job.yml", "-n", "job", "--stream")
    answer = studio.post("/jobs/job/preempt", {})
    assert answer.status == 400
    assert "no ranks that run" in answer.json["error"]["message"]
    assert status_of("job") == "Completed"
