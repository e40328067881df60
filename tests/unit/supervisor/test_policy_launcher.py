"""Ranks that a launcher starts: what its end and its daemons' ends mean."""

import pytest

from drumline.contract.events import RankExited
from drumline.supervisor.deciding import happenings as h
from drumline.supervisor.deciding import policy as p
from drumline.supervisor.explaining import missing_rank

FOUR = {rank: h.Member(rank // 2, str(rank)) for rank in range(4)}


def launching():
    """A policy whose launcher has been started."""
    job = p.Policy(FOUR, 2, grace_s=30.0, launcher="mpirun")
    for node in range(2):
        job.handle(h.Joined(node))
    for node in range(2):
        job.handle(h.Prepared(node))
    started = job.handle(h.Reached(1, ""))
    assert h.SetTimer("start", p.LAUNCHER_TIMEOUT_S) in started
    return job


def running():
    job = launching()
    for rank in FOUR:
        job.handle(h.Started(rank, 0.5))
    return job


def exit_(rank, code=0, signal=None, time=1.0):
    return RankExited(time, rank, FOUR[rank].node, None if signal else code, signal)


def kinds(instructions):
    return [type(instruction).__name__ for instruction in instructions]


def end_after(job, instructions, left=()):
    """The finish, once the ranks that are left have ended and both nodes are empty."""
    assert kinds(instructions)[0] in ("Terminate", "Empty")
    for rank in left:
        job.handle(exit_(rank, signal=15, time=2.0))
    job.handle(h.Emptied(0, ()))
    return job.handle(h.Emptied(1, ()))[-1]


def test_a_job_is_complete_once_its_launcher_has_ended_too():
    job = running()
    for rank in range(3):
        assert job.handle(exit_(rank)) == []
    assert job.handle(exit_(3)) == [h.SetTimer("launcher end", p.LAUNCHER_END_S)]
    end = end_after(job, job.handle(h.LauncherEnded(0, "", 0)))
    assert (end.status, end.exit_code) == ("Completed", 0)


def test_a_rank_that_ends_well_without_finalizing_is_named_and_not_its_launcher():
    job = running()
    assert job.handle(exit_(2)) == []
    quote = " (mpirun has exited due to process rank 2 with PID 7 on node x exiting improperly ... see mpirun.log)"
    job.handle(h.LauncherEnded(0, "mpirun exited with code 1", 1, quote=quote))
    end = end_after(job, job.handle(h.Elapsed("broken")), left=(0, 1, 3))
    assert (end.status, end.exit_code, end.verdict["rank"]) == ("Failed", 1, 2)
    assert end.reason == "rank 2 on node 1 ended early, 0.5 s in, with exit code 0 and without MPI_Finalize"


def test_a_launcher_that_does_not_end_is_ended():
    job = running()
    for rank in range(4):
        job.handle(exit_(rank))
    end = end_after(job, job.handle(h.Elapsed("launcher end")))
    assert end.status == "Completed"


def test_a_cancel_that_comes_after_the_last_rank_changes_nothing():
    job = running()
    for rank in range(4):
        job.handle(exit_(rank))
    assert job.handle(h.Canceled("ann", at_once=False)) == []
    assert end_after(job, job.handle(h.LauncherEnded(0, "", 0))).status == "Completed"


def test_its_end_may_be_heard_of_before_that_of_the_last_rank():
    job = running()
    for rank in range(3):
        job.handle(exit_(rank))
    job.handle(h.LauncherEnded(0, "", 0))
    assert end_after(job, job.handle(exit_(3))).status == "Completed"


def test_a_launcher_that_is_killed_is_the_reason_at_once():
    job = running()
    stop = job.handle(h.LauncherEnded(0, "mpirun was killed by signal 9", 137, killed=True))
    end = end_after(job, stop, left=range(4))
    assert (end.status, end.exit_code, end.rank) == ("Failed", 137, None)
    assert end.reason == "mpirun was killed by signal 9"


def test_a_rank_that_fails_while_its_launcher_gives_up_is_the_reason():
    """As with MPI_Abort: the launcher ends the others, and the rank that called it ends a moment later."""
    job = running()
    assert kinds(job.handle(h.Broken(0, "mpirun ended rank 0", 1, p.ABANDONED_DELAY_S))) == [
        "SetTimer",
        "SetTimer",
    ]
    end = end_after(job, job.handle(exit_(2, code=5)), left=(0, 1, 3))
    assert (end.exit_code, end.rank) == (5, 2)


def test_a_rank_that_fails_long_after_that_is_a_consequence():
    job = running()
    job.handle(h.Broken(0, "mpirun ended rank 0", 1, p.ABANDONED_DELAY_S))
    job.handle(h.Elapsed("settled"))
    assert job.handle(exit_(2, code=1)) == []
    assert kinds(job.handle(h.LauncherEnded(0, "mpirun exited with code 1 (said why)", 1))) == [
        "SetTimer",
        "SetTimer",
    ]
    end = end_after(job, job.handle(h.Elapsed("broken")), left=(0, 1, 3))
    assert (end.reason, end.rank) == ("mpirun exited with code 1 (said why)", None)


def test_a_rank_that_crashes_while_it_is_cut_off_is_a_consequence():
    job = running()
    job.handle(h.Broken(0, "mpirun ended rank 0", 1, p.ABANDONED_DELAY_S))
    assert job.handle(exit_(1, signal=11)) == []
    job.handle(h.LauncherEnded(0, "mpirun exited with code 9 (Abort(9) on rank 2)", 9))
    end = end_after(job, job.handle(h.Elapsed("broken")), left=(0, 2, 3))
    assert (end.reason, end.exit_code) == ("mpirun exited with code 9 (Abort(9) on rank 2)", 9)


def test_a_rank_that_crashes_after_an_exception_is_the_reason():
    """With MPICH 5 the rank that calls MPI_Abort crashes itself, and its daemon's end is heard of first."""
    job = running()
    job.handle(h.Broken(1, "the daemon of mpirun on node 1 exited with code 7", 7))
    where = {"file": "train.py", "line": 3, "function": "f"}
    raised = {"type": "ValueError", "message": "loss is nan", "time": 1.0, **where}
    end = end_after(
        job, job.handle(exit_(2, signal=11)._replace(evidence={"failure": raised})), left=(0, 1, 3)
    )
    assert end.rank == 2
    assert "ValueError: loss is nan" in end.reason


@pytest.mark.parametrize("event", ["", "settled"])
def test_a_rank_that_is_killed_is_no_consequence_whatever_is_heard_of_first(event):
    """A launcher learns by a closed connection of it, which may come before the rank's end is seen."""
    job = running()
    job.handle(h.Broken(0, "mpirun ended rank 0", 1, p.ABANDONED_DELAY_S))
    job.handle(h.Broken(1, "the daemon of mpirun on node 1 exited with code 7", 7))
    job.handle(h.LauncherEnded(0, "mpirun exited with code 255", 255))
    if event:
        job.handle(h.Elapsed(event))
    end = end_after(job, job.handle(exit_(2, signal=9)), left=(0, 1, 3))
    assert (end.exit_code, end.rank) == (137, 2)


def test_ranks_that_lost_a_peer_and_their_launcher_wait_for_the_one_that_is_gone():
    """Its connections close before its end is seen; Open MPI then ends its neighbours, and itself."""
    job = running()
    lost = exit_(3, code=14)._replace(evidence={"lost_peer": missing_rank.explain_mpi_code(14)})
    assert kinds(job.handle(lost)) == ["Seek", "SetTimer"]
    assert job.handle(h.Broken(1, "mpirun ended rank 2", 1, p.ABANDONED_DELAY_S)) == []
    assert job.handle(h.LauncherEnded(0, "mpirun exited with code 14", 14)) == []
    end = end_after(job, job.handle(exit_(2, signal=9, time=1.01)), left=(0, 1))
    assert (end.rank, end.verdict["cut_off"]) == (2, [3])
    assert "rank 3 was then cut off (MPI lost a peer)" in end.reason


def test_a_rank_of_that_code_is_named_when_nothing_explains_it():
    job = running()
    job.handle(exit_(3, code=14)._replace(evidence={"lost_peer": missing_rank.explain_mpi_code(14)}))
    job.handle(h.LauncherEnded(0, "mpirun exited with code 14", 14))
    end = end_after(job, job.handle(h.Elapsed("cause")), left=(0, 1, 2))
    assert (end.rank, end.exit_code) == (3, 14)


def test_a_rank_that_lost_its_daemon_is_a_consequence():
    job = running()
    assert kinds(job.handle(exit_(2, code=p.LOST_DAEMON_CODE))) == ["SetTimer", "SetTimer"]
    stop = job.handle(h.Broken(1, "the daemon of mpirun on node 1 was killed by signal 9", 137, 0.0))
    end = end_after(job, stop, left=(0, 1, 3))
    assert (end.reason, end.node) == ("the daemon of mpirun on node 1 was killed by signal 9", 1)


def test_what_it_says_itself_counts_when_nothing_better_comes():
    job = running()
    job.handle(exit_(2, code=p.LOST_DAEMON_CODE))
    end = end_after(job, job.handle(h.Elapsed("broken")), left=(0, 1, 3))
    assert end.reason == "rank 2 on node 1 failed: exit code 195, as one that has lost its daemon of mpirun"


def test_a_daemon_that_cannot_start_is_told_with_what_the_launcher_has_said():
    job = running()
    job.handle(h.Broken(1, "the daemon of mpirun on node 1 exited with code 127", 127))
    job.handle(h.LauncherEnded(0, "mpirun exited with code 255", 255, quote=" (no proxy ... see mpirun.log)"))
    end = end_after(job, job.handle(h.Elapsed("broken")), left=range(4))
    assert end.reason == "the daemon of mpirun on node 1 exited with code 127 (no proxy ... see mpirun.log)"


ABORT = "Abort(7) on node 2 (rank 2 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 7) - process 2"


@pytest.mark.parametrize(
    ("said", "reason", "code"),
    [
        (ABORT, f'rank 2 on node 1 failed first, 0.5 s in: exit code 7, after it said "{ABORT[:40]}', 7),
        (ABORT.replace(", 7", ", 256"), "rank 2 on node 1 failed first, 0.5 s in: exit code 1, after", 1),
        (ABORT.replace("process 2", "process 9"), "the daemon of mpirun on node 1 exited with code 7", 7),
        ("no abort", "the daemon of mpirun on node 1 exited with code 7", 7),
    ],
)
def test_a_rank_that_called_mpi_abort_is_named_although_mpich_cut_it_off_as_well(said, reason, code):
    job = running()
    job.handle(h.Broken(1, "the daemon of mpirun on node 1 exited with code 7", 7))
    stop = job.handle(h.Elapsed("broken"))
    job.handle(exit_(2, signal=15)._replace(evidence={"said": said, "told": 0.5}))
    end = end_after(job, stop, left=(0, 1, 3))
    assert end.reason.startswith(reason)
    assert (end.exit_code, end.rank) == (code, None if "daemon" in reason else 2)


def running_once():
    """A policy of one rank, whose command starts daemons on both nodes."""
    job = p.Policy({0: h.Member(0, "0")}, 2, grace_s=30.0)
    for event in (h.Joined(0), h.Joined(1), h.Prepared(0), h.Prepared(1), h.Reached(1, ""), h.Started(0)):
        job.handle(event)
    return job


KILLED = h.DaemonsChanged(0, h.Broken(1, "the daemon on node 1 was killed", 255))


@pytest.mark.parametrize("is_late", [False, True])
def test_a_command_that_ends_well_has_failed_if_a_daemon_of_its_mpirun_was_killed(is_late):
    """Open MPI 5 ends with 0 then, and this may be heard of before the daemon's end."""
    job = running_once()
    job.handle(h.DaemonsChanged(1))
    if is_late:
        assert job.handle(exit_(0)) == [h.SetTimer("launcher end", p.LAUNCHER_END_S)]
        end = end_after(job, job.handle(KILLED))
    else:
        assert job.handle(KILLED) == []
        end = end_after(job, job.handle(exit_(0)))
    assert (end.status, end.exit_code, end.reason, end.node) == (
        "Failed",
        255,
        f"{KILLED.lost.reason}; the command ended with exit code 0 all the same",
        1,
    )


def test_a_command_whose_next_mpirun_ends_well_has_not_failed():
    job = running_once()
    for event in (h.DaemonsChanged(1), KILLED, h.DaemonsChanged(1), h.DaemonsChanged(0)):
        job.handle(event)
    assert end_after(job, job.handle(exit_(0))).status == "Completed"


@pytest.mark.parametrize("event", [h.DaemonsChanged(0), h.Elapsed("launcher end")])
def test_a_command_that_ends_well_waits_a_moment_for_its_daemons(event):
    job = running_once()
    job.handle(h.DaemonsChanged(1))
    job.handle(exit_(0))
    assert end_after(job, job.handle(event)).status == "Completed"


def test_the_failure_of_a_command_tells_more_than_that_of_its_daemon():
    job = running_once()
    job.handle(h.DaemonsChanged(1))
    stop = job.handle(exit_(0, code=7))
    job.handle(KILLED)
    assert end_after(job, stop).exit_code == 7


def test_ranks_that_were_never_started_are_not_waited_for():
    job = launching()
    job.handle(h.Started(0))
    stop = job.handle(exit_(0, code=1))
    assert kinds(stop)[0] == "Empty"
    assert end_after(job, stop).rank == 0


@pytest.mark.parametrize(("started", "missing"), [((), "0, 1, 2, 3"), ((0, 1, 2), "3")])
def test_a_launcher_that_asks_for_no_ranks_is_given_up(started, missing):
    job = launching()
    for rank in started:
        job.handle(h.Started(rank))
    end = end_after(job, job.handle(h.Elapsed("start")), left=started)
    assert end.reason == f"mpirun did not start rank {missing} within 60 s"


def test_nothing_that_breaks_while_the_job_stops_changes_its_reason():
    job = running()
    stop = job.handle(exit_(1, code=3))
    assert job.handle(h.Broken(1, "late", 1, 0.0)) == []
    assert job.handle(h.LauncherEnded(0, "late", 1)) == []
    end = end_after(job, stop, left=(0, 2, 3))
    assert (end.rank, end.exit_code) == (1, 3)
