"""The run that plain MLflow finds. That MLflow really takes it is tested where MLflow is installed (integration)."""

import contextlib
import json
import os
from pathlib import Path

import pytest
import yaml
from planning import plan

from drumline.tracking import mlflow_files


def run_of(made):
    return next(Path(mlflow_files._path_of(made.user_env["MLFLOW_TRACKING_URI"])).glob("*/calm_drum"))


def job_in(tmp_path, **job):
    made = plan(nodes=1, **job)
    uri = mlflow_files.uri_of(str(tmp_path / "a home 50%"))
    return made._replace(user_env={**made.user_env, **_local(made, uri)})


def _local(made, uri):
    """The home's own tracking is moved to the test's folder; what the job chose stays."""
    return {"MLFLOW_TRACKING_URI": uri} if made.user_env["MLFLOW_TRACKING_URI"].startswith("file:") else {}


def test_a_run_is_there_before_the_ranks_are(tmp_path):
    made = job_in(tmp_path)
    mlflow_files.begin(made, "ann")
    run = run_of(made)
    meta = json.loads((run / "meta.yaml").read_text())
    assert (meta["run_id"], meta["status"], meta["end_time"]) == ("calm_drum", 1, None)
    assert sorted(path.name for path in run.iterdir() if path.is_dir()) == [
        "artifacts",
        "metrics",
        "params",
        "tags",
    ]
    assert json.loads((run.parent / "meta.yaml").read_text())["name"] == "digits"


@pytest.mark.parametrize(("status", "number"), [("Completed", 3), ("Failed", 4), ("Canceled", 5)])
def test_its_end_is_written(tmp_path, status, number):
    made = job_in(tmp_path)
    mlflow_files.begin(made, "ann")
    mlflow_files.end(made, status)
    meta = json.loads((run_of(made) / "meta.yaml").read_text())
    assert meta["status"] == number
    assert meta["end_time"] >= meta["start_time"]


def test_a_job_that_tracks_elsewhere_gets_none(tmp_path):
    made = job_in(tmp_path, environment_variables={"MLFLOW_TRACKING_URI": "http://127.0.0.1:5000"})
    mlflow_files.begin(made, "ann")
    assert list(tmp_path.iterdir()) == []


def test_it_is_for_its_owner_alone(tmp_path):
    made = job_in(tmp_path)
    mlflow_files.begin(made, "ann")
    for parent, _, names in os.walk(tmp_path / "a home 50%"):
        for path in [parent, *(os.path.join(parent, name) for name in names)]:
            assert os.stat(path).st_mode & 0o077 == 0


@pytest.mark.parametrize("damage", ["pipe", "link", "endless", "garbage", "aliases"])
@pytest.mark.timeout(20)
def test_what_a_job_made_of_its_file_holds_nothing_up_and_grows_nowhere(tmp_path, damage):
    made = job_in(tmp_path)
    mlflow_files.begin(made, "ann")
    meta = run_of(made) / "meta.yaml"
    meta.unlink()
    if damage == "pipe":
        os.mkfifo(meta)
    elif damage == "link":
        meta.symlink_to("/dev/zero")
    elif damage == "endless":
        meta.touch()
        os.truncate(meta, 1 << 40)
    elif damage == "garbage":
        meta.write_text("a: [\n")
    else:
        # Two levels of it: more of them have no end.
        meta.write_text(f"a: &a [{'x, ' * 300}]\nb: &b [{'*a, ' * 300}]\nc: [{'*b, ' * 30}]\n")
    with contextlib.suppress(OSError, yaml.YAMLError):
        mlflow_files.end(made, "Completed")
    assert damage != "aliases" or meta.stat().st_size < 10_000


def test_what_mlflow_wrote_of_a_run_stays(tmp_path):
    made = job_in(tmp_path)
    mlflow_files.begin(made, "ann")
    path = run_of(made) / "meta.yaml"
    meta = json.loads(path.read_text())
    path.write_text(yaml.safe_dump({**meta, "run_name": "a & b *", "deleted_time": None}))
    mlflow_files.end(made, "Failed")
    after = json.loads(path.read_text())
    assert (after["run_name"], after["status"], after["tags"]) == ("a & b *", 4, [])
    assert set(after) == {*meta, "deleted_time"}
