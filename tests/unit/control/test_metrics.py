"""What is logged in several places, as one list."""

import os
from typing import Any

import pytest
from made_jobs import make_scalar
from planning import plan

from drumline.contract import events as e
from drumline.contract.folder import RunFolder
from drumline.control.facts import metrics
from drumline.tracking import metrics as files
from drumline.tracking import mlflow_files, runs


@pytest.fixture
def job(drumline_home):
    """A job that was submitted and has a run, and nothing else."""
    folder: Any = RunFolder.for_job("calm_drum")
    folder.create()
    made = plan(nodes=1)
    uri = mlflow_files.uri_of(folder.root)
    made = made._replace(user_env={**made.user_env, "MLFLOW_TRACKING_URI": uri})
    folder.write(folder.plan, made.to_json())
    folder.begin(e.JobSubmitted(0.0, "ann", "local"))
    runs.begin(folder, made, "ann", pytest.fail)
    folder.run_dir = files.run_dir_of(made)
    return folder


def test_what_mlflow_has_is_not_taken_from_tensorboard_too(job):
    files.log_value(job.run_dir, "loss", 0.5, 3)
    with open(f"{job.outputs}/events.out.tfevents.1.host", "wb") as file:
        file.write(make_scalar("loss", 9.0, 1) + make_scalar("acc", 0.25, 2))
    found = metrics.read_metrics(job)
    assert [(one.name, one.source, [point.value for point in one]) for one in found.series] == [
        ("acc", "tensorboard", [0.25]),
        ("loss", "mlflow", [0.5]),
    ]
    assert metrics.read_latest(job) == ({"acc": 0.25, "loss": 0.5}, 0)


def test_each_look_reads_what_is_new(job):
    reader = metrics.MetricsReader(job, ["l*"])
    assert reader.look().series == []
    files.log_value(job.run_dir, "loss", 0.5, 3)
    files.log_value(job.run_dir, "acc", 0.5, 3)
    assert [len(one) for one in reader.look().series] == [1]
    files.log_value(job.run_dir, "loss", 0.25, 4)
    assert [[point.value for point in one] for one in reader.look().series] == [[0.5, 0.25]]


def test_a_plan_that_was_damaged_has_no_metrics(job):
    job.write(job.plan, "[]")
    assert metrics.read_metrics(job).series == []
    assert metrics.read_latest(job) == ({}, 0)


def test_tags_that_are_pipes_or_folders_are_none(job):
    files.log_value(job.run_dir, "loss", 0.5, 3)
    kept = []
    for number, make in enumerate((os.mkfifo, os.mkdir)):
        tags = f"{job.run_dir}-{number}/tags"
        os.makedirs(tags)
        make(f"{tags}/mlflow.parentRunId")
        if make is os.mkfifo:
            kept.append(os.open(f"{tags}/mlflow.parentRunId", os.O_RDWR))
    assert metrics.read_latest(job) == ({"loss": 0.5}, 0)
    for descriptor in kept:
        os.close(descriptor)


def test_values_of_several_ranks_or_attempts_are_said_to_be_mixed(job):
    made = plan(nodes=2)
    uri = mlflow_files.uri_of(job.root)
    job.write(job.plan, made._replace(user_env={**made.user_env, "MLFLOW_TRACKING_URI": uri}).to_json())
    for step in (1, 2, 3):
        files.log_value(job.run_dir, "loss", 0.5, step)
    files.log_value(job.run_dir, "constant", 1.0, 0)
    files.log_value(job.run_dir, "constant", 2.0, 0)
    reader = metrics.MetricsReader(job)
    assert reader.look().notes == ()
    files.log_value(job.run_dir, "loss", 0.4, 2)
    (note,) = reader.look().notes
    ranks = len(made.ranks)
    assert (
        note
        == f"loss: several values for a step; the job's {ranks} ranks log to one run and are not told apart"
    )
    job.append(e.AttemptEnded(1.0, 0, 1, "it failed"))
    (note,) = metrics.read_metrics(job).notes
    assert f"the job's {ranks} ranks and 2 attempts log" in note


def test_experiments_of_deepspeed_have_their_names(job):
    """With MLflow its autotuner logs some to runs of these names itself: those are not told twice."""
    folder = f"{job.outputs}/autotuning_results/z0_gas1_tmbspg8"
    os.makedirs(folder)
    with open(f"{folder}/exp.json", "w") as file:
        file.write("{}")
    with open(f"{folder}/metrics.json", "w") as file:
        file.write('{"throughput": 812.5, "latency": 12.25, "rank": 0}')
    child = f"{os.path.dirname(job.run_dir)}/child"
    os.makedirs(f"{child}/tags")
    for name, text in (
        ("mlflow.parentRunId", os.path.basename(job.run_dir)),
        ("mlflow.runName", "z0_gas1_tmbspg8"),
    ):
        with open(f"{child}/tags/{name}", "w") as file:
            file.write(text)
    files.log_value(child, "latency", 12.25)
    found = metrics.read_metrics(job)
    assert [(one.name, one.run, one.source, [point.value for point in one]) for one in found.series] == [
        ("latency", "z0_gas1_tmbspg8", "mlflow", [12.25]),
        ("throughput", "z0_gas1_tmbspg8", "deepspeed", [812.5]),
    ]
    assert [one.name for one in metrics.read_metrics(job, ["thr*"]).series] == ["throughput"]
    assert metrics.read_latest(job)[0]["z0_gas1_tmbspg8/throughput"] == 812.5
