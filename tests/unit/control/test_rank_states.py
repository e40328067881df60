"""The state of each rank in one word, of made run folders and of those that an earlier version wrote."""

import pytest
from made_jobs import MadeJob

from drumline.contract import events as e
from drumline.contract.errors import UsageError
from drumline.control.facts.description import show_job
from drumline.control.facts.job import read_facts
from drumline.control.facts.ranks import describe_ranks

VERDICT = {"rank": 2, "node": 1, "cut_off": [0], "stopped": [1], "failed_too": [3]}


def states(job, attempt=None):
    return [one.state for one in describe_ranks(job.name, attempt).ranks]


def exited(rank, code, signal=None, at=1010.0):
    return e.RankExited(at, rank, rank // 2, code, signal)


@pytest.fixture
def job(drumline_home):
    return MadeJob()


def test_before_and_while_ranks_are_started(job):
    assert states(job) == ["waiting"] * 4
    job.start()
    told = describe_ranks(job.name)
    assert [one.state for one in told.ranks] == ["running"] * 4
    assert told.sentence == "4 ranks on 2 nodes: 4 running"
    assert told.nodes == [(0, "node 0", [0, 1]), (1, "node 1", [2, 3])]
    assert [one.local_rank for one in told.ranks] == [0, 1, 0, 1]


def test_the_rank_that_began_and_those_that_it_took_with_it(job):
    job.start()
    job.log(2, "step 1\nValueError: no\n\n")
    job.add(exited(2, 1))
    assert states(job) == ["running", "running", "failed_first", "running"]
    job.add(exited(0, 1), exited(1, None, 15), exited(3, 1))
    job.add(e.JobEnded(1020.0, "Failed", 1, "rank 2 failed first", 2, 1, VERDICT))
    told = describe_ranks(job.name)
    assert [one.state for one in told.ranks] == ["cut_off", "stopped", "failed_first", "failed"]
    assert told.sentence == "rank 2 failed first"
    assert (told.ranks[2].exit_code, told.ranks[1].signal) == (1, 15)
    assert told.ranks[2].last_line == "ValueError: no"
    assert told.ranks[2].ended == "1970-01-01T00:16:50.000Z"


def test_ranks_of_a_lost_node_are_lost_wherever_states_are_shown(job):
    job.start()
    job.add(exited(1, 0), e.NodeLost(1012.0, 1, "was killed by SIGKILL"))
    assert states(job) == ["running", "completed", "lost", "lost"]
    assert read_facts(job.name).rank_groups == [
        ("lost", ["2", "3"]),
        ("running", ["0"]),
        ("done", ["1"]),
    ]
    described = show_job(job.name)
    assert [one["state"] for one in described["ranks"]] == ["running", "done", "lost", "lost"]
    assert [one["rank"] for one in described["processes"]["ranks"]] == [0]


def test_an_attempt_that_is_over_is_read_once_unless_its_events_change(job, monkeypatch):
    job.start()
    describe_ranks(job.name)
    job.add(e.JobEnded(1020.0, "Completed", 0, "fine"))
    told = describe_ranks(job.name)
    assert told.sentence == "fine"
    with monkeypatch.context() as unread:
        unread.setattr("drumline.control.facts.ranks.read_plan", pytest.fail)
        assert describe_ranks(job.name) == told
    job.add(exited(0, 3))
    assert describe_ranks(job.name).ranks[0].exit_code == 3


def test_each_attempt_has_its_own_states(job):
    job.start()
    job.add(exited(2, 1), exited(0, 1), exited(1, None, 15), exited(3, 1))
    job.log(2, "first\n", is_earlier=True)
    job.add(e.AttemptEnded(1015.0, 0, 1, "rank 2 failed first", 2, 1, VERDICT))
    job.start(1016.0)
    job.add(exited(0, 0, at=1020.0))
    told = describe_ranks(job.name, 0)
    assert [one.state for one in told.ranks] == ["cut_off", "stopped", "failed_first", "failed"]
    assert (told.attempt, told.attempts, told.sentence) == (0, 2, "rank 2 failed first")
    assert told.ranks[2].last_line == "first"
    assert states(job) == ["completed", "running", "running", "running"]
    with pytest.raises(UsageError, match="no attempt 2"):
        describe_ranks(job.name, 2)


def test_canceled_ranks_were_stopped_and_those_of_a_lost_node_are_lost(job):
    job.start()
    job.add(e.NodeLost(1009.0, 1, "it is gone"))
    assert states(job) == ["running", "running", "lost", "lost"]
    job.add(e.CancelRequested(1010.0, "ann"), exited(0, None, 15), exited(1, 143))
    job.add(e.JobEnded(1011.0, "Canceled", 130, "canceled by ann"))
    assert states(job) == ["stopped", "stopped", "lost", "lost"]
