"""Metrics in MLflow's file store, without MLflow. That MLflow reads them is tested where it is installed."""

import os
import stat
import subprocess
import sys

import pytest
from planning import plan

from drumline.contract.errors import UsageError
from drumline.tracking import metrics, mlflow_files


def test_what_was_logged_is_read_back_in_its_order(tmp_path):
    run = str(tmp_path)
    metrics.log_value(run, "loss", 0.5, step=3, timestamp_ms=17)
    metrics.log_value(run, "loss", 1, step=1, timestamp_ms=18)
    metrics.log_value(run, "val/accuracy", float("nan"))
    assert metrics.read_history(run, "loss") == [(3, 17, 0.5), (1, 18, 1.0)]
    assert metrics.list_names(run) == ["loss", "val/accuracy"]
    assert str(metrics.read_history(run, "val/accuracy")[0].value) == "nan"
    assert (tmp_path / "metrics" / "loss").read_text() == "17 0.5 3\n18 1.0 1\n"
    assert metrics.read_history(run, "never") == []


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "../x",
        "/etc/x",
        "a//b",
        "a/../../b",
        "a\nb",
        "a/",
        "ä" * 300,
        "a" * 247 + "/..x",
        "a" * 249 + "/b",
    ],
)
def test_a_name_cannot_lead_out_of_the_run(tmp_path, name):
    with pytest.raises(UsageError, match="metric"):
        metrics.log_value(str(tmp_path), name, 1.0)
    with pytest.raises(UsageError, match="metric"):
        metrics.read_history(str(tmp_path), name)
    assert not list(tmp_path.iterdir())
    usable = metrics.clean_name(name)
    assert metrics.clean_name(usable) == usable
    metrics.log_value(str(tmp_path), usable[:100], 1.0)
    assert metrics.list_names(str(tmp_path)) == [usable[:100]]


def test_lines_that_are_none_and_files_that_are_none_are_left_out(tmp_path):
    folder = tmp_path / "metrics"
    folder.mkdir()
    (folder / "loss").write_text("1 0.5 0\n2 0.2\nrubbish\n\n3 x 1\n4 0.1 2 data digest\n5 0.")
    assert [point.value for point in metrics.read_history(str(tmp_path), "loss")] == [0.5, 0.2, 0.1]
    os.mkfifo(folder / "pipe")
    (folder / "link").symlink_to("/etc/hostname")
    assert metrics.read_history(str(tmp_path), "pipe") == []
    assert metrics.read_history(str(tmp_path), "link") == []
    with pytest.raises(OSError, match="link"):
        metrics.log_value(str(tmp_path), "link", 1.0)


def test_only_whole_lines_are_read(tmp_path):
    metrics.log_value(str(tmp_path), "loss", 0.5, timestamp_ms=17)
    with open(tmp_path / "metrics" / "loss", "a") as file:
        file.write("18 0.4")
    assert metrics.read_history(str(tmp_path), "loss") == [(0, 17, 0.5)]


def test_they_are_for_their_owner_alone(tmp_path):
    metrics.log_value(str(tmp_path), "val/loss", 1.0)
    for path in (tmp_path / "metrics", tmp_path / "metrics" / "val", tmp_path / "metrics" / "val" / "loss"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0


def test_several_processes_log_the_same_metric(tmp_path):
    code = (
        "import sys; from drumline.tracking import metrics\n"
        "for step in range(300): metrics.log_value(sys.argv[1], 'loss', float(sys.argv[2]), step)"
    )
    ranks = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path), str(rank)]) for rank in range(2)]
    assert [rank.wait() for rank in ranks] == [0, 0]
    points = metrics.read_history(str(tmp_path), "loss")
    assert sorted((point.value, point.step) for point in points) == [
        (rank, step) for rank in (0.0, 1.0) for step in range(300)
    ]


def test_the_run_of_a_job_is_the_same_from_within_and_from_without(tmp_path):
    made = plan(nodes=1)
    made = made._replace(
        user_env={**made.user_env, "MLFLOW_TRACKING_URI": mlflow_files.uri_of(str(tmp_path))}
    )
    inside = {"AZUREML_RUN_ID": made.job, **made.user_env}
    assert metrics.run_dir_of(made) == metrics.run_dir_here(inside) != ""
    assert metrics.run_dir_here({**inside, "MLFLOW_TRACKING_URI": "http://127.0.0.1:5000"}) == ""
    assert metrics.run_dir_here({**inside, "MLFLOW_RUN_ID": "mine"}) == ""
    assert metrics.run_dir_here({}) == ""
