"""What a supervisor that takes over reads of those before it."""

import planning
import pytest

from drumline.contract import events as e
from drumline.contract.folder import RunFolder
from drumline.supervisor.job.preparing import JobHistory


@pytest.fixture
def past(tmp_path):
    folder = RunFolder(str(tmp_path / "job"))
    folder.create()

    def of(*events):
        folder.begin(e.JobSubmitted(0.0, "ann", "slurm"))
        for event in events:
            folder.append(event)
        return JobHistory(folder)

    return of


def ended(time, attempt, kind="preemption"):
    return e.AttemptEnded(time, attempt, 143, "preempted", kind=kind)


def test_the_first_supervisor_has_none(past):
    found = past(e.JobWaiting(1.0, "in the queue"))
    assert (found.attempts, found.has_prepared, found.has_started) == ([], False, False)
    assert (found.was_interrupted, found.ran_s) == (False, 0.0)


def test_one_that_was_killed_while_it_prepared(past):
    found = past(e.JobPreparing(1.0))
    assert (found.has_prepared, found.has_started, found.was_interrupted) == (True, False, False)


def test_one_that_ended_its_attempt_in_order(past):
    found = past(
        e.JobPreparing(1.0),
        e.JobStarting(2.0),
        e.RankStarted(10.0, 0, 0, 71),
        e.RankStarted(11.0, 1, 1, 72),
        e.RankExited(19.0, 0, 0, None, 15),
        ended(20.0, 0),
        e.JobWaiting(20.5, "Slurm starts it again"),
    )
    assert found.attempts == [ended(20.0, 0)]
    assert (found.has_prepared, found.has_started, found.was_interrupted) == (True, True, False)
    assert found.ran_s == pytest.approx(10.0, abs=1.0)


def test_one_that_was_killed_with_its_ranks(past):
    found = past(
        e.JobStarting(2.0),
        e.RankStarted(10.0, 0, 0, 71),
        e.JobRunning(11.0),
        e.RankExited(15.0, 0, 0, 0, None),
    )
    assert (found.attempts, found.was_interrupted) == ([], True)
    assert found.find_last_sign(planning.plan(1)) == 15.0


def test_one_that_was_killed_before_its_ranks_began(past):
    found = past(e.JobStarting(2.0), e.AgentJoined(3.0, 0, 71, "10.0.0.1"))
    assert (found.was_interrupted, found.ran_s) == (True, 0.0)


def test_several(past):
    found = past(
        e.JobStarting(2.0),
        e.RankStarted(10.0, 0, 0, 71),
        ended(20.0, 0, "failure"),
        e.JobStarting(21.0),
        e.RankStarted(30.0, 0, 0, 72),
        ended(35.0, 1),
        e.JobWaiting(36.0, "Slurm starts it again"),
        e.JobStarting(1000.0),
        e.RankStarted(1001.0, 0, 0, 73),
        e.JobRunning(1003.0),
    )
    assert [one.attempt for one in found.attempts] == [0, 1]
    assert found.was_interrupted
    assert found.ran_s == 10.0 + 5.0, "the time in line is not the ranks'"
    assert found.find_last_sign(planning.plan(1)) == 1003.0


def test_a_clock_that_was_set_back_takes_nothing_away(past):
    found = past(e.JobStarting(2.0), e.RankStarted(100.0, 0, 0, 71), ended(50.0, 0))
    assert found.ran_s == 0.0
