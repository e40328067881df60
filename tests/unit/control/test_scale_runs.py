"""The runs of drumline scale: when one is stopped, and what is left of them where something fails."""

import pytest

from drumline.contract.folder import RunFolder
from drumline.contract.outcome import Outcome
from drumline.contract.steps import Window
from drumline.control.observing.steps.history import StepHistory
from drumline.control.scaling import refusals, running


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
        monkeypatch.setattr(running, "read_outcome", lambda _: self.read_outcome())
        monkeypatch.setattr(running.gathering, "read_history", lambda *_: self.read_history())
        monkeypatch.setattr(running.cancel, "cancel", lambda *_, **__: None)
        monkeypatch.setattr(running, "_wait", lambda _: None)
        monkeypatch.setattr(running.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(running.time, "sleep", self.sleep)

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
        return running._measure(RunFolder("job"), Plan(nodes), steps, lambda _: None)


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
