"""Ranks that fail because another is gone: that one is waited for, a moment, before the rest is told to end."""

import pytest

from drumline.contract.events import RankExited
from drumline.supervisor.deciding import happenings as h
from drumline.supervisor.deciding import policy as p
from drumline.supervisor.explaining import missing_rank

FOUR = {rank: h.Member(rank // 2, str(rank)) for rank in range(4)}


def running(grace_s=30.0):
    """A policy whose ranks all run."""
    job = p.Policy(FOUR, 2, grace_s=grace_s)
    steps = [h.Joined(0), h.Joined(1), h.Prepared(0), h.Prepared(1), h.Reached(1, "")]
    for event in [*steps, *(h.Started(rank, 1.0) for rank in FOUR)]:
        job.handle(event)
    return job


def exit_(rank, code=0, signal=None, time=0.0):
    return RankExited(time, rank, FOUR[rank].node, None if signal else code, signal)


def said(instructions):
    """By type and content."""
    return [repr(instruction) for instruction in instructions]


def emptied(job, *nodes):
    """The finish, once these nodes are empty."""
    for node in nodes:
        last = job.handle(h.Emptied(node, ()))
    return next(item for item in last if isinstance(item, h.Finish))


def cut_off(rank, time):
    message = "[pair.cc:553] Connection closed by peer [127.0.0.1]:4242"
    failure = {"type": "RuntimeError", "message": message, "time": time}
    return RankExited(time + 0.1, rank, FOUR[rank].node, 1, None, "", {"failure": failure, "told": None})


def seeking():
    """A policy of four ranks, the first of which was cut off."""
    job = running()
    assert said(job.handle(cut_off(0, 5.0))) == said(
        [h.Seek((0, 1)), h.SetTimer("cause", missing_rank.SETTLE_S)]
    )
    return job


def test_one_that_ends_with_0_a_moment_later_explains_what_the_others_failed_of():
    job = seeking()
    assert job.handle(cut_off(1, 5.001)) == []
    assert isinstance(job.handle(exit_(3, time=5.2))[0], h.Terminate)
    job.handle(exit_(2, signal=15, time=5.3))
    end = emptied(job, 0, 1)
    assert (end.rank, end.exit_code) == (3, 1)
    assert end.reason.startswith(
        "rank 3 on node 1 ended early, 4.2 s in, with exit code 0; rank 0 still waited for it, "
        "and was cut off by that: RuntimeError: [pair.cc:553] Connection closed by peer"
    )


def refused(rank, time, message="[Errno 111] Connection refused"):
    """The end of a rank for want of one that never was there: none that ended explains it."""
    failure = {"type": "RuntimeError", "message": message, "time": time}
    return RankExited(time + 0.1, rank, FOUR[rank].node, 1, None, "", {"failure": failure, "told": None})


def test_good_ends_that_explain_nothing_do_not_end_the_search():
    job = running()
    job.handle(refused(0, 5.0))
    assert job.handle(exit_(1, time=5.2)) == job.handle(exit_(2, time=5.2)) == []
    assert isinstance(job.handle(exit_(3, time=5.2))[0], h.Empty), "nobody is left"


def test_the_good_end_of_a_rank_that_was_named_as_late_ends_the_search():
    job = running()
    job.handle(refused(0, 5.0))
    job.handle(refused(1, 5.1, "Rank 3 failed to pass monitoredBarrier in 100 ms"))
    assert isinstance(job.handle(exit_(3, time=5.3))[0], h.Terminate)
    job.handle(exit_(2, signal=15, time=5.4))
    assert emptied(job, 0, 1).rank == 3


def test_a_failure_that_explains_the_others_ends_the_job_at_once():
    job = seeking()
    assert isinstance(job.handle(exit_(2, code=7, time=5.2))[0], h.Terminate)
    for rank in (1, 3):
        job.handle(exit_(rank, signal=15, time=5.3))
    assert emptied(job, 0, 1).rank == 2


def test_nothing_is_waited_for_where_the_first_failure_is_a_rank_own():
    assert isinstance(running().handle(exit_(0, code=1, time=5.0))[0], h.Terminate)


def test_what_nothing_explains_is_waited_for_a_moment_alone():
    job = seeking()
    first, timer = job.handle(h.Elapsed("cause"))
    assert isinstance(first, h.Terminate)
    assert timer == h.SetTimer("grace", 30.0)
    assert job.handle(h.Elapsed("cause")) == []
    for rank in (1, 2, 3):
        job.handle(exit_(rank, signal=15, time=6.2))
    assert emptied(job, 0, 1).rank == 0


def test_when_all_are_gone_nothing_is_waited_for():
    job = seeking()
    job.handle(cut_off(1, 5.001))
    job.handle(cut_off(2, 5.001))
    assert isinstance(job.handle(cut_off(3, 5.002))[0], h.Empty)


def test_a_node_that_is_lost_meanwhile_is_what_the_job_failed_of():
    job = seeking()
    assert isinstance(job.handle(h.Lost(1, "was killed by SIGKILL"))[0], h.Terminate)
    job.handle(exit_(1, signal=15, time=6.0))
    assert emptied(job, 0).reason == "the agent of node 1 was killed by SIGKILL"


@pytest.mark.parametrize(
    "happening", [h.Canceled("ann", at_once=False), h.PreemptionAnnounced("Slurm", None, 5.0)]
)
def test_whoever_ends_the_job_meanwhile_does_not_wait(happening):
    job = seeking()
    assert isinstance(job.handle(happening)[0], h.Terminate)
    for rank in (1, 2, 3):
        last = job.handle(exit_(rank, signal=15, time=6.0))
    assert isinstance(last[0], h.Empty)
    assert emptied(job, 0, 1).status == "Failed"


def test_a_cancel_at_once_meanwhile_kills():
    kinds = [type(item).__name__ for item in seeking().handle(h.Canceled("ann", at_once=True))]
    assert kinds == ["Terminate", "SetTimer", "Kill", "SetTimer"]


BAD_BATCH = {"type": "ValueError", "message": "bad batch", "file": "train.py", "line": 88, "function": "step"}
WAITS = missing_rank.RunningRank(("wait in all_reduce (train.py:90, in step)",), None)


def found(job, **where):
    return job.handle(h.Found(1, {int(rank[1:]): one for rank, one in where.items()}))


def test_a_rank_that_cleans_up_after_an_exception_has_time_for_that_and_began_all_the_same():
    job = seeking()
    asked = found(job, r2=WAITS, r3=missing_rank.RunningRank(("be in close (train.py:99)",), [BAD_BATCH]))
    assert said(asked) == said([h.SetTimer("ask", missing_rank.ASK_AGAIN_S)])
    assert said(job.handle(h.Elapsed("ask"))) == said([h.Seek((1,))])
    # It is in native code now.
    found(job, r2=WAITS, r3=missing_rank.RunningRank(("be in close (train.py:99)",), None))
    more = job.handle(h.Elapsed("cause"))
    assert more == [h.SetTimer("cause", missing_rank.CLEANING_S - missing_rank.SETTLE_S)]
    assert isinstance(job.handle(h.Elapsed("cause"))[0], h.Terminate)
    for rank in (1, 2, 3):
        told = {"told": 10.0}
        job.handle(RankExited(10.1, rank, FOUR[rank].node, None, 15, "", told))
    end = emptied(job, 0, 1)
    assert end.reason == (
        "rank 3 on node 1 failed first, 4 s in: ValueError: bad batch (train.py:88, in step); "
        "rank 0 was then cut off (Connection closed by peer); ranks 1-2 were then stopped"
    )
    assert end.exit_code == 1


def test_one_that_answers_that_it_is_failing_no_more_is_not_waited_for():
    job = seeking()
    found(job, r3=missing_rank.RunningRank(WAITS.places, [BAD_BATCH]))
    found(job, r3=missing_rank.RunningRank(WAITS.places, []), r2=WAITS)
    assert isinstance(job.handle(h.Elapsed("cause"))[0], h.Terminate)
    for rank in (1, 2, 3):
        job.handle(RankExited(10.1, rank, FOUR[rank].node, None, 15, "", {"told": 10.0}))
    assert emptied(job, 0, 1).rank == 0


def test_ranks_that_wait_in_a_collective_are_waited_for_no_longer():
    job = seeking()
    found(job, r1=WAITS, r2=WAITS, r3=WAITS)
    assert isinstance(job.handle(h.Elapsed("cause"))[0], h.Terminate)


def test_a_rank_elsewhere_may_be_about_to_end():
    job = seeking()
    found(job, r1=WAITS, r2=WAITS, r3=missing_rank.RunningRank(("be in main (train.py:120)",), []))
    assert job.handle(h.Elapsed("cause")) == [
        h.SetTimer("cause", missing_rank.ELSEWHERE_S - missing_rank.SETTLE_S)
    ]


def test_a_grace_that_is_shorter_is_the_limit():
    job = running(grace_s=0.3)
    assert job.handle(cut_off(0, 5.0)) == [h.Seek((0, 1)), h.SetTimer("cause", 0.3)]


def test_a_node_that_has_not_answered_is_not_asked_again():
    """It would hear of the end behind all those questions."""
    job = seeking()
    for _ in range(3):
        found(job, r2=WAITS)
        assert said(job.handle(h.Elapsed("ask"))) == said([h.Seek((1,))])
    assert job.handle(h.Elapsed("ask")) == []
