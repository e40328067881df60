"""When the driver of a tuning ends a run, and what it says of one that has ended."""

import json
from pathlib import Path

import pytest

from drumline.contract import events as e
from drumline.contract import status
from drumline.contract import steps as step_lines
from drumline.contract.folder import RunFolder
from drumline.contract.outcome import Outcome
from drumline.control.driver import tune_trials
from drumline.control.measure import tune_sweep
from drumline.control.measure.tune_sweep import TuneRequest
from drumline.control.submission import driven, planning
from drumline.spec.load import load_job


class Driven:
    """The driver of a tuning of a job of two nodes, whose runs are only files."""

    def __init__(self, tmp_path, over, steps=60):
        path = tmp_path / "job.yml"
        distribution = {"type": "pytorch", "process_count_per_instance": 1}
        fields = {
            "distribution": distribution,
            "resources": {"instance_count": 2},
            "inputs": {"num_workers": 1},
        }
        path.write_text(json.dumps({"command": "python train.py ${{inputs.num_workers}}", **fields}))
        sweep = tune_sweep.make_sweep(load_job(str(path)), TuneRequest("throughput", (over,), steps))
        sweep.name = "tune-x"
        folder = RunFolder.for_job(sweep.name)
        folder.create()
        folder.write(folder.graph, json.dumps(driven.prepare(sweep)[0]))
        self.driver = tune_trials.TuneDriver(folder, -1)
        self.stopped = {}
        self.driver._children.cancel = lambda name, by, at_once: self.stopped.update({name: by})

    def begin(self, setting, rung=0):
        """A run of that setting that has begun; its name."""
        name = f"trial_{len(self.driver._children.steps)}"
        detail = {"params": self.driver._tuning.params(setting), "setting": setting, "rung": rung}
        self.driver._children.note(e.StepStarted(1.0, name, f"job-{name}", detail))
        folder = RunFolder.for_job(f"job-{name}")
        folder.create()
        folder.write(folder.plan, planning.plan(self.driver._make_job(0, detail)).to_json())
        return name

    def add_steps(self, name, seconds, ranks=(0, 1)):
        """Note steps of these ranks, each of which is alone on its node."""
        folder = RunFolder.for_job(f"job-{name}")
        spread = {"step": step_lines.Spread(0.1, 0.1, 0.1)}
        for rank in ranks:
            every = {"step": tuple(seconds)}
            window = step_lines.Window(1.0, 1.0, rank, 1, len(seconds), len(seconds), spread, every=every)
            path = Path(folder.steps_path(0, rank))
            path.parent.mkdir(exist_ok=True)
            with path.open("ab") as file:
                file.write(step_lines.to_line([window]))

    def look(self):
        """Look at the runs; why each was stopped."""
        self.driver._apply_policy()
        return self.stopped

    def end(self, name):
        outcome = Outcome()
        outcome.status = status.COMPLETED
        self.driver._note_end(name, outcome)
        return self.driver._children.steps[name]


@pytest.fixture
def clock(monkeypatch):
    """The time of the driver, in seconds; it stands still."""
    now = [1000.0]
    monkeypatch.setattr(tune_trials.time, "monotonic", lambda: now[0])
    return now


def test_a_run_is_not_judged_while_steps_of_a_rank_are_missing(tmp_path, clock):
    tuning = Driven(tmp_path, "num_workers=1|2")
    name = tuning.begin(0)
    tuning.add_steps(name, [0.1] * 40, ranks=[0])
    assert tuning.look() == {}
    clock[0] += 50
    tuning.add_steps(name, [0.1] * 40, ranks=[1])
    assert "its steps are measured" in tuning.look()[name]
    ended = tuning.end(name)
    assert (ended.status, ended.detail["ranks"], ended.reason) == ("Completed", 2, "10 steps/s over 35 steps")


def test_a_setting_whose_ranks_do_not_all_make_steps_has_failed(tmp_path, clock):
    tuning = Driven(tmp_path, "num_workers=1|2")
    name = tuning.begin(0)
    tuning.add_steps(name, [0.1] * 40, ranks=[0])
    assert tuning.look() == {}
    clock[0] += 61
    assert tuning.look()[name].endswith("only 1 of 2 ranks made steps")
    ended = tuning.end(name)
    assert (ended.status, ended.reason) == ("Failed", "only 1 of 2 ranks made steps")
    assert ended.detail.get("metric") is None


def test_a_run_is_not_stopped_as_slower_before_a_third_of_its_steps(tmp_path, clock):
    tuning = Driven(tmp_path, "num_workers=1|2")
    fast, slow = tuning.begin(0), tuning.begin(1)
    tuning.add_steps(fast, [0.01] * 30)
    tuning.look()
    tuning.end(fast)
    clock[0] += 1
    # The first five are not measured, and the first rung has 20.
    tuning.add_steps(slow, [0.1] * 11)
    assert set(tuning.look()) == {fast}
    clock[0] += 1
    tuning.add_steps(slow, [0.1])
    assert tuning.look()[slow].endswith("clearly slower than another setting")


def test_batches_that_were_ready_are_not_measured(tmp_path):
    tuning = Driven(tmp_path, "num_workers=8|16")
    name = tuning.begin(0)
    tuning.add_steps(name, [0.001] * 17 + [0.1] * 20)
    assert "its steps are measured" in tuning.look()[name]
    assert tuning.end(name).detail["step_s"] == pytest.approx(0.1)


def test_steps_are_not_read_more_often_than_a_twentieth_of_the_time(tmp_path, clock, monkeypatch):
    tuning = Driven(tmp_path, "num_workers=8|16")
    tuning.begin(0)
    looks = []

    def measure(*_, **__):
        looks.append(clock[0])
        clock[0] += 0.3

    monkeypatch.setattr(tune_trials, "measure", measure)
    while clock[0] < 1100:
        tuning.look()
        clock[0] += 0.25
    assert 15 <= len(looks) <= 16


def test_a_run_that_ends_before_its_steps_says_so(tmp_path):
    tuning = Driven(tmp_path, "num_workers=1|2")
    name = tuning.begin(0)
    tuning.add_steps(name, [0.1] * 15)
    assert tuning.look() == {}
    ended = tuning.end(name)
    assert (ended.status, ended.reason) == ("Completed", "10 steps/s over 10 steps (it ends after 15 steps)")
    assert ended.detail["ended"] == "it ends after 15 steps"
    whole = tuning.begin(1)
    tuning.add_steps(whole, [0.1] * 25)
    assert tuning.end(whole).detail["ended"] is None


def test_the_end_counts_what_was_measured_and_what_failed(tmp_path):
    tuning = Driven(tmp_path, "num_workers=1|2")
    names = [tuning.begin(0), tuning.begin(1)]
    for name in names:
        tuning.end(name)
    assert tuning.driver._finish().reason.startswith(
        "no setting could be measured (0 of 2 settings measured in 2 runs, 2 failed); job-trial_0: "
    )
