"""Files of drills: what they mean, and where their mistakes are; and how runs are compared."""

import time

import pytest
from planning import plan

from drumline.contract.drill_kinds import DrillRequest
from drumline.contract.errors import SpecError
from drumline.contract.folder import RunFolder
from drumline.contract.outcome import DrillOutcome, Outcome
from drumline.control.measure import rehearsal
from drumline.control.measure.rehearsal import PlannedDrill, Rehearsal, RunFacts, RunWatch
from drumline.spec.parts.resources import PyTorchDistribution


@pytest.fixture
def two_by_two():
    return plan(distribution=PyTorchDistribution(process_count_per_instance=2))


@pytest.fixture
def read(tmp_path, two_by_two):
    def read_text(text):
        path = tmp_path / "drills.yml"
        path.write_text(text)
        return rehearsal.read_file(str(path), two_by_two)

    return read_text


def test_a_file_says_what_is_to_happen_and_when(read):
    found = read(
        "seed: 3\nsteps: 40\nfor: 1m\nmetric: loss\ntolerance: 0.01\n"
        "drills:\n"
        "- {kind: wedge, node: 1, for: 1m30s, after: 2}\n"
        "- {kind: Kill-Rank, rank: 2, at_step: 7, expect: fail, name: the third}\n"
    )
    assert (found.seed, found.steps, found.metric, found.tolerance) == (3, 40, "loss", 0.01)
    assert found.for_s == 60.0
    wedge, kill = found.drills
    assert wedge == PlannedDrill("wedge", DrillRequest("", "wedge", "", node=1, for_s=90.0, after_s=2.0))
    assert kill == PlannedDrill("the third", DrillRequest("", "kill-rank", "", rank=2, at_step=7), False)


@pytest.mark.parametrize(
    ("text", "where", "said"),
    [
        ("steps: 3\n", "1:1", "missing key 'drills'"),
        ("drills: []\n", "1:9", "there is no drill in the file"),
        ("drills:\n- node: 1\n", "2:3", "missing key 'kind' in drills.0"),
        (
            "drills:\n- kind: kill-rank\n  rank: -1\n",
            "3:9",
            "drills.0.rank must be a whole number, 0 or more",
        ),
        ("drills:\n- kind: kill-rank\n  rang: 1\n", "3:3", "unknown key 'rang' in drills.0"),
        ("drills:\n- {kind: kill-rank, rank: 8}\n", "2:3", "the job has no rank 8"),
        ("drills:\n- {kind: kill-agent}\n", "2:3", "it needs a node"),
        ("drills:\n- {kind: wedge, node: 0}\n", "2:3", "say for how long"),
        ("drills:\n- {kind: kill-agent, node: 0, for: 1s}\n", "2:3", "does not last"),
        ("drills:\n- {kind: preempt, after: 1s, at_step: 1}\n", "2:3", "not both"),
        ("drills:\n- {kind: clock, node: 0, for: 1s}\n", "2:3", "clock of this machine"),
    ],
)
def test_a_mistake_has_its_place(read, text, where, said):
    with pytest.raises(SpecError) as raised:
        read(text)
    (problem,) = raised.value.problems
    assert said in problem.what
    assert f"{problem.line}:{problem.column}" == where


def test_the_usual_drills_are_the_same_for_the_same_seed(two_by_two):
    first, second = rehearsal.choose_usual(two_by_two, 5), rehearsal.choose_usual(two_by_two, 5)
    assert first == second
    assert [one.title for one in first.drills] == ["preempt", "kill-rank", "kill-agent", "wedge"]
    assert any(one.startswith("partition: its nodes share the network") for one in first.left_out)
    others = {rehearsal.choose_usual(two_by_two, seed).drills for seed in range(8)}
    assert len(others) > 1


def test_a_drill_without_a_begin_comes_in_the_middle(two_by_two):
    usual = rehearsal.choose_usual(two_by_two, 0)
    by_step = rehearsal.choose_begins(usual, 100, 10.0)
    assert all(30 <= one.request.at_step <= 70 for one in by_step.drills)
    assert by_step == rehearsal.choose_begins(usual, 100, 99.0)
    by_time = rehearsal.choose_begins(usual, None, 10.0)
    assert all(3.0 <= one.request.after_s <= 7.0 for one in by_time.drills)


