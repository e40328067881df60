"""Many values, and files that a job may have made worse than it should."""

import math
import os
import time

import pytest

from drumline.tracking import metrics
from drumline.tracking import runs as children_module
from drumline.tracking.metrics import MetricFile, Point, Series
from drumline.tracking.runs import ChildRuns


def series(*points):
    made = Series("loss", "mlflow")
    made.extend(points)
    return made


def test_figures_leave_out_what_is_not_finite():
    made = series(Point(0, 1, 3.0), Point(2, 2, math.nan), Point(2, 3, 1.0), Point(1, 4, -math.inf))
    assert made.figures() == (4, Point(2, 3, 1.0), 1.0, 3.0, 2, (0, 2))
    assert series().figures() == (0, None, None, None, 0, (0, 0))
    assert series(Point(0, 0, math.nan)).figures().lowest is None


def test_steps_can_be_chosen():
    made = series(*(Point(step, step, step * 1.0) for step in range(5)))
    assert [point.step for point in made.between(1, 3)] == [1, 2, 3]
    assert [point.step for point in made.between(None, 1)] == [0, 1]
    assert made.between(None, None) is made


def test_columns_are_means_over_the_steps_and_over_the_order_where_there_is_one_step():
    made = series(Point(0, 0, 1.0), Point(0, 0, 3.0), Point(10, 0, 5.0), Point(10, 0, math.nan))
    assert made.columns(3) == [2.0, None, 5.0]
    assert series(Point(7, 0, 1.0), Point(7, 0, 2.0), Point(7, 0, 3.0)).columns(3) == [1.0, 2.0, 3.0]
    assert series().columns(2) == [None, None]


def test_what_no_number_of_64_bits_holds_is_left_out():
    made = series(Point(1 << 70, 0, 1.0), Point(0, 1 << 70, 1.0), Point(3, 4, 2.0))
    assert list(made) == [Point(3, 4, 2.0)]


def test_a_million_values_are_read_in_little_memory_and_time(tmp_path):
    folder = tmp_path / "metrics"
    folder.mkdir()
    block = "".join(f"1700000000000 0.5 {step}\n" for step in range(10_000))
    (folder / "loss").write_text(block * 100)
    metric = MetricFile(str(tmp_path), "loss", Series("loss", "mlflow"))
    began = time.process_time()
    metric.read_more(math.inf)
    assert metric.series.figures().value_count == 1_000_000
    assert time.process_time() - began < 8.0
    with open(folder / "loss", "a") as file:
        file.write("1 2.5 10000\n1 3")
    metric.read_more(math.inf)
    assert metric.series.figures()[:2] == (1_000_001, Point(10_000, 1, 2.5))
    assert metrics.read_latest(str(tmp_path), "loss") == Point(10_000, 1, 2.5)


@pytest.mark.parametrize(
    ("lines", "points"),
    [
        ("1 0.5 2\n2 1e-05 3\n3 4 4\n", [Point(2, 1, 0.5), Point(3, 2, 1e-05), Point(4, 3, 4.0)]),
        ("1 -inf 2\n2 1.5 3\n", [Point(2, 1, -math.inf), Point(3, 2, 1.5)]),
        ("01 0.5 2\n2 .5 3\n", [Point(2, 1, 0.5), Point(3, 2, 0.5)]),
        ("1.5 0.5 2\n2 0.25 3\n", [Point(3, 2, 0.25)]),
        ("1 true 2\n2 0.25 3\n", [Point(3, 2, 0.25)]),
        ("1  2\n2 0.25 3\n", [Point(3, 2, 0.25)]),
        (f"{1 << 70} 0.5 2\n2 0.25 3\n", [Point(3, 2, 0.25)]),
        ("1 2\n", [Point(0, 1, 2.0)]),
        ("", []),
    ],
)
def test_a_line_is_read_the_same_in_whatever_company(tmp_path, lines, points):
    (tmp_path / "metrics").mkdir()
    (tmp_path / "metrics" / "loss").write_text(lines)
    metric = MetricFile(str(tmp_path), "loss", Series("loss", "mlflow"))
    metric.read_more(math.inf)
    assert list(metric.series) == points


