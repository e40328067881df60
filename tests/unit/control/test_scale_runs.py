"""The runs of drumline scale: when one is stopped, and what is left of them where something fails."""

import contextlib
import os

import pytest

from drumline.contract.errors import EngineError
from drumline.contract.folder import RunFolder
from drumline.contract.outcome import Outcome
from drumline.contract.steps import Window
from drumline.control.facts.steps import StepHistory
from drumline.control.measure import refusals, scale_run
from drumline.control.measure.measured_sizes import RankSteps, SizeRun
from drumline.control.measure.scale_report import build_report
from drumline.control.measure.scale_values import keep_report, to_values
from drumline.spec.jobs.command import Command


class Node:
    ranks = (0,)


class Plan:
    engine = "local"

    def __init__(self, nodes):
        self.nodes = [Node] * nodes


class Job:
    """A job whose ranks have made so many steps at each look, and that ends with the last one."""

    def __init__(self, monkeypatch, *looks):
        self.looks, self.now, self.pauses = list(looks), 0.0, []
        self.took_s = 0.0
        monkeypatch.setattr(scale_run, "read_outcome", lambda _: self.read_outcome())
        monkeypatch.setattr(scale_run, "read_history", lambda *_: self.read_history())
        monkeypatch.setattr(scale_run.ending, "cancel", lambda *_, **__: None)
        monkeypatch.setattr(scale_run, "wait_for_end", lambda _: True)
        monkeypatch.setattr(scale_run.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(scale_run.time, "sleep", self.sleep)

    def read_outcome(self):
        outcome = Outcome()
        outcome.status = "Completed" if len(self.looks) == 1 else "Running"
        return outcome

    def read_history(self):
        self.now += self.took_s
        ranks = {
            rank: (Window(1.0, 1.0, rank, 1, made, made, {}, every={"step": (0.1,) * made}),)
            for rank, made in self.looks[0].items()
        }
        return StepHistory(ranks, {rank: rank for rank in ranks})

    def sleep(self, seconds):
        self.pauses.append(seconds)
        self.now += seconds
        self.looks = self.looks[1:] if len(self.looks) > 1 else self.looks

    def measure(self, nodes, steps=30):
        return scale_run._measure(RunFolder("job"), Plan(nodes), steps, lambda _: None)


def test_a_size_is_not_measured_while_steps_of_a_rank_are_missing(monkeypatch):
    job = Job(monkeypatch, {0: 5}, {0: 40}, {0: 41}, {0: 42, 1: 35}, {0: 45, 1: 40}, {0: 99, 1: 99}, {})
    run = job.measure(2)
    assert len(job.pauses) == 4
    assert [len(one.step_s) for one in run.steps] == [30, 30]
    assert refusals.refuse_size(run, None) == ""


def test_a_size_whose_ranks_do_not_all_make_steps_is_stopped_and_refused(monkeypatch):
    job = Job(monkeypatch, *[{0: 40}] * 10_000, {})
    run = job.measure(4)
    assert 60 <= job.now < 61
    assert refusals.refuse_size(run, None) == "4 nodes: only 1 of 4 ranks made steps"


def test_steps_are_not_read_more_often_than_a_twentieth_of_the_time(monkeypatch):
    job = Job(monkeypatch, {0: 5}, {0: 6}, {0: 7}, {0: 50}, {})
    job.took_s = 0.3
    job.measure(1)
    assert job.pauses == pytest.approx([20 * 0.3] * 3)
    job = Job(monkeypatch, {0: 5}, {0: 50}, {})
    job.measure(1)
    assert job.pauses == [0.25]


def run_sizes(monkeypatch, *fails, sizes=(1, 2, 4), peak_bytes=0):
    """The runs of these numbers of nodes; of ``fails`` the jobs cannot be submitted. ``peak_bytes``: of each rank."""
    told, started = [], []

    def start(nodes, _):
        started.append(nodes)
        if nodes in fails:
            raise EngineError("sbatch: QOSMaxNodePerUserLimit")
        return RunFolder(f"job-{nodes}")

    def measure(folder, plan, *_):
        nodes = len(plan.nodes)
        ranks = tuple(RankSteps(rank, rank, (0.1,) * 30) for rank in range(nodes))
        return SizeRun(nodes, nodes, folder.name, ranks)

    monkeypatch.setattr(scale_run, "_start", start)
    monkeypatch.setattr(scale_run, "_resize", lambda job, request, nodes: nodes)
    monkeypatch.setattr(scale_run, "_measure", measure)
    monkeypatch.setattr(scale_run.MemoryUse, "add", lambda memory, _: setattr(memory, "_peak", peak_bytes))
    plans = [Plan(nodes) for nodes in sizes]
    runs = scale_run.run_sizes(Command(command="true"), scale_run.ScaleRequest(sizes), plans, told.append)
    return list(runs), started, told


def test_a_size_that_cannot_be_submitted_does_not_lose_the_others(monkeypatch):
    runs, started, told = run_sizes(monkeypatch, 2)
    assert started == [1, 2, 4]
    assert [run.job for run in runs] == ["job-1", "", "job-4"]
    assert (runs[1].nodes, runs[1].ranks) == (2, 2)
    assert runs[1].why_not == "not run: sbatch: QOSMaxNodePerUserLimit"
    assert "2 of 3: 2 nodes: not run: sbatch: QOSMaxNodePerUserLimit" in told
    with pytest.raises(EngineError):
        run_sizes(monkeypatch, 1)


@pytest.mark.parametrize("fails", [False, True])
def test_measuring_leaves_no_descriptor_open(monkeypatch, fails):
    job = Job(monkeypatch, {0: 5}, {0: 50}, {})
    if fails:
        monkeypatch.setattr(job, "sleep", lambda _: 1 / 0)
        monkeypatch.setattr(scale_run.time, "sleep", job.sleep)
    before = len(os.listdir("/proc/self/fd"))
    with contextlib.suppress(ZeroDivisionError):
        job.measure(1)
    assert len(os.listdir("/proc/self/fd")) == before


def test_why_a_job_is_in_line_is_told_once(monkeypatch):
    told = []
    queue = scale_run._Queue(told.append)
    folder = RunFolder("job")
    outcome = Outcome()
    outcome.status, outcome.reason = "Queued", "waiting for 1 of 2 cores held by job other"
    assert queue.look(folder, outcome)
    assert queue.look(folder, outcome)
    outcome.status = "Running"
    assert not queue.look(folder, outcome)
    assert told == ["job job is in line: waiting for 1 of 2 cores held by job other"]


def test_a_size_that_the_memory_does_not_hold_is_not_run(monkeypatch):
    (run, left_out), started, told = run_sizes(monkeypatch, sizes=(1, 1000), peak_bytes=1 << 40)
    assert started == [1]
    assert (left_out.nodes, left_out.ranks, left_out.job) == (1000, 1000, "")
    assert left_out.why_not.startswith("not run: 1,000 ranks of 1 TiB, as at the sizes before, need ")
    assert told[-1] == f"2 of 2: 1,000 nodes: {left_out.why_not}"
    report = build_report("none", [run, left_out], to=1000)
    assert [one for one in report.refused if "not run: 1,000 ranks" in one]
    # No job has that report, and no folder is looked for.
    keep_report(to_values(report))
