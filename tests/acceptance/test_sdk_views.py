"""What ``ml_client.jobs`` tells of jobs, and how they show themselves."""

import sys
from datetime import UTC, datetime

import pytest
from cli_jobs import wait_for_status
from waiting import wait_until

from drumline import Input, MLClient, command
from drumline.contract.errors import UsageError
from drumline.dsl import pipeline
from drumline.exceptions import JobException, ResourceNotFoundError
from drumline.sweep import Choice

TRAIN = """
import os, signal, sys, time
from drumline.v1 import Run

rank = int(os.environ["RANK"])
print("line one of", rank)
print("line two of", rank, flush=True)
if rank == 0:
    for step in range(5):
        Run.get_context().log("val/loss", 1 / (step + 1))
    Run.get_context().log("acc", 0.5)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.02)
"""


@pytest.fixture
def jobs():
    return MLClient().jobs


@pytest.fixture
def running(jobs, tmp_path):
    """A job of two ranks that runs until the file is there; and the file."""
    (tmp_path / "train.py").write_text(TRAIN)
    end = tmp_path / "end"
    jobs.create_or_update(
        command(
            name="job",
            code=str(tmp_path / "train.py"),
            command=f"python train.py '{end}'",
            distribution={"type": "pytorch", "process_count_per_instance": 2},
        )
    )
    wait_for_status("job", "Running")
    yield end
    end.touch()


def test_a_job_is_asked_while_it_runs_and_after(jobs, running, tmp_path):
    with pytest.raises(TimeoutError, match=r"job job has not ended within 0\.01 s, and continues"):
        jobs.wait("job", timeout=0.01)
    wait_until(lambda: len(jobs.metrics("job", as_frame=False)) == 6, 20, "all metrics")
    wait_until(lambda: jobs.logs("job", rank=1).count("\n") == 2, 20, "the lines of rank 1")
    assert [one["state"] for one in jobs.top("job")["ranks"]] == ["running", "running"]
    assert jobs.stacks("job")["ranks"].keys() == {"0", "1"}
    assert [one["rank"] for one in jobs.timeline("job")["ranks"]] == [0, 1]

    rows = jobs.metrics("job", "val/*", as_frame=False)
    assert [row["value"] for row in rows] == [1, 1 / 2, 1 / 3, 1 / 4, 1 / 5]
    assert rows[0].keys() == {"metric", "step", "value", "time", "run", "source"}
    assert (rows[0]["metric"], rows[0]["run"], rows[0]["source"]) == ("val/loss", "", "mlflow")
    assert abs((datetime.now(UTC) - rows[0]["time"]).total_seconds()) < 600

    page = jobs.get("job")._repr_html_()
    assert page.count("rank 0 on node 0: running") == 1
    assert "val/loss" in page
    assert "█" in page
    listed = jobs.list()
    assert "<table" in listed._repr_html_()
    assert [one.name for one in listed] == ["job"]
    assert list(listed) == []

    assert jobs.logs("job", rank=1, tail=1) == "line two of 1\n"
    found = jobs.logs("job", rank="0-1", grep="one", prefix=False)
    assert sorted(found.splitlines()) == ["line one of 0", "line one of 1"], "in the order in which they came"
    assert jobs.logs("job", since="2h", attempt=0, timestamps=True, rank=1).startswith("20")
    for wrong in ({"rank": 7}, {"tail": -1}, {"attempt": 3}, {"grep": "("}, {"since": "x"}):
        with pytest.raises(UsageError, match=f"^{next(iter(wrong))}: "):
            jobs.logs("job", **wrong)

    running.touch()
    assert jobs.wait("job").status == "Completed"
    assert "rank 1 on node 0: done" in jobs.get("job")._repr_html_()


def test_metrics_are_a_frame_where_pandas_is(jobs, running):
    pytest.importorskip("pandas")
    running.touch()
    jobs.wait("job")
    frame = jobs.metrics("job")
    assert list(frame.columns) == ["metric", "step", "value", "time", "run", "source"]
    assert frame[frame.metric == "val/loss"].value.min() == 1 / 5
    assert str(frame.time.dt.tz) == "UTC"


def test_without_pandas_metrics_are_a_list(jobs, running, monkeypatch):
    running.touch()
    jobs.wait("job")
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert len(jobs.metrics("job")) == 6
    with pytest.raises(UsageError, match="pandas is not installed"):
        jobs.metrics("job", as_frame=True)


def test_a_preempted_job_is_started_again(jobs, running):
    assert jobs.preempt("job") == 0
    wait_until(
        lambda: jobs.get("job").status == "Running" and jobs.timeline("job")["attempts"] == 2, 30, "attempt 1"
    )
    running.touch()
    jobs.wait("job")
    with pytest.raises(UsageError, match="it has no ranks that run"):
        jobs.preempt("job")


def test_wait_raises_with_the_verdict_unless_told_otherwise(jobs):
    jobs.create_or_update(
        command(name="bad", command="echo '<b>last words'; exit 3", distribution={"type": "pytorch"})
    )
    with pytest.raises(JobException, match=r"rank 0 on node 0 failed .* exit code 3"):
        jobs.wait("bad", timeout=60)
    assert jobs.wait("bad", raise_on_error=False).status == "Failed"
    page = jobs.get("bad")._repr_html_()
    assert "&lt;b&gt;last words" in page


def test_a_pipeline_shows_its_steps_and_a_sweep_its_trials(jobs):
    @pipeline()
    def two():
        first = command(command="echo x > ${{outputs.o}}/x", outputs={"o": None})()
        second = command(command="ls ${{inputs.i}}", inputs={"i": Input(type="uri_folder")})
        second(i=first.outputs.o)

    whole = jobs.create_or_update(two())
    code = "from drumline.v1 import Run; Run.get_context().log('acc', float(${{inputs.lr}}))"
    job = command(command=f'python -c "{code}"', inputs={"lr": 1})
    sweep = job(lr=Choice([0.3125, 0.6875])).sweep(
        primary_metric="acc", goal="maximize", sampling_algorithm="grid"
    )
    sweep.set_limits(max_total_trials=2)
    search = jobs.create_or_update(sweep)
    page = jobs.wait(whole.name)._repr_html_()
    assert ">first</td>" in page
    assert page.count(">Completed</span>") == 3
    table = jobs.wait(search.name)._repr_html_()
    assert table.index(">0.688<") < table.index(">0.313<")
    assert jobs.list()._repr_html_().count("<tr") == 3


def test_questions_to_a_job_that_is_not_there(jobs):
    for ask in (jobs.wait, jobs.metrics, jobs.logs, jobs.top, jobs.stacks, jobs.timeline, jobs.preempt):
        with pytest.raises(ResourceNotFoundError, match="there is no job 'none'"):
            ask("none")


def test_a_job_that_is_not_stored_shows_itself_as_text():
    assert command(command="true")._repr_html_() is None