def test_a_look_that_has_no_time_goes_on_at_the_next(tmp_path):
    folder = tmp_path / "metrics"
    folder.mkdir()
    (folder / "loss").write_text("1 0.5 1\n" * 300_000)
    metric = MetricFile(str(tmp_path), "loss", Series("loss", "mlflow"))
    metric.read_more(0.0)
    assert metric.series.is_cut
    assert 0 < len(metric.series) < 300_000
    metric.read_more(math.inf)
    assert (metric.series.is_cut, len(metric.series)) == (False, 300_000)


def test_what_is_no_plain_file_below_the_run_is_no_metric(tmp_path):
    folder = tmp_path / "run" / "metrics"
    (folder / "val").mkdir(parents=True)
    (folder / "val" / "loss").write_text("1 0.5 1\n")
    os.mkfifo(folder / "pipe")
    (folder / "link").symlink_to("/etc/hostname")
    (folder / "up").symlink_to("..")
    (folder / "a\x1bb").write_text("1 0.5 1\n")
    run = str(tmp_path / "run")
    assert metrics.list_some_names(run) == (["val/loss"], False)
    assert metrics.read_latest(run, "pipe") is None
    assert metrics.read_latest(run, "link") is None
    for name in ("pipe", "link"):
        metric = MetricFile(run, name, Series(name, "mlflow"))
        metric.read_more(math.inf)
        assert len(metric.series) == 0
    other = tmp_path / "other"
    other.mkdir()
    (other / "metrics").symlink_to(folder)
    assert metrics.list_some_names(str(other)) == ([], False)


def test_of_very_many_names_some_are_listed(tmp_path, monkeypatch):
    monkeypatch.setattr(metrics, "_MOST_ENTRIES", 5)
    folder = tmp_path / "metrics"
    folder.mkdir()
    for number in range(7):
        (folder / f"m{number}").write_text("1 0.5 1\n")
    names, is_cut = metrics.list_some_names(str(tmp_path))
    assert (len(names), is_cut) == (5, True)


@pytest.mark.parametrize("parent", ["job", "other"])
def test_runs_that_ranks_made_are_found_by_their_tag(tmp_path, parent):
    made = tmp_path / "mlruns" / "2" / "abc" / "tags"
    made.mkdir(parents=True)
    (made / "mlflow.parentRunId").write_text(parent)
    (made / "mlflow.runName").write_text("fast-ape")
    run = tmp_path / "mlruns" / "1" / "job"
    run.mkdir(parents=True)
    os.mkfifo(run.parent / "pipe")
    odd = tmp_path / "mlruns" / "1" / "odd" / "tags"
    odd.mkdir(parents=True)
    os.mkfifo(odd / "mlflow.parentRunId")
    (tmp_path / "mlruns" / "3").symlink_to(tmp_path / "mlruns" / "2")
    children = ChildRuns(str(run), time.time())
    children.look()
    children.look()
    assert children.found == ({str(made.parent): "fast-ape"} if parent == "job" else {})


def test_runs_from_before_the_job_are_not_opened(tmp_path):
    made = tmp_path / "mlruns" / "2" / "abc"
    (made / "tags").mkdir(parents=True)
    (made / "tags" / "mlflow.parentRunId").write_text("job")
    os.utime(made, (1, 1))
    children = ChildRuns(str(tmp_path / "mlruns" / "1" / "job"), time.time())
    children.look()
    assert children.found == {}


def test_runs_that_come_later_are_found_and_no_run_is_opened_twice(tmp_path, monkeypatch):
    store = tmp_path / "mlruns" / "1"
    for number in range(5):
        (store / f"old{number}").mkdir(parents=True)
        os.utime(store / f"old{number}", (1000, 1000 + number))
    asked = []
    read = children_module._read_tag
    monkeypatch.setattr(
        children_module, "_read_tag", lambda path, name: asked.append(path) or read(path, name)
    )
    since = 1002 + children_module._CLOCK_SLACK_S
    for _ in range(3):
        ChildRuns(str(store / "job"), since).look()
    assert sorted(map(os.path.basename, asked)) == ["old2", "old3", "old4"]
    tags = store / "new" / "tags"
    tags.mkdir(parents=True)
    first, again = (ChildRuns(str(store / "job"), since) for _ in range(2))
    first.look()
    assert first.found == {}
    (tags / "mlflow.parentRunId").write_text("job")
    for children in (first, again):
        children.look()
        assert children.found == {str(store / "new"): "new"}
