"""The experiments of DeepSpeed's autotuner in what is told of a job."""

import math
import os

import pytest
from made_jobs import MadeJob

from drumline.cli.views import show
from drumline.contract import events as e
from drumline.contract.folder import RunFolder
from drumline.contract.outcome import fold
from drumline.contract.record import describe_record
from drumline.control.facts import description, parts, start
from drumline.control.facts.job import JobFacts
from drumline.control.logs import stream

WHY = "RuntimeError: out of memory (rank 3 on h2)"


@pytest.fixture
def job(drumline_home):
    made = MadeJob()
    made.start()
    made.add(
        e.ExperimentBegan(1010.0, "z0", 0),
        e.ExperimentEnded(1012.5, "z0", "Completed"),
        e.ExperimentBegan(1013.0, "z1", 1),
        e.ExperimentEnded(1014.0, "z1", "Failed", WHY),
        e.ExperimentBegan(1015.0, "z2", 2),
    )
    return made


def read(job):
    folder = RunFolder.for_job(job.name)
    return folder, fold(folder.read_events())


def test_an_experiment_of_an_attempt_that_ended_has_ended(job):
    job.add(e.AttemptEnded(1016.0, 0, 1, "node 1 was lost"))
    _, outcome = read(job)
    one = outcome.experiments["z2"]
    assert (one.status, one.ended, one.reason) == ("Failed", 1016.0, "its attempt ended")


def test_nobody_has_canceled_an_experiment_of_a_job_that_failed(job):
    job.add(e.JobEnded(1020.0, "Failed", 1, "rank 0 failed"))
    told = description.describe(*read(job))["experiments"]
    assert told[-1]["status"] == "Failed"


def test_a_job_tells_of_each_with_its_measurements(job):
    folder, outcome = read(job)
    place = f"{folder.outputs}/autotuning_results/z0"
    os.makedirs(place)
    for name, text in (("exp.json", '{"exp_id": 0}'), ("metrics.json", '{"throughput": 812.5}')):
        with open(f"{place}/{name}", "w") as file:
            file.write(text)
    told = description.describe(folder, outcome)["experiments"]
    assert [(one["experiment"], one["number"], one["status"], one["reason"]) for one in told] == [
        ("z0", 0, "Completed", ""),
        ("z1", 1, "Failed", WHY),
        ("z2", 2, "Running", ""),
    ]
    assert [one["seconds"] for one in told] == [2.5, 1.0, None]
    assert [one["metrics"] for one in told] == [{"throughput": 812.5}, {}, {}]
    assert "metrics" not in description.describe(folder, outcome, brief=True)["experiments"][0]


def test_one_that_the_job_left_behind_is_canceled(job):
    job.add(e.JobEnded(1020.0, "Canceled", 130, "canceled by ann"))
    folder, outcome = read(job)
    assert description.describe(folder, outcome)["experiments"][2]["status"] == "Canceled"


def test_a_failed_one_is_said_where_the_job_ends_and_on_its_page(job):
    job.add(e.JobEnded(1020.0, "Completed", 0, "its only rank ended with exit code 0"))
    folder, outcome = read(job)
    said = f"experiment z1 failed: {WHY}"
    assert f"  {said}\n" in stream.ending(folder, outcome)
    assert JobFacts(folder, outcome).warnings == [said]


def test_a_timeline_has_their_times(job):
    told = start.describe_start(job.name)
    assert [(one.experiment, one.status) for one in told.experiments] == [
        ("z0", "Completed"),
        ("z1", "Failed"),
        ("z2", "Running"),
    ]
    assert told.experiments[0].to_s - told.experiments[0].from_s == pytest.approx(2.5)
    lines = [line for line in show.render_start(told).splitlines() if line.startswith("experiment")]
    assert [line.split("  ")[-1] for line in lines] == ["z0 completed", f"z1 failed: {WHY}", "z2 running"]
    _, outcome = read(job)
    assert [one.experiment for one in parts.list_times(outcome, 1012.7, math.inf)] == [
        "z1",
        "z2",
    ]


def test_a_job_without_any_says_nothing_of_them(drumline_home):
    made = MadeJob()
    made.start()
    folder, outcome = read(made)
    assert "experiments" not in description.describe(folder, outcome)
    assert "experiments" not in describe_record(start.describe_start(made.name))