def run_of(status="Completed", **fields):
    known = {"metric": "loss", "final": 0.5, "steps": (20, 20), "last_step": 20}
    return RunFacts("job", status, 0, 10.0, **{**known, **fields})


def judge(run, *, is_to_survive=True, begun=True, tolerance=0.0):
    planned = PlannedDrill("kill-rank", DrillRequest("", "kill-rank", "", rank=1), is_to_survive)
    outcome = Outcome()
    drill = outcome.drills["one"] = DrillOutcome("one", "kill-rank", 0, 1)
    drill.began, drill.reason = (1.0, "") if begun else (None, "its ranks do not run")
    calm = run_of(steps=(20, 20))
    return rehearsal.judge(planned, outcome, calm, run, Rehearsal((), tolerance=tolerance))


def test_a_run_is_compared_with_the_undisturbed_one():
    row = judge(run_of(steps=(26, 20))._replace(seconds=12.5))
    assert (row.result, row.is_ok, row.lost_s, row.repeated, row.same_metric) == (
        "survived",
        True,
        2.5,
        6,
        True,
    )
    assert judge(run_of(final=0.501)).same_metric is False
    assert judge(run_of(final=0.501), tolerance=0.01).same_metric is True
    row = judge(run_of(metric="", final=None, steps=(0, 0)))
    assert (row.repeated, row.same_metric) == (None, None)


def test_a_job_that_fails_is_as_expected_only_where_the_file_says_so():
    row = judge(run_of("Failed", sentences=("rank 1 failed",)))
    assert (row.result, row.is_ok, row.lost_s, row.same_metric) == ("failed", False, None, None)
    assert row.sentences == ("rank 1 failed",)
    assert judge(run_of("Failed"), is_to_survive=False).is_ok


def test_a_drill_that_did_not_begin_shows_nothing():
    row = judge(run_of(), begun=False)
    assert (row.result, row.is_ok, row.sentences) == ("not begun", False, ("its ranks do not run",))


def test_a_run_that_was_shortened_has_survived_and_lost_the_time_of_the_missing_steps():
    row = judge(run_of("Canceled", steps=(17, 15), last_step=15, is_shortened=True))
    assert (row.result, row.is_ok, row.repeated, row.same_metric) == ("survived", True, 2, None)
    assert row.lost_s == 2.5
    row = judge(run_of("Canceled", steps=(0, 0), last_step=None, final=None, is_shortened=True))
    assert (row.result, row.lost_s) == ("survived", None)


class Steps:
    """The steps that a job has logged, one more with each look until it hangs."""

    def __init__(self, *found):
        self.found = list(found)

    def find_last(self):
        return self.found.pop(0) if len(self.found) > 1 else self.found[0]


def make_watch(monkeypatch, two_by_two, tmp_path, outcome, *steps):
    folder = RunFolder(str(tmp_path))
    folder.write(folder.plan, two_by_two.to_json())
    monkeypatch.setattr(rehearsal, "fold", lambda events: outcome)
    watch = RunWatch(folder, None, "", 5.0)
    watch._steps = Steps(*steps)
    return watch


def running(seconds, *drills):
    outcome = Outcome()
    outcome.status, outcome.started = "Running", time.time() - seconds
    for one, ended in drills:
        drill = outcome.drills[one] = DrillOutcome(one, one, 0, None)
        drill.began, drill.ended = 1.0, ended
    return outcome


def test_a_run_is_ended_when_it_goes_on_after_its_drill(monkeypatch, two_by_two, tmp_path):
    def ends(outcome, *steps, drill_count=1, looks=3):
        watch = make_watch(monkeypatch, two_by_two, tmp_path, outcome, *steps)
        return [watch._has_run_enough(drill_count) for _ in range(looks)][-1]

    over = ("wedge", 2.0)
    assert ends(running(6, over), 7, 7, 8)
    assert ends(running(6, over), None)
    assert ends(running(6, ("kill-rank", None)), 7, 8)
    assert ends(running(6), 7, 8, drill_count=0)
    # Too early; with a drill that has not ended, or not begun; and ranks that make no step any more.
    assert not ends(running(2, over), 7, 8)
    assert not ends(running(6, ("wedge", None)), 7, 8)
    assert not ends(running(6), 7, 8)
    assert not ends(running(6, over), 7)
    waits = running(6, over)
    waits.status = "Queued"
    assert not ends(waits, 7, 8)
