"""Homes that earlier versions wrote, read by this one: docs/development/versioning.md promises it."""

import json
import os
import shutil
from pathlib import Path

import pytest
from make_home import HOME

from drumline.cli.main import main
from drumline.contract.folder import RunFolder

HOMES = sorted(path for path in (Path(__file__).parents[2] / "homes").iterdir() if path.is_dir())
MOST_BYTES = 200_000


@pytest.fixture(params=HOMES, ids=lambda path: path.name)
def old(request, drumline_home):
    """A copy of the home, with its path in place of the one that was written down."""
    shutil.copytree(request.param, drumline_home, symlinks=True)
    for job in (drumline_home / "jobs").iterdir():
        for name in ("outputs", "user_logs", "system_logs"):
            if not os.path.lexists(job / name):
                (job / name).mkdir()  # Git keeps no empty folders.
    for path in list(drumline_home.rglob("*")):
        if path.is_symlink():
            link = str(path.readlink())
            path.unlink()
            path.symlink_to(link.replace(HOME, str(drumline_home)))
        elif path.is_file():
            text = path.read_text()
            if HOME in text:
                path.write_text(text.replace(HOME, str(drumline_home)))
    return drumline_home


@pytest.fixture
def ran(capsys):
    def run(*words, code=0):
        assert main(list(words)) == code, capsys.readouterr().err
        return capsys.readouterr().out

    return run


def test_jobs_of_earlier_versions_are_read(old, ran):
    listed = {job["name"]: job for job in json.loads(ran("job", "list", "-o", "json"))}
    assert {name: job["status"] for name, job in listed.items()} == {
        "completed": "Completed",
        "failed": "Failed",
        "preempted": "Completed",
        "pipeline": "Completed",
        "sweep": "Completed",
    }
    shown = {name: json.loads(ran("job", "show", "-n", name, "-o", "json")) for name in listed}
    assert shown["failed"]["reason"].startswith("rank 1 on node 0 failed first")
    assert "ValueError: loss is nan at step 3 (train.py:" in shown["failed"]["reason"]
    assert shown["failed"]["verdict"]["rank"] == shown["failed"]["failed_rank"] == 1
    assert [one["kind"] for one in shown["preempted"]["attempts"]] == ["preemption"]
    assert [one["status"] for one in shown["pipeline"]["steps"]] == ["Completed"] * 2
    assert [one["params"]["lr"] for one in shown["sweep"]["trials"]] == [0.1, 0.2]
    assert shown["sweep"]["best_trial"]
    assert len(shown["completed"]["ranks"]) == 4
    assert shown["completed"]["resources_used"]
    assert shown["completed"]["metrics"]["loss"] == pytest.approx(0.5 / 3)
    for name, job in shown.items():
        ran("job", "show", "-n", name, "-o", "table")
        assert job["creation_context"]["created_by"] == "ada"


def test_logs_metrics_and_timelines_of_earlier_versions_are_read(old, ran):
    logs = ran("job", "stream", "-n", "completed")
    assert all(f"step 2 of rank {rank}" in logs for rank in range(4))
    assert "ValueError: loss is nan at step 3" in ran("job", "stream", "-n", "failed", code=1)
    assert "ready" in ran("job", "stream", "-n", "preempted")
    assert "0.5" in ran("job", "stream", "-n", "pipeline")
    points = json.loads(ran("job", "metrics", "-n", "completed", "-o", "json"))
    assert "loss" in json.dumps(points)
    for name, attempts in (("completed", 1), ("failed", 1), ("preempted", 2)):
        for attempt in range(attempts):
            ran("job", "show", "-n", name, "--timeline")
            told = json.loads(
                ran("job", "show", "-n", name, "--timeline", "--attempt", str(attempt), "-o", "json")
            )
            assert told


def test_jobs_of_earlier_versions_can_be_kept_and_deleted(old, ran, tmp_path):
    ran("job", "archive", "-n", "failed")
    ran("job", "update", "-n", "completed", "--set", "tags.kept=yes")
    ran("job", "download", "-n", "pipeline", "--all", "-p", str(tmp_path / "copy"))
    ran("job", "download", "-n", "completed", "--all", "-p", str(tmp_path / "copy"))
    assert (tmp_path / "copy" / "named-outputs" / "model" / "model.txt").read_text() == "0.5\n"
    rows = {row["type"]: row for row in json.loads(ran("df", "-o", "json"))}
    assert (rows["jobs"]["count"], rows["jobs"]["in_use"]) == (9, 1)
    ran("prune", "--older-than", "0d", "--yes")
    assert [job["name"] for job in json.loads(ran("job", "list", "--include-archived"))] == ["failed"]


def test_events_that_a_later_version_adds_are_left_out(old, ran):
    folder = RunFolder.for_job("completed")
    with open(folder.events, "a") as file:
        file.write('{"type": "JobTeleported", "time": 1.0, "to": "moon"}\n')
    text = Path(folder.events).read_text()
    Path(folder.events).write_text(
        text.replace('"type":"JobSubmitted",', '"type":"JobSubmitted","mood":"good",')
    )
    assert json.loads(ran("job", "show", "-n", "completed", "-o", "json"))["status"] == "Completed"


def test_homes_are_small_and_speak_of_no_machine():
    assert HOMES
    files = [path for home in HOMES for path in home.rglob("*") if path.is_file() and not path.is_symlink()]
    assert sum(path.stat().st_size for path in files) < MOST_BYTES
    for path in files:
        text = path.read_text()
        assert not [place for place in ("/root", "/tmp/", "/work") if place in text], path
