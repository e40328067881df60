"""Whether a job that failed is started again."""

import os

import pytest

from drumline.contract import status
from drumline.contract.events import AttemptEnded
from drumline.supervisor.deciding.happenings import Finish
from drumline.supervisor.deciding.restarts import NO_USE_CODE, RestartPolicy, list_files


def failed(line=7, code=1, kind="failure", error="ValueError"):
    verdict = {"error_type": error, "error_message": "m", "file": "train.py", "line": line, "function": "f"}
    return Finish(status.FAILED, code, f"rank 0 failed at {line}", 0, 0, verdict, kind)


def run(attempts, *ends, progressed=True):
    """The decisions, until the job is not started again."""
    decided = []
    for end in ends:
        decided.append(attempts.decide_after(end, progressed=progressed))
        if not decided[-1].again:
            break
    return decided


def test_a_job_that_asks_for_none_is_not_started_again():
    (only,) = run(RestartPolicy(0), failed())
    assert only == (False, failed())


@pytest.mark.parametrize("ended", [status.COMPLETED, status.CANCELED])
def test_only_a_failure_is_tried_again(ended):
    (only,) = run(RestartPolicy(3), Finish(ended, 0, "it ended"))
    assert not only.again


def test_as_often_as_it_says_and_then_says_how_often():
    attempts = RestartPolicy(2)
    decided = run(attempts, *(failed(line) for line in range(9)))
    assert [one.again for one in decided] == [True, True, False]
    assert decided[-1].end.reason == "rank 0 failed at 2 (after 2 of 2 restarts)"
    assert decided[-1].end.exit_code == 1


def test_one_that_then_completes_ends_as_it_did():
    attempts = RestartPolicy(2)
    run(attempts, failed())
    done = Finish(status.COMPLETED, 0, "all ended")
    assert attempts.decide_after(done, progressed=True).end.status == status.COMPLETED
    assert attempts.number == 1


def test_the_same_exception_at_the_same_place_twice_in_a_row_is_enough():
    decided = run(RestartPolicy(9), failed(1), failed(2), failed(2))
    assert [one.again for one in decided] == [True, True, False]
    assert decided[-1].end.exit_code == NO_USE_CODE
    assert decided[-1].end.reason == (
        "rank 0 failed at 2 (attempt 2; not restarted: the last two failed alike)"
    )


def test_signals_alike_are_tried_again():
    killed = Finish(status.FAILED, 137, "killed", 0, 0, {"error_type": None, "file": None})
    assert [one.again for one in run(RestartPolicy(2), killed, killed, killed)] == [True, True, False]


def test_three_attempts_that_leave_nothing_new_are_enough():
    decided = run(RestartPolicy(9), *(failed(line) for line in range(9)), progressed=False)
    assert [one.again for one in decided] == [True, True, False]
    assert decided[-1].end.exit_code == NO_USE_CODE
    assert "the last 3 left neither a new checkpoint nor a metric" in decided[-1].end.reason


def test_progress_is_counted_anew_after_some():
    attempts = RestartPolicy(9)
    for line, progressed in enumerate((False, False, True, False, False)):
        assert attempts.decide_after(failed(line), progressed=progressed).again
    assert not attempts.decide_after(failed(99), progressed=False).again


@pytest.mark.parametrize(
    ("restart_on", "end", "again"),
    [
        (("failure",), failed(), True),
        (("node",), failed(), False),
        (("node", "hang"), failed(kind="hang"), True),
        (("node",), failed(kind="node"), True),
        (("75", "137"), failed(code=137), True),
        (("75", "137"), failed(code=1), False),
    ],
)
def test_only_the_failures_that_are_named_are_tried_again(restart_on, end, again):
    assert RestartPolicy(1, restart_on).decide_after(end, progressed=True).again is again


def test_what_an_attempt_left_is_told_by_name_size_and_time(tmp_path):
    before = list_files([str(tmp_path)])
    assert before == list_files([str(tmp_path), str(tmp_path / "none")])
    (tmp_path / "model.pt").write_text("1")
    first = list_files([str(tmp_path)])
    assert first != before
    os.utime(tmp_path / "model.pt", (1, 1))
    assert list_files([str(tmp_path)]) != first


def test_a_preemption_is_never_the_last_attempt_and_never_counted():
    attempts = RestartPolicy(1, ["node"])
    preempted = Finish(status.FAILED, 143, "preempted by ada", kind="preemption")
    decided = run(attempts, *[preempted] * 9, progressed=False)
    assert all(one.again for one in decided)
    assert attempts.number == 9
    lost = failed(kind="node", error="")
    decided = run(attempts, lost, preempted, lost)
    assert [one.again for one in decided] == [True, True, False]
    assert decided[-1].end.reason == "rank 0 failed at 7 (after 1 of 1 restarts, preempted 10 times)"


def test_of_a_job_without_restarts_it_says_how_often_it_was_preempted():
    attempts = RestartPolicy(0)
    preempted = Finish(status.FAILED, 143, "node 1 was preempted by ada", kind="node preemption")
    done = Finish(status.COMPLETED, 0, "all ended")
    decided = run(attempts, preempted, done)
    assert decided[-1].end.reason == "all ended (preempted once)"


def ended(attempt, kind="failure", verdict=None):
    return AttemptEnded(0.0, attempt, 1, "it ended", verdict=verdict, kind=kind)


def test_another_supervisor_counts_on_where_the_last_one_ended():
    attempts = RestartPolicy(2)
    attempts.replay([ended(0), ended(1, "preemption"), ended(2, "node preemption")])
    assert attempts.number == 3
    decided = run(attempts, failed(1), failed(2))
    assert [one.again for one in decided] == [True, False]
    assert decided[-1].end.reason == "rank 0 failed at 2 (after 2 of 2 restarts, preempted 2 times)"


def test_what_failed_before_another_supervisor_came_can_fail_alike_only_once_more():
    attempts = RestartPolicy(9)
    attempts.replay([ended(0, verdict=failed(7).verdict), ended(1, "preemption")])
    (only,) = run(attempts, failed(7))
    assert (only.again, only.end.exit_code) == (False, NO_USE_CODE)


def test_a_supervisor_without_others_before_it_begins_at_nought():
    attempts = RestartPolicy(2)
    attempts.replay([])
    assert attempts.number == 0


def test_a_loss_of_nodes_for_which_there_are_others_is_no_failure_of_a_job_without_restarts():
    attempts = RestartPolicy(0)
    lost = failed(kind="node", error="")
    assert not attempts.decide_after(lost, progressed=True).again
    assert attempts.decide_after_loss(lost, progressed=True).again
    assert attempts.number == 1
    other = RestartPolicy(0)
    other.replay([ended(0, "node preemption")])
    assert other.number == 1
    assert (
        other.decide_after(failed(), progressed=True).end
        == attempts.decide_after(failed(), progressed=True).end
    )


def test_a_job_whose_nodes_are_lost_each_time_before_it_gets_anywhere_is_given_up():
    attempts = RestartPolicy(0)
    lost = failed(kind="node", error="")
    assert attempts.decide_after_loss(lost, progressed=False).again
    assert attempts.decide_after_loss(lost, progressed=True).again
    assert attempts.decide_after_loss(lost, progressed=False).again
    assert attempts.decide_after_loss(lost, progressed=False).again
    decision = attempts.decide_after_loss(lost, progressed=False)
    assert not decision.again
    assert decision.end.exit_code == 93
    assert "3 times in a row a node was lost" in decision.end.reason
