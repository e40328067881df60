"""Steps of jobs that no hook follows: what their metrics and logs say."""

import os
import time

import pytest
from made_jobs import MadeJob

from drumline.contract import steps as contract
from drumline.control.facts import steps
from drumline.control.facts.history import describe_attempt_steps
from drumline.control.facts.metrics import find_marks
from drumline.control.jobs.job_outcome import read_outcome
from drumline.tracking import metrics

KERAS = "\x1b[1m{}/20\x1b[0m \x1b[37m━━━━\x1b[0m \x1b[1m3s\x1b[0m 12ms/step - loss: 0.5"


def list_marks(*lines):
    return [(mark.done, mark.total) for mark in find_marks(enumerate(map(str.encode, lines)))]


@pytest.mark.parametrize(
    ("lines", "marks"),
    [
        (["step 10/200 loss 0.5", "step 20/200 loss 0.4"], [(10, 200), (20, 200)]),
        (["[x] INFO Step: 7 of 9"], [(7, 9)]),
        (["iter 10: loss 3", "iter 20: loss 2"], [(10, None), (20, None)]),
        (["global_step=10, loss=3", "global_step=20, loss=2"], [(10, None), (20, None)]),
        (["step 5/10 val loss 3", "eval step 1/3", "saved at step 5"], [(5, 10)]),
        (["Epoch 1/3", KERAS.format(20), "Epoch 2/3", KERAS.format(4)], [(20, 60), (24, 60)]),
        (["Epoch 2/3", "20/20 - 1s - 12ms/step - loss: 0.5"], [(40, 60)]),
        (["Epoch 3/3", "20/20 - 1s - loss: 0.5", "7/7 - 0s - loss: 0.6"], [(60, 60)]),
    ],
)
def test_lines_that_count_steps(lines, marks):
    assert list_marks(*lines) == marks


@pytest.mark.parametrize(
    "lines",
    [
        ["step 10: begins"],
        ["max step 10", "every step 20"],
        ["took 3 steps/s", "12ms/step", "step 0.5", "step 12.5"],
        ["epoch 1", "step 10/200"],
        ["step 190/200", "step 10/200"],
        ["step 1/3", "step 2/4"],
        ["step 30/20"],
        ["20/20 - 1s - loss: 0.5"],
        ["Epoch 2/3", KERAS.format(20), "Epoch 1/3", KERAS.format(4)],
        ["fraction 3/4 done"],
        [],
    ],
)
def test_lines_that_leave_a_doubt_say_nothing(lines):
    assert list_marks(*lines) == []


@pytest.fixture
def job(drumline_home):
    return MadeJob("calm_drum", nodes=1, procs=2)


def describe(job):
    return steps.describe_steps(job.folder, read_outcome(job.folder))


def test_a_job_that_says_nothing_has_no_steps(job):
    assert describe(job) is None
    job.log(0, "hello\n")
    assert describe(job) is None


def test_a_log_says_how_far_and_its_looks_how_fast(job):
    for second in range(0, 200, 10):
        job.log(0, f"step {second}/1000\n", at=1000.0 + second)
    found = describe(job)
    assert found is not None
    assert steps.list_parts(found) == ["step 190 of 1,000 (log of rank 0), 1 steps/s, 13m left"]
    assert (found.sources, found.step_s) == (["log"], pytest.approx(1.0))


def test_a_silent_rank_is_passed_by(job):
    job.log(0, "ready\n")
    job.log(1, "step 3/10\n")
    assert describe(job).told_by == "log of rank 1"


def test_the_metric_with_the_most_steps_counts(job):
    job.track()
    for step in range(100, 400, 100):
        metrics.log_value(job.run_dir, "loss", 0.5, step, timestamp_ms=1_000_000 + 100 * step)
    metrics.log_value(job.run_dir, "epoch_loss", 0.5, 2, timestamp_ms=1_000_000)
    metrics.log_value(job.run_dir, "system/cpu", 0.5, 5000, timestamp_ms=1_000_000)
    found = describe(job)
    assert found is not None
    assert steps.list_parts(found) == ["step 300 (metric loss), 10 steps/s"]
    assert found.sources == ["metrics"]
    # A log says more where it also knows the end.
    job.log(0, "step 5: loss 3\nstep 6: loss 2\n")
    assert describe(job).told_by == "metric loss"
    job.log(0, "step 301/1000\n")
    assert describe(job).total == 1000


def test_metrics_without_steps_say_nothing(job):
    job.track()
    metrics.log_value(job.run_dir, "loss", 0.5)
    assert describe(job) is None


def write_looks(job, *lines):
    path = job.folder.steps_path(0, 0)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "ab") as file:
        for at, counts in lines:
            looks = [contract.Looks(at, at, rank, 7, one) for rank, one in counts.items()]
            file.write(contract.to_line([], looks))


def test_stacks_say_where_the_time_goes_of_the_last_minute(job):
    write_looks(
        job,
        (1000.0, {0: (90, 0, 0, 0)}),
        *[(1100.0 + at, {0: (1, 0, 0, 2), 1: (0, 3, 0, 0)}) for at in range(7)],
    )
    found = describe(job)
    assert found is not None
    assert steps.list_parts(found) == [
        "input 17 %, communication 50 %, computing 33 % (by 42 looks at stacks)"
    ]
    assert (found.done, found.sources, found.looks) == (None, ["stacks"], 42)
    assert found.phases == {"input": 0.1667, "communication": 0.5, "idle": 0.0, "computing": 0.3333}
    told = describe_attempt_steps(job.name)
    assert (told.progress, [one.key for one in told.phases]) == (
        "",
        ["input", "communication", "computing"],
    )
    job.log(0, "step 3/10\n")
    assert steps.list_parts(describe(job))[0] == "step 3 of 10 (log of rank 0)"
    assert describe(job).sources == ["log", "stacks"]
    assert describe_attempt_steps(job.name).progress == "step 3 of 10 (log of rank 0)"


def test_few_looks_say_nothing(job):
    write_looks(job, (1000.0, {0: (0, 0, 0, 19), 1: (0, 19, 0, 0)}))
    assert describe(job) is None
    job.log(0, "step 3/10\n")
    assert describe(job).looks is None


def test_steps_that_a_hook_has_seen_count_more_than_stacks(job):
    write_looks(job, *[(1100.0 + at, {0: (0, 0, 0, 9)}) for at in range(7)])
    seconds = {"step": contract.Spread(0.1, 0.1, 0.1), "forward": contract.Spread(0.1, 0.1, 0.1)}
    with open(job.folder.steps_path(0, 0), "ab") as file:
        file.write(contract.to_line([contract.Window(1101.0, 1101.0, 0, 7, 10, 10, seconds)]))
    found = describe(job)
    assert (found.sources, found.looks, found.phases) == (
        ["optimizer"],
        None,
        {"forward": 1.0, "other": 0.0},
    )


def test_a_line_of_many_blanks_costs_nothing():
    began = time.perf_counter()
    assert list_marks(*["step" + " " * 1900 + "x"] * 50) == []
    assert time.perf_counter() - began < 2.0
