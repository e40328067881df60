"""The state machine that decides, without a clock, a process or a file."""

import pytest

from drumline.contract.events import RankExited
from drumline.supervisor.deciding import happenings as h
from drumline.supervisor.deciding import policy as p

FOUR = {rank: h.Member(rank // 2, str(rank)) for rank in range(4)}


START = h.SetTimer("start", p.START_TIMEOUT_S)


def said(instructions):
    """By type and content: two named tuples of different types but equal content compare equal."""
    return [repr(instruction) for instruction in instructions]


def policy(members=FOUR, nodes=2, grace_s=30.0, timeout_s=None, **settings):
    return p.Policy(members, nodes, grace_s=grace_s, timeout_s=timeout_s, **settings)


def running(**settings):
    """A policy whose ranks all run."""
    job = policy(**settings)
    members = settings.get("members", FOUR)
    for node in range(settings.get("nodes", 2)):
        job.handle(h.Joined(node))
    for node in range(settings.get("nodes", 2)):
        job.handle(h.Prepared(node))
    for node in range(1, settings.get("nodes", 2)):
        job.handle(h.Reached(node, ""))
    for rank in members:
        last = job.handle(h.Started(rank))
    assert said(last) == said([h.AllRunning()])
    return job


def exit_(rank, code=0, signal=None, time=0.0, members=FOUR):
    return RankExited(time, rank, members[rank].node, None if signal else code, signal)


def end_of(instructions):
    """The finish among them."""
    return next(item for item in instructions if isinstance(item, h.Finish))


def emptied(job, *nodes):
    for node in nodes:
        last = job.handle(h.Emptied(node, ()))
    return end_of(last)


@pytest.mark.parametrize(
    ("lost", "named"),
    [(True, "the agent of node 0 was killed by SIGKILL"), (False, "node 1 cannot reach node 0: refused")],
)
def test_a_node_that_is_not_reached_because_its_agent_is_gone_is_the_reason(lost, named):
    """The link is refused at once, and the end of the agent is noticed a moment later."""
    job = policy()
    job.begin()
    for happening in (h.Joined(0), h.Joined(1), h.Prepared(0), h.Prepared(1), h.Reached(1, "refused")):
        job.handle(happening)
    if not lost:
        job.handle(h.Emptied(0, ()))
    job.handle(h.Lost(0, "was killed by SIGKILL"))
    assert emptied(job, 1).reason == named


def test_a_second_node_that_does_not_reach_the_first_changes_nothing():
    job = policy({0: h.Member(0, "0")}, nodes=3)
    for happening in (*map(h.Joined, range(3)), *map(h.Prepared, range(3)), h.Reached(1, "refused")):
        job.handle(happening)
    assert job.handle(h.Reached(2, "refused")) == []
    assert emptied(job, 0, 1, 2).reason == "node 1 cannot reach node 0: refused"


def test_ranks_start_once_every_node_has_joined_and_reached_the_first():
    job = policy()
    assert said(job.begin()) == said([h.SetTimer("join", p.JOIN_TIMEOUT_S)])
    assert job.handle(h.Joined(1)) == []
    assert said(job.handle(h.Joined(0))) == said([h.Prepare()])
    assert job.handle(h.Prepared(0)) == []
    assert said(job.handle(h.Prepared(1))) == said([h.Reach()])
    assert said(job.handle(h.Reached(1, ""))) == said([h.StartRanks(), START])


def test_a_single_node_has_nobody_to_reach():
    job = policy({0: h.Member(0, "0")}, nodes=1)
    job.handle(h.Joined(0))
    assert said(job.handle(h.Prepared(0))) == said([h.StartRanks(), START])


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_job_that_checks_its_nodes_starts_no_rank(nodes):
    job = policy(FOUR if nodes == 2 else {0: h.Member(0, "0")}, nodes=nodes)
    job.begin(awaits_checks=True)
    for node in range(nodes):
        job.handle(h.Joined(node))
    told = [one for node in range(nodes) for one in job.handle(h.Prepared(node))]
    told += [one for node in range(1, nodes) for one in job.handle(h.Reached(node, ""))]
    assert not any(isinstance(one, h.StartRanks) for one in told)
    assert isinstance(job.handle(h.Checked(is_all=True))[0], h.Empty)
    end = emptied(job, *range(nodes))
    assert (end.status, end.exit_code, end.reason) == ("Completed", 0, "the nodes were checked")


def test_a_node_that_is_not_fit_fails_a_job_that_checks_its_nodes():
    job = policy({0: h.Member(0, "0")}, nodes=1)
    job.begin(awaits_checks=True)
    job.handle(h.Joined(0))
    job.handle(h.Prepared(0))
    job.handle(h.Checked("not started: node 0: no port can be had; end what holds them", 0, is_all=True))
    end = emptied(job, 0)
    assert (end.status, end.node) == ("Failed", 0)


def test_all_ranks_ending_with_zero_complete_the_job():
    job = running()
    for rank in range(3):
        assert job.handle(exit_(rank)) == []
    assert said(job.handle(exit_(3)))[:1] == said([h.Empty((0, 1), p.LEFTOVER_GRACE_S)])
    end = emptied(job, 0, 1)
    assert (end.status, end.exit_code, end.rank) == ("Completed", 0, None)


def test_the_first_failure_ends_the_rest():
    job = running()
    first, timer = job.handle(exit_(3, code=7, time=2.0))
    assert (first.nodes, timer) == ((0, 1), h.SetTimer("grace", 30.0))
    assert isinstance(first, h.Terminate)
    for rank in (0, 1):
        assert job.handle(exit_(rank, signal=15, time=2.1)) == []
    assert isinstance(job.handle(exit_(2, signal=15, time=2.1))[0], h.Empty)
    end = emptied(job, 0, 1)
    assert (end.status, end.exit_code, end.rank, end.node) == ("Failed", 7, 3, 1)
    assert end.reason == "rank 3 on node 1 failed first: exit code 7; ranks 0-2 were then stopped"


def test_the_failure_that_came_first_decides_though_it_was_heard_of_later():
    """Messages of two agents may overtake each other; the times of the exits do not."""
    job = running()
    job.handle(exit_(0, code=1, time=5.010))
    job.handle(exit_(3, code=9, time=5.000))
    for rank in (1, 2):
        job.handle(exit_(rank, signal=15, time=5.1))
    end = emptied(job, 0, 1)
    assert (end.rank, end.exit_code) == (3, 9)


def test_ranks_that_ignore_sigterm_are_killed_after_the_grace_period():
    job = running()
    job.handle(exit_(0, code=1))
    kill, bound = job.handle(h.Elapsed("grace"))
    assert said([kill]) == said([h.Kill((0, 1))])
    assert bound == h.SetTimer("kill", p.EMPTY_TIMEOUT_S)


def test_a_signal_becomes_128_plus_its_number():
    job = running()
    job.handle(exit_(1, signal=9))
    for rank in (0, 2, 3):
        job.handle(exit_(rank, signal=15, time=1.0))
    end = emptied(job, 0, 1)
    assert end.exit_code == 137
    assert end.reason.startswith("rank 1 on node 0 failed first: killed by signal 9 (SIGKILL")


def test_cancel_is_not_a_failure():
    job = running()
    assert isinstance(job.handle(h.Canceled("ann", at_once=False))[0], h.Terminate)
    for rank in range(4):
        job.handle(exit_(rank, signal=15))
    end = emptied(job, 0, 1)
    assert (end.status, end.exit_code, end.reason) == ("Canceled", 130, "canceled by ann")


def test_cancel_at_once_does_not_wait_for_the_grace_period():
    job = running()
    kinds = [type(item).__name__ for item in job.handle(h.Canceled("ann", at_once=True))]
    assert kinds == ["Terminate", "SetTimer", "Kill", "SetTimer"]


def test_a_second_cancel_at_once_kills_what_the_first_only_asked():
    job = running()
    job.handle(h.Canceled("ann", at_once=False))
    assert said(job.handle(h.Canceled("ann", at_once=True)))[0] == repr(h.Kill((0, 1)))


def test_the_time_limit_runs_from_the_start_of_the_ranks_and_cancels():
    job = policy(timeout_s=60.0)
    for event in (h.Joined(0), h.Joined(1), h.Prepared(0), h.Prepared(1)):
        job.handle(event)
    assert h.SetTimer("limit", 60.0) in job.handle(h.Reached(1, ""))
    for rank in FOUR:
        job.handle(h.Started(rank))
    job.handle(h.Elapsed("limit"))
    for rank in FOUR:
        job.handle(exit_(rank, signal=15))
    end = emptied(job, 0, 1)
    assert (end.status, end.exit_code) == ("Canceled", 124)
    assert "time limit of 60 s" in end.reason


def test_a_lost_agent_fails_the_job_and_its_ranks_count_as_gone():
    job = running()
    assert isinstance(job.handle(h.Lost(1, "was killed by SIGKILL"))[0], h.Terminate)
    job.handle(exit_(0, signal=15))
    job.handle(exit_(1, signal=15))
    end = emptied(job, 0)
    assert (end.status, end.node) == ("Failed", 1)
    assert end.reason == "the agent of node 1 was killed by SIGKILL"


def test_all_agents_lost_leaves_nobody_to_wait_for():
    job = running()
    job.handle(h.Lost(0, "was killed by SIGKILL"))
    end = end_of(job.handle(h.Lost(1, "was killed by SIGKILL")))
    assert end.reason == "the agent of node 0 was killed by SIGKILL"


def test_a_node_that_cannot_reach_the_first_fails_the_job_before_any_rank_starts():
    job = policy()
    for event in (h.Joined(0), h.Joined(1), h.Prepared(0), h.Prepared(1)):
        job.handle(event)
    assert isinstance(job.handle(h.Reached(1, "no route to host"))[0], h.Empty)
    assert emptied(job, 0, 1).reason == "node 1 cannot reach node 0: no route to host"


def test_a_node_that_never_joins_is_named():
    job = policy()
    job.handle(h.Joined(0))
    job.handle(h.Elapsed("join"))
    assert emptied(job, 0, 1).reason == "node 1 did not answer within 60 s"


WITH_SERVER = {0: h.Member(0, "0"), 1: h.Member(0, "ps0", awaited=False)}


def test_parameter_servers_are_ended_when_the_workers_are_done_and_that_is_success():
    job = running(members=WITH_SERVER, nodes=1)
    assert isinstance(job.handle(exit_(0, members=WITH_SERVER))[0], h.Terminate)
    job.handle(exit_(1, signal=15, members=WITH_SERVER))
    assert emptied(job, 0).status == "Completed"


def test_a_parameter_server_that_fails_fails_the_job():
    job = running(members=WITH_SERVER, nodes=1)
    job.handle(exit_(1, code=3, members=WITH_SERVER))
    job.handle(exit_(0, signal=15, time=1.0, members=WITH_SERVER))
    end = emptied(job, 0)
    assert (end.status, end.exit_code) == ("Failed", 3)
    assert end.reason.startswith("rank ps0 on node 0")


def with_chief(servers):
    """A chief, a worker, and maybe parameter servers, which are not waited for, nor is then the worker."""
    tasks = [h.Member(0, "0", awaited=not servers), h.Member(0, "chief")]
    tasks += [h.Member(0, f"ps{index}", awaited=False) for index in range(servers)]
    return dict(enumerate([*tasks, h.Member(0, "evaluator", awaited=False)]))


def test_with_a_chief_and_parameter_servers_the_chiefs_result_decides():
    members = with_chief(servers=2)
    job = running(members=members, nodes=1)
    assert isinstance(job.handle(exit_(1, members=members))[0], h.Terminate)
    for rank in (0, 2, 3, 4):
        job.handle(exit_(rank, signal=15, members=members))
    assert emptied(job, 0).reason == (
        "the chief ended with exit code 0; "
        "the worker, the 2 parameter servers and the evaluator were then stopped"
    )


def test_with_a_chief_alone_the_workers_are_waited_for_too():
    members = with_chief(servers=0)
    job = running(members=members, nodes=1)
    assert job.handle(exit_(1, members=members)) == []
    # An evaluator may end by itself, and is then not said to have been stopped.
    assert job.handle(exit_(2, members=members)) == []
    job.handle(exit_(0, members=members))
    assert emptied(job, 0).reason == "the chief and the worker ended with exit code 0"


@pytest.mark.parametrize("rank", [0, 2, 3])
def test_whoever_fails_beside_the_chief_fails_the_job(rank):
    members = with_chief(servers=1)
    job = running(members=members, nodes=1)
    job.handle(exit_(rank, code=5, members=members))
    for other in {0, 1, 2, 3} - {rank}:
        job.handle(exit_(other, signal=15, time=1.0, members=members))
    end = emptied(job, 0)
    assert (end.status, end.exit_code, end.rank) == ("Failed", 5, rank)


WITH_RAY = {0: h.Member(0, "0"), 1: h.Member(0, "ray0", awaited=False), 2: h.Member(1, "ray1", awaited=False)}


def test_a_ray_cluster_is_ended_with_the_command():
    job = running(members=WITH_RAY)
    assert isinstance(job.handle(exit_(0, members=WITH_RAY))[0], h.Terminate)
    for rank in (1, 2):
        job.handle(exit_(rank, code=1, members=WITH_RAY))
    end = emptied(job, 0, 1)
    assert (end.status, end.exit_code) == ("Completed", 0)
    assert end.reason == "its only rank ended with exit code 0; the 2 Ray nodes were then stopped"


def test_a_ray_node_that_dies_is_named():
    job = running(members=WITH_RAY)
    job.handle(exit_(2, code=1, members=WITH_RAY))
    for rank in (0, 1):
        job.handle(exit_(rank, signal=15, time=1.0, members=WITH_RAY))
    assert emptied(job, 0, 1).reason.startswith("rank ray1 on node 1 failed first: exit code 1")


def test_processes_that_even_sigkill_does_not_end_are_named():
    job = running()
    for rank in range(4):
        job.handle(exit_(rank))
    job.handle(h.Emptied(0, ({"pid": 4711, "name": "python", "state": "D", "waits_in": "nfs_wait"},)))
    end = end_of(job.handle(h.Emptied(1, ())))
    assert end.reason.endswith("; even SIGKILL did not end process 4711 (python, state D in nfs_wait)")


def test_an_agent_that_never_says_that_its_node_is_empty_is_given_up():
    job = running()
    for rank in range(4):
        job.handle(exit_(rank))
    job.handle(h.Emptied(0, ()))
    assert end_of(job.handle(h.Elapsed("empty"))).status == "Completed"


def test_nothing_is_decided_after_the_end():
    job = running()
    for rank in range(4):
        job.handle(exit_(rank))
    emptied(job, 0, 1)
    assert job.handle(h.Canceled("ann", at_once=True)) == []


@pytest.mark.parametrize("phase", range(5))
def test_cancel_before_the_ranks_run_ends_the_job_too(phase):
    job = policy()
    steps = [h.Joined(0), h.Joined(1), h.Prepared(0), h.Prepared(1)]
    for event in steps[:phase]:
        job.handle(event)
    assert isinstance(job.handle(h.Canceled("ann", at_once=False))[0], h.Empty)
    assert emptied(job, 0, 1).status == "Canceled"


def test_an_agent_that_joins_while_the_others_leave_is_told_too():
    job = policy()
    job.handle(h.Joined(0))
    assert said(job.handle(h.Canceled("ann", at_once=False)))[0] == repr(h.Empty((0, 1), 0.0))
    assert said(job.handle(h.Joined(1))) == said([h.Empty((1,), 0.0)])


def test_a_node_that_is_lost_while_the_job_ends_is_not_what_it_failed_of():
    job = running()
    job.handle(exit_(0, code=1, time=2.0))
    job.handle(exit_(1, signal=15, time=2.1))
    job.handle(h.Lost(1, "was killed by SIGKILL"))
    end = emptied(job, 0)
    assert (end.rank, end.exit_code) == (0, 1)
    assert end.reason == "rank 0 on node 0 failed first: exit code 1; rank 1 was then stopped"


def test_a_job_that_hangs_is_ended_only_where_that_is_wished():
    job = running()
    assert job.handle(h.Hung("ranks 0-3 wait", ends=False)) == []
    assert isinstance(job.handle(h.Hung("ranks 0-3 wait", ends=True))[0], h.Terminate)
    for rank in range(4):
        job.handle(exit_(rank, signal=15))
    end = emptied(job, 0, 1)
    assert (end.status, end.exit_code, end.reason) == ("Failed", h.HUNG_CODE, "it hung: ranks 0-3 wait")


def test_a_job_that_waits_for_a_lost_rank_fails_of_that_ranks_exception():
    job = running()
    assert job.handle(h.Hung("rank 1 raised ValueError but did not end", ends=False, lost=1)) == []
    (stop, _) = job.handle(h.Hung("rank 1 raised ValueError but did not end", ends=True, lost=1))
    assert isinstance(stop, h.Terminate)
    failure = {
        "time": 0.5,
        "type": "ValueError",
        "message": "bad batch",
        "file": "train.py",
        "line": 5,
        "function": "step",
    }
    job.handle(exit_(1, signal=15, time=9.0)._replace(evidence={"failure": failure, "told": 8.0}))
    for rank in (0, 2, 3):
        job.handle(exit_(rank, signal=15, time=9.0)._replace(evidence={"told": 8.0}))
    end = emptied(job, 0, 1)
    assert (end.rank, end.exit_code) == (1, 1)
    assert "ValueError: bad batch (train.py:5, in step); ranks 0 and 2-3 were then stopped" in end.reason


def test_a_lost_rank_that_ends_well_after_all_leaves_the_report():
    job = running()
    job.handle(h.Hung("rank 1 raised ValueError but did not end", ends=True, lost=1))
    for rank in range(4):
        job.handle(exit_(rank, code=0))
    end = emptied(job, 0, 1)
    assert (end.status, end.exit_code) == ("Failed", 1)
    assert end.reason == "it hung: rank 1 raised ValueError but did not end"


def test_the_time_limit_says_what_it_ended_unless_that_had_gone_on():
    for went_on, said_more in ((False, "; it hung: ranks 0-3 wait"), (True, "")):
        job = running(timeout_s=5.0)
        job.handle(h.Hung("ranks 0-3 wait", ends=False))
        if went_on:
            job.handle(h.Hung(""))
        (stop, _) = job.handle(h.Elapsed("limit"))
        assert stop.reason == "it ran into its time limit of 5 s" + said_more


@pytest.mark.parametrize(("grace_s", "expected"), [(None, 30.0), (5.0, 5.0), (600.0, 30.0)])
@pytest.mark.parametrize("kind", ["cancel", "preemption", "node preemption"])
def test_whoever_takes_the_nodes_away_may_leave_less_time_and_not_more(kind, grace_s, expected):
    job = running()
    happening = {
        "cancel": h.Canceled("scancel", at_once=False, grace_s=grace_s),
        "preemption": h.PreemptionAnnounced("Slurm", None, grace_s),
        "node preemption": h.PreemptionAnnounced("Slurm", 1, grace_s),
    }[kind]
    first, timer = job.handle(happening)
    assert isinstance(first, h.Terminate)
    assert (first.nodes, first.grace_s) == ((0, 1), expected)
    assert timer == h.SetTimer("grace", expected)


def stopped(job):
    for rank in range(4):
        job.handle(exit_(rank, signal=15))
    return emptied(job, 0, 1)


def test_a_cancel_during_a_preemption_is_what_the_job_ends_with():
    job = running()
    job.handle(h.PreemptionAnnounced("Slurm", None, 5.0))
    assert job.handle(h.Canceled("ann", at_once=False)) == []
    end = stopped(job)
    assert (end.status, end.exit_code, end.reason, end.kind) == (
        "Canceled",
        130,
        "canceled by ann",
        "failure",
    )


def test_a_cancel_at_once_during_a_preemption_does_not_wait():
    job = running()
    job.handle(h.PreemptionAnnounced("Slurm", None, 5.0))
    assert said(job.handle(h.Canceled("ann", at_once=True)))[0] == repr(h.Kill((0, 1)))


def test_a_preemption_during_a_cancel_changes_nothing():
    job = running()
    job.handle(h.Canceled("ann", at_once=False))
    assert job.handle(h.PreemptionAnnounced("Slurm", None, 5.0)) == []
    end = stopped(job)
    assert (end.status, end.reason) == ("Canceled", "canceled by ann")


def test_a_preemption_after_a_failure_is_a_failure():
    job = running()
    job.handle(exit_(0, code=3, time=1.0))
    assert job.handle(h.PreemptionAnnounced("Slurm", None, 5.0)) == []
    for rank in (1, 2, 3):
        job.handle(exit_(rank, signal=15, time=2.0))
    end = emptied(job, 0, 1)
    assert (end.kind, end.exit_code, end.rank) == ("failure", 3, 0)


def test_one_node_after_the_other_is_the_whole_job():
    job = running()
    job.handle(h.PreemptionAnnounced("Slurm", 0, 5.0))
    assert job.handle(h.PreemptionAnnounced("Slurm", 1, 4.0)) == [h.SetTimer("grace", 4.0)]
    end = stopped(job)
    assert (end.kind, end.node, end.reason) == ("preemption", None, "preempted by Slurm")


def test_nodes_that_are_taken_away_for_another_reason_were_not_preempted():
    job = running()
    job.handle(h.PreemptionAnnounced("Slurm, whose time limit is near", None, 5.0, "stopped"))
    end = stopped(job)
    assert (end.kind, end.reason) == ("preemption", "stopped by Slurm, whose time limit is near")


def test_a_cancel_before_the_ranks_run_leaves_nothing_to_wait_for():
    job = policy()
    job.handle(h.Joined(0))
    (empty, _) = job.handle(h.Canceled("scancel", at_once=False, grace_s=2.0))
    assert empty == h.Empty((0, 1), 0.0)
    end = emptied(job, 0, 1)
    assert (end.status, end.reason) == ("Canceled", "canceled by scancel")


def starting():
    """A policy that has told both agents to start their ranks."""
    job = policy()
    for node in range(2):
        job.handle(h.Joined(node))
    for node in range(2):
        job.handle(h.Prepared(node))
    assert h.SetTimer("start", p.START_TIMEOUT_S) in job.handle(h.Reached(1, ""))
    return job


def test_a_node_that_does_not_start_its_ranks_fails_the_job():
    job = starting()
    for rank in (0, 1, 2):
        job.handle(h.Started(rank))
    again = job.handle(h.Elapsed("start"))
    assert said(again) == said([h.SetTimer("start", p.START_TIMEOUT_S)]), "some have been started since"
    last = job.handle(h.Elapsed("start"))
    assert [type(item) for item in last] == [h.Terminate, h.SetTimer]
    for rank in (0, 1, 2):
        job.handle(exit_(rank, signal=15))
    job.handle(h.Elapsed("grace"))
    job.handle(h.Elapsed("kill"))
    end = emptied(job, 0, 1)
    assert (end.reason, end.node) == ("node 1 did not start rank 3 within 600 s", 1)


def test_ranks_that_run_have_no_limit_to_start():
    job = running()
    assert job.handle(h.Elapsed("start")) == []


def test_ranks_that_end_with_0_after_a_signal_have_completed():
    job = running()
    for rank in range(4):
        job.handle(exit_(rank)._replace(evidence={"terminated": 2.0, "left": 2.5 + rank}))
    assert emptied(job, 0, 1).status == "Completed"


def test_a_rank_that_was_told_to_stop_is_said_to_where_another_missed_it():
    job = running(members={0: FOUR[0], 1: FOUR[1]}, nodes=1)
    job.handle(exit_(1)._replace(evidence={"terminated": 2.0, "left": 2.5, "sent_by": "sent by rank 0"}))
    failure = {"type": "RuntimeError", "message": "Connection closed by peer", "time": 3.0}
    place = {"file": "train.py", "line": 3, "function": "step"}
    last = job.handle(exit_(0, code=1)._replace(evidence={"told": None, "failure": {**failure, **place}}))
    assert (
        "with exit code 0 after SIGTERM (sent by rank 0); rank 0 still waited"
        in end_of(emptied_of(job, last)).reason
    )


def emptied_of(job, instructions):
    while not any(isinstance(one, h.Finish) for one in instructions):
        is_empty = any(isinstance(one, h.Empty) for one in instructions)
        instructions = job.handle(h.Emptied(0, ()) if is_empty else h.Elapsed("cause"))
    return instructions
