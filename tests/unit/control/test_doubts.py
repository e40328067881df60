"""What a job that has completed is warned of, each with what looks like it and is right."""

import math
import os
from pathlib import Path

import pytest
from made_jobs import MadeJob, make_scalar

from drumline.contract import events as e
from drumline.contract import steps
from drumline.contract.outcome import fold
from drumline.control.facts.description import describe
from drumline.control.facts.doubts import list_warnings
from drumline.control.facts.job import JobFacts
from drumline.tracking import metrics

FOUR = range(4)


class EndedJob(MadeJob):
    """Four ranks that print a line and end with 0 after five seconds."""

    def end(self, collectives=None, world=4, status="Completed", took_s=5.0, log="done\n", stopped=None):
        for rank in FOUR:
            seen = {} if collectives is None else {"collectives": collectives[rank], "world": world}
            seen.update((stopped or {}).get(rank, {}))
            self.add(e.RankExited(1001.0 + took_s, rank, rank // 2, 0, None, "", seen or None))
            self.log(rank, log)
        self.add(e.JobEnded(1002.0 + took_s, status, 0, "fine"))

    def change(self, **fields):
        self.plan = self.plan._replace(**fields)
        self.folder.write(self.folder.plan, self.plan.to_json())

    def declare(self, **outputs):
        named = {f"AZURE_ML_OUTPUT_{name}": str(path) for name, path in outputs.items()}
        self.change(user_env={**self.plan.user_env, **named})

    def make_steps(self, counts):
        for rank, count in enumerate(counts):
            path = self.folder.steps_path(0, rank // 2)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            known = steps.Window(1003.0, 1003.0, rank, 1, count, count, {})
            with open(path, "ab") as file:
                file.write(steps.to_line([known]))

    def warn(self):
        return [(one.kind, one.text) for one in list_warnings(self.folder, fold(self.folder.read_events()))]


@pytest.fixture
def ended(drumline_home):
    job = EndedJob()
    job.track()
    job.start()
    return job


APART = "ranks that train one model made different numbers of steps: ranks 0-2 made 36 steps, rank 3 made 34"
LEFT = "rank 3 ended while others still waited for it: ranks 0-2 entered 35 collectives, rank 3 entered 34"
LESS = (36, 36, 36, 34)


@pytest.mark.parametrize(
    ("made", "collectives", "world", "text"),
    [
        pytest.param(LESS, (37, 37, 37, 34), 4, APART, id="one left, and the others did a little more"),
        pytest.param((34,) * 4, (35, 35, 35, 34), 4, LEFT, id="the others were cut off in their next step"),
        pytest.param((), (35, 35, 35, 34), 4, LEFT, id="without an optimizer"),
        pytest.param(LESS, (38, 38, 38, 38), 4, "", id="join, whose ranks meet in each step"),
        pytest.param(LESS, None, 0, "", id="roles of MPI"),
        pytest.param(LESS, (2, 2, 2, 2), 4, "", id="roles within one group"),
        pytest.param(LESS, (9, 7, 9, 7), 2, "", id="two groups of two"),
        pytest.param(LESS, (9, 7, 8, 6), 1, "", id="each a group of its own"),
        pytest.param((36,), (40, 40, 40, 40), 4, "", id="one rank trains for all"),
        pytest.param((36,) * 4, (36,) * 4, 4, "", id="alike"),
    ],
)
def test_ranks_that_train_one_model_do_the_same(ended, made, collectives, world, text):
    ended.make_steps(made)
    ended.end(collectives, world)
    assert ended.warn() == ([("ranks", text)] if text else [])


def test_many_counts_are_summed_up(ended):
    ended.make_steps((30, 31, 33, 36))
    ended.end((30, 31, 33, 37))
    assert ended.warn()[0][1].endswith("rank 1 made 31, rank 2 made 33, others between 30 and 36")


SENT = {"terminated": 1002.0}
OWN = {**SENT, "sent_by": "sent by rank 0 (train.py:12, in main)"}


@pytest.mark.parametrize(
    ("stopped", "who"),
    [
        ({1: SENT}, "rank 1 on node 0"),
        ({1: SENT, 2: SENT, 3: OWN}, "ranks 1-2"),
        ({1: OWN}, ""),
    ],
)
def test_a_signal_of_which_nobody_knows_the_sender(ended, stopped, who):
    ended.end(stopped=stopped)
    text = f"{who} ended with exit code 0 after SIGTERM; it is not known who sent it"
    assert ended.warn() == ([("signal", text)] if who else [])


@pytest.mark.parametrize("written", ["", "empty/", "model.pt", "a/b/model.pt"])
def test_an_output_that_no_rank_wrote_to(ended, tmp_path, written):
    place = tmp_path / "model"
    place.mkdir()
    if written.endswith("/"):
        (place / written).mkdir()
    elif written:
        path = place / written
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text("x")
    # An address is the program's to open.
    (tmp_path / "none").mkdir()
    ended.declare(model=place, default=tmp_path / "none", away="s3://lab/model")
    ended.end()
    is_there = written.endswith(".pt")
    assert ended.warn() == ([] if is_there else [("output", "no rank wrote to output model")])


@pytest.mark.parametrize("way", ["a link", "gone", "in pods"])
def test_an_output_whose_files_are_elsewhere(ended, tmp_path, way):
    place = tmp_path / "model"
    if way != "gone":
        place.mkdir()
    if way == "a link":
        (tmp_path / "checkpoint-7").mkdir()
        (place / "last").symlink_to(tmp_path / "checkpoint-7")
    if way == "in pods":
        ended.change(engine="kubernetes")
    ended.declare(model=place)
    ended.end()
    assert ended.warn() == []


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ((0.5, "nan"), "the last value of loss is no finite number"),
        (("inf",), "the last value of loss is no finite number"),
        (("nan", 0.5), ""),
    ],
)
def test_a_metric_that_ended_as_no_number(ended, values, text):
    ended.log_metric("loss", [(17, value, step) for step, value in enumerate(values)])
    ended.log_metric("accuracy", [(17, 0.9, 0)])
    ended.end(took_s=0.5)
    assert ended.warn() == ([("metric", text)] if text else [])


@pytest.mark.parametrize("value", [0.5, math.nan])
def test_a_metric_of_tensorboard_that_ended_as_no_number(ended, value):
    Path(ended.folder.outputs).mkdir(exist_ok=True)
    Path(ended.folder.outputs, "events.out.tfevents.1.host").write_bytes(make_scalar("acc", value, 1))
    ended.end()
    said = [("metric", "the last value of acc is no finite number")]
    assert ended.warn() == (said if math.isnan(value) else [])


def test_a_job_that_did_nothing_that_can_be_seen(ended):
    ended.end(took_s=0.3, log="")
    text = "all 4 ranks ended within 0.3 s, without a line of log or an output"
    assert ended.warn() == [("nothing", text)]
    facts = JobFacts(ended.folder, fold(ended.folder.read_events()))
    assert facts.warnings == [text]
    assert [one["text"] for one in describe(ended.folder, facts.outcome)["warnings"]] == [text]


@pytest.mark.parametrize(
    ("argv", "count", "is_warned"),
    [
        (("/bin/bash", "-c", "python3.11 train.py"), 1, True),
        (("/bin/bash", "-c", "./train"), 4, True),
        (("/bin/bash", "-c", "touch pythons"), 1, False),
        (("true",), 4, False),
        (("python", "train.py"), 1, False),
    ],
)
def test_a_job_of_which_a_trace_is_expected(drumline_home, argv, count, is_warned):
    job = MadeJob(nodes=1, procs=count)
    job.folder.write(job.folder.plan, job.plan._replace(argv=argv).to_json())
    job.start()
    for rank in range(count):
        job.log(rank, "")
        job.add(e.RankExited(1001.3, rank, 0, 0, None))
    job.add(e.JobEnded(1001.4, "Completed", 0, "fine"))
    warnings = list_warnings(job.folder, fold(job.folder.read_events()))
    assert [one.kind for one in warnings] == (["nothing"] if is_warned else [])


@pytest.mark.parametrize("trace", ["log", "output", "metric", "time", "failed"])
def test_a_job_that_did_something(ended, trace):
    if trace == "output":
        Path(ended.folder.outputs).mkdir(exist_ok=True)
        Path(ended.folder.outputs, "model.pt").write_text("x")
    elif trace == "metric":
        Path(metrics.metric_path(ended.run_dir, "loss")).write_text("17 0.5 0\n")
    ended.end(
        took_s=3.0 if trace == "time" else 0.3,
        log="hi\n" if trace == "log" else "",
        status="Failed" if trace == "failed" else "Completed",
    )
    assert ended.warn() == []
