"""Metrics in as many bins as there is room for: nothing that sticks out is lost, and the size hardly matters."""

import math
import random
from array import array

import pytest

from drumline.contract import events as e
from drumline.contract.errors import NotFoundError, UsageError
from drumline.contract.record import describe_record
from drumline.control.facts import charts
from drumline.control.facts.charts import list_metrics, put_in_bins, read_series
from drumline.tracking import metrics as files
from drumline.tracking.metrics import MetricFile


def binned(places, values, most):
    return put_in_bins(array("d", places), array("d", values), most)


def test_no_extreme_value_is_lost():
    rand = random.Random(3)
    values = [rand.random() for _ in range(10_000)]
    values[7777] = 50.0
    values[1234] = -50.0
    found = binned(range(10_000), values, 100)
    assert len(found.x) == 100
    assert (max(found.most), min(found.least), found.value_count) == (50.0, -50.0, 10_000)
    assert found.last[-1] == values[-1]
    assert math.fsum(mean * 100 for mean in found.mean) == pytest.approx(math.fsum(values))


def test_few_values_stay_as_they_are():
    assert binned([1, 2, 4], [5, 6, 7], 100).x == [1, 2, 4]
    assert binned([], [], 10).x == []


def test_values_at_one_place_are_one_bin_however_they_come():
    found = binned([0, 1, 0, 1, 2], [1, 2, 3, 4, 5], 100)
    assert (found.x, found.least, found.most, found.last) == ([0, 1, 2], [1, 2, 5], [3, 4, 5], [3, 4, 5])
    assert len(binned([0] * 1000, range(1000), 10).x) == 10


def test_values_that_are_no_numbers_do_not_hide_the_others():
    found = binned([0, 0, 1, 2], [math.nan, 3, math.inf, 1], 10)
    assert (found.least, found.most) == ([3, None, 1], [3, None, 1])
    assert found.last == [3, None, 1]


def test_curves_of_several_jobs_are_read_with_one_question(job):
    job.log_metric("loss", ((1001_500 + step, 1 / (step + 1), step) for step in range(5000)))
    job.log_metric("acc", [(1002_000, 0.5, 7)])
    told = read_series([job.name], ["loss"], points=50)
    (curve,) = told.series
    assert (curve.job, curve.metric, curve.count, len(curve.x)) == (job.name, "loss", 5000, 50)
    assert (curve.max[0], curve.x[-1]) == (1.0, 4999)
    (curve,) = read_series([job.name], ["ac*"], axis="relative").series
    assert (curve.x, curve.last) == ([1.0], [0.5])
    (curve,) = read_series([job.name], ["ac*"], axis="time").series
    assert curve.x == [1002.0]
    listed = {one.name: one for one in list_metrics(job.name).metrics}
    assert (listed["loss"].points, listed["loss"].steps, listed["acc"].last) == (
        5000,
        (0, 4999),
        0.5,
    )


def test_what_comes_while_the_job_runs_is_seen_and_an_end_is_kept(job, monkeypatch):
    monkeypatch.setattr(charts, "_AGAIN", 0)
    job.log_metric("loss", [(1001_000, 1.0, 0)])
    assert read_series([job.name]).series[0].count == 1
    job.log_metric("loss", [(1002_000, 0.5, 1)])
    assert read_series([job.name]).series[0].count == 2
    job.add(e.JobEnded(1003.0, "Completed", 0, "fine"))
    assert read_series([job.name]).series[0].count == 2
    with monkeypatch.context() as unread:
        unread.setattr(charts.MetricsReader, "look", pytest.fail)
        assert read_series([job.name]).series[0].count == 2
    job.log_metric("loss", [(1004_000, 0.25, 2)])
    assert read_series([job.name]).series[0].count == 3


def test_readers_with_many_values_are_forgotten(job, monkeypatch):
    monkeypatch.setattr(charts, "_MOST_VALUES", 10)
    job.log_metric("loss", ((1001_000, 1.0, step) for step in range(20)))
    read_series([job.name])
    assert not charts._readers


def test_names_are_listed_without_reading_any_value(job, monkeypatch):
    job.log_metric("loss", [(1001_000, 1.0, 0)])
    job.log_metric("acc", [(1001_000, 0.5, 0)])
    with monkeypatch.context() as unread:
        unread.setattr(MetricFile, "read_more", pytest.fail)
        told = list_metrics(job.name, names_only=True)
    assert describe_record(told.metrics) == [
        {"name": name, "source": "mlflow", "run": ""} for name in ("acc", "loss")
    ]
    assert [one.points for one in list_metrics(job.name).metrics] == [1, 1]


def test_lines_that_mlflow_did_not_write_are_read_one_by_one(job):
    job.log_metric("loss", [(1, 1.0, 0), (2, 2.0, 1)])
    with open(files.metric_path(job.run_dir, "loss"), "a") as file:
        file.write("nonsense\n3 4.0 2 train\n4 5.0\n5 x 4\n")
    (curve,) = read_series([job.name]).series
    assert (curve.count, curve.last) == (4, [5.0, 2.0, 4.0])


def test_what_cannot_be_drawn_is_refused(job):
    with pytest.raises(UsageError, match="x must be"):
        read_series([job.name], axis="colour")
    with pytest.raises(NotFoundError):
        read_series(["no_such_job"])
