"""When a job hangs, and how it is said where its ranks are. Looks are a second apart."""

import pytest

from drumline.contract.messages import Activity
from drumline.supervisor.watching.hang import (
    END,
    REPORT,
    HangDetector,
    JobWatches,
    Poll,
    RankPlace,
    RankSample,
    explain_hang,
    list_places,
    locate_rank,
)

TORCH = "/venv/lib/python3.11/site-packages/torch/distributed/"
ALL_REDUCE = [
    [TORCH + "distributed_c10d.py", 3012, "all_reduce"],
    [TORCH + "c10d_logger.py", 83, "wrapper"],
    ["train.py", 210, "step"],
    ["train.py", 300, "<module>"],
]
LOAD = [["data.py", 31, "load_batch"], ["train.py", 208, "step"]]


def at(frames, state="S", waits_in="0", collective=None):
    known = {"pid": 7, "name": "python", "state": state, "waits_in": waits_in, "frames": frames, "threads": 1}
    return [{**known, "collective": collective}]


def hangs_at(watch, looks, ranks=(0, 1)):
    """The first look at which it hangs, None for never; ``looks``: of second and rank, what is seen."""
    for second in range(100):
        seen = {rank: looks(second, rank) for rank in ranks}
        if not watch.wants_stacks(second):
            seen = {rank: one._replace(where=RankPlace()) for rank, one in seen.items()}
        if watch.add(Poll(seen, float(second))):
            return second
    return None


def both(looks, ranks=(0, 1)):
    """When the job is reported, and when it may be ended."""
    return hangs_at(HangDetector(10), looks, ranks), hangs_at(HangDetector(10, END), looks, ranks)


def idle(stack="idle"):
    return RankSample(0, 1.0, where=RankPlace(stack))


def spinning(second, share=1.0, elsewhere=0.0, **where):
    """One that has used that share of a core at one place, and another share in other threads."""
    return RankSample(0, second * (share + elsewhere), where=RankPlace("here", second * share, **where))


def test_a_job_that_neither_prints_nor_computes_hangs():
    assert both(lambda _, __: RankSample(0, 1.0)) == (10, 10)
    assert both(lambda _, __: idle()) == (10, 10)


def test_one_rank_that_prints_is_enough():
    assert both(lambda second, rank: RankSample(second * rank, 1.0)) == (None, None)


def test_ranks_that_compute_here_and_there_go_on():
    looks = lambda second, rank: RankSample(0, second * 0.9 * rank, where=RankPlace(f"line {second}"))  # noqa: E731
    assert both(looks, ranks=(0, 1, 2)) == (None, None)


def test_a_rank_that_spins_in_a_collective_does_not_go_on():
    waits = {"is_collective": True, "went_on": False}
    assert both(lambda second, _: spinning(second, **waits)) == (10, 10)


@pytest.mark.parametrize("stack", ["line {0}", "here"])
def test_a_rank_that_alone_computes_while_the_others_wait_is_reported_and_ends_no_job(stack):
    """Evaluation on rank 0 alone, or a loop without an end: a count that rises tells them apart."""

    def looks(counts, second, rank):
        where = RankPlace(stack.format(second), second * 1.0)
        activity = Activity(counted=counts * second)
        return RankSample(0, second * 1.0, where=where, activity=activity) if rank == 0 else idle()

    report, end = both(lambda *now: looks(0, *now), ranks=(0, 1, 2, -1))
    assert (10 <= report <= 13, end) == (True, None)
    assert both(lambda *now: looks(1, *now)) == (None, None)


@pytest.mark.parametrize(
    "other",
    [
        idle()._replace(activity=Activity(sleep_s=5.0)),
        RankSample(0, 1.0, where=RankPlace("there", is_runnable=True)),
    ],
    ids=["sleeps", "has no processor"],
)
def test_a_rank_does_not_compute_alone_while_another_one_does_not_wait_for_it(other):
    assert both(lambda second, rank: spinning(second) if rank == 0 else other) == (None, None)


def test_ranks_that_have_no_processor_at_a_place_that_nobody_knows_go_on():
    starved = locate_rank(at([], state="R"))
    assert both(lambda _, __: RankSample(0, 1.0, where=starved)) == (None, None)


def test_a_rank_that_alone_computes_is_reported_once_until_another_one_does():
    watch, told = HangDetector(10), []
    for second in range(60):
        busy = 0 if second < 30 else 1
        seen = {
            rank: RankSample(0, second * 1.0, where=RankPlace("here")) if rank == busy else idle()
            for rank in (0, 1)
        }
        if not watch.wants_stacks(second):
            seen = {rank: one._replace(where=RankPlace()) for rank, one in seen.items()}
        if watch.add(Poll(seen, float(second))):
            told.append((second, watch.busy))
    assert [busy for _, busy in told] == [0, 1]
    assert told[1][0] >= 40


@pytest.mark.parametrize("library", ["MPI", "GPU"])
def test_a_rank_that_may_spin_is_reported_but_ends_no_job(library):
    assert both(lambda second, _: spinning(second, library=library, went_on=False)) == (10, None)
    assert both(lambda second, _: spinning(second, library=library, went_on=True)) == (None, None)


def test_a_collective_that_returns_is_another_one_each_time():
    place = RankPlace("all_reduce", 1.0, is_collective=True, went_on=True)
    steps = lambda _, __: RankSample(0, 1.0, where=place)  # noqa: E731
    assert both(steps) == (10, None), "a report may be wrong"


def test_a_rank_whose_other_threads_or_children_compute_goes_on():
    waits = {"is_collective": True, "went_on": False}
    three = (0, 1, 2)
    assert both(lambda second, rank: spinning(second, 0.0, 0.8 * rank), three) == (None, None)
    assert both(lambda second, rank: spinning(second, 1.0, 0.8 * rank, **waits), three) == (None, None)


def test_a_background_thread_is_no_progress_but_keeps_a_job_from_being_ended():
    assert both(lambda second, _: spinning(second, 0.0, 0.06)) == (10, None)
    assert both(lambda second, _: spinning(second, 0.0, 0.01)) == (10, 10)


def test_what_the_flight_recorder_counts_on_is_progress():
    recorded = lambda second, _: RankSample(0, 1.0, where=RankPlace("here", recorded=f"seq {second}"))  # noqa: E731
    assert both(recorded) == (None, None)


def test_a_rank_that_computes_at_a_place_that_nobody_knows_goes_on():
    assert both(lambda second, rank: RankSample(0, second * 0.9 * rank), (0, 1, 2)) == (None, None)


def test_what_ranks_have_left_to_the_agent_goes_on_for_them():
    daemon = lambda second, rank: RankSample(0, second * 0.9) if rank < 0 else idle()  # noqa: E731
    assert both(daemon, ranks=(0, 1, -1)) == (None, None)
    assert both(lambda _, __: idle(""), ranks=(0, 1, -1)) == (10, 10)


def test_a_single_rank_waits_for_nobody():
    spins = {"is_collective": True, "went_on": False}
    assert both(lambda second, _: spinning(second, **spins), ranks=(0,)) == (None, None)
    assert both(lambda _, __: idle(), ranks=(0,)) == (10, 10)


def test_a_rank_that_reads_or_writes_goes_on():
    def reads(bytes_):
        return lambda second, rank: RankSample(0, 1.0, second * bytes_ * rank, where=RankPlace("read"))

    assert both(reads(2 << 20)) == (None, None)
    assert both(reads(1 << 17)) == (10, None), "who reads a little may work"
    assert both(reads(100)) == (10, 10)


def test_what_a_look_takes_is_not_the_ranks():
    place = lambda second: RankPlace(f"line {second}")  # noqa: E731
    looks = lambda second, _: RankSample(0, second * 0.3, second << 21, 0.3, 2 << 20, place(second))  # noqa: E731
    assert both(looks) == (10, 10)


def test_waking_up_now_and_then_is_not_going_on():
    looks = lambda second, _: RankSample(0, second * 0.01, where=RankPlace(f"line {second}"))  # noqa: E731
    assert both(looks) == (10, 10)


def test_it_hangs_once_and_again_after_it_went_on():
    watch = HangDetector(5)
    assert hangs_at(watch, lambda _, __: RankSample(0, 1.0)) == 5
    assert watch.is_hung
    assert not watch.add(Poll({0: RankSample(0, 1.0), 1: RankSample(0, 1.0)}, 200.0)), "it is known already"
    assert not watch.add(Poll({0: RankSample(7, 1.0), 1: RankSample(0, 1.0)}, 201.0))
    assert not watch.is_hung
    assert watch.add(Poll({0: RankSample(7, 1.0), 1: RankSample(0, 1.0)}, 206.0))


def test_a_rank_that_ends_is_a_sign_of_life():
    watch = HangDetector(5)
    two = {0: RankSample(0, 1.0), 1: RankSample(0, 1.0)}
    assert not watch.add(Poll(two, 0.0))
    assert not watch.add(Poll(two, 4.0))
    assert not watch.add(Poll({0: RankSample(0, 1.0)}, 6.0))
    assert watch.add(Poll({0: RankSample(0, 1.0)}, 11.0))


def late_at(is_late, looks, evidence=END, is_stopped=lambda second, rank: False):
    """The first look at which it hangs, where some ranks are not seen at some looks."""
    watch = HangDetector(10, evidence)
    for second in range(100):
        late = {rank for rank in range(4) if is_late(second, rank)}
        seen = {rank: looks(second, rank) for rank in range(4) if rank not in late}
        if not watch.wants_stacks(second):
            seen = {rank: one._replace(where=RankPlace()) for rank, one in seen.items()}
        stopped = {rank for rank in late if is_stopped(second, rank)}
        if watch.add(Poll(seen, float(second), late, stopped)):
            return second
    return None


def in_turn(second, rank):
    return second > 1 and second % 4 == rank


def test_ranks_of_nodes_that_are_late_in_turn_hang_all_the_same():
    assert late_at(in_turn, lambda _, __: idle(), REPORT) == 10
    assert late_at(in_turn, lambda _, __: idle()) == 10
    waits = {"is_collective": True, "went_on": False}
    assert late_at(in_turn, lambda second, _: spinning(second, **waits)) == 10


def test_a_rank_that_works_since_its_node_is_late_keeps_the_job_from_its_end():
    """It waited when it was last seen; that it works now is seen much later."""
    watch = HangDetector(100, END)

    def look(second):
        is_late = second > 60
        seen = {rank: idle() for rank in ((0,) if is_late else (0, 1))}
        return watch.add(Poll(seen, float(second), {1} if is_late else ()))

    hung = [look(second) for second in range(0, 150, 10)]
    assert not any(hung)


def test_the_limit_of_io_is_of_one_poll(monkeypatch):
    writes = lambda second, _: idle()._replace(io_bytes=END.idle_bytes * 2 // 3 * second)  # noqa: E731
    assert late_at(lambda _, __: False, writes) == 10
    assert late_at(in_turn, writes) == 10


def test_a_late_rank_that_worked_goes_on():
    works = lambda second, rank: spinning(second) if rank == 0 else idle()  # noqa: E731
    assert late_at(in_turn, works) is None


def test_what_a_late_rank_has_used_is_held_against_all_the_time_since_it_was_seen():
    background = lambda second, _: spinning(second, 0.0, 0.015)  # noqa: E731
    assert late_at(lambda second, rank: rank == 0 and second % 3 > 0, background) == 10


def test_a_rank_that_is_never_seen_ends_no_job_that_may_wait_for_it():
    never = lambda _, rank: rank == 0  # noqa: E731
    assert late_at(never, lambda _, __: idle()) is None
    assert late_at(never, lambda _, __: idle(), REPORT) == 10, "its node is named"
    stands_still = lambda second, _: second > 2  # noqa: E731
    assert late_at(never, lambda _, __: idle(), is_stopped=stands_still) == 10
    since = lambda second, rank: rank == 0 and second > 4  # noqa: E731
    assert late_at(since, lambda _, __: idle()) is None
    assert late_at(lambda second, _: second > 4, lambda _, __: idle(), REPORT) is None, "none is seen"


def test_one_look_at_a_stack_shows_no_wait():
    """The look before it was begun when stacks were not wanted yet."""
    watch = HangDetector(10, END)
    for second in range(100):
        seen = {1: idle(), 2: idle()}
        if second < 7:
            seen[0] = spinning(second, is_collective=True, went_on=False)
        if second < 6:
            seen = {rank: one._replace(where=RankPlace()) for rank, one in seen.items()}
        assert not watch.add(Poll(seen, float(second), {0} - seen.keys()))


def test_a_rank_is_not_alone_because_the_others_are_late():
    waits = {"is_collective": True, "went_on": False}
    others_late = lambda second, rank: bool(rank and second % 2)  # noqa: E731
    assert late_at(others_late, lambda second, _: spinning(second, **waits)) == 10


def test_without_ranks_nothing_hangs():
    assert hangs_at(HangDetector(5), lambda _, __: RankSample(0, 0.0), ranks=()) is None


def test_where_a_rank_is_comes_from_all_its_processes():
    spin = {"cpu_s": 2.0, "library": "MPI", "call": ""}
    reduces = {**at(ALL_REDUCE)[0], "spin": spin, "went_on": False}
    barrier = {**at([["train.py", 7, "step"]])[0], "spin": {**spin, "call": "Barrier"}, "went_on": True}
    assert locate_rank([reduces]) == RankPlace(repr([ALL_REDUCE]), 2.0, "MPI", True, False)
    assert locate_rank([reduces, barrier])[1:] == (4.0, "MPI", True, True, "", False, False, False)
    assert not locate_rank([reduces, at(LOAD)[0]]).is_collective
    assert locate_rank([reduces, at([])[0]]) == locate_rank([]) == RankPlace()
    recorded = {"name": "all_reduce", "seq": 4812, "group": "", "is_waiting": True}
    assert locate_rank(at(LOAD, collective=recorded)).is_collective


@pytest.mark.parametrize(
    ("frames", "place"),
    [
        (ALL_REDUCE, "wait in all_reduce (train.py:210, in step)"),
        (LOAD, "be in load_batch (data.py:31)"),
        (
            [["/usr/lib/python3.11/threading.py", 327, "wait"], *LOAD],
            "be in wait (data.py:31, in load_batch)",
        ),
        ([["<frozen importlib._bootstrap>", 9, "_find"]], "be in _find (<frozen importlib._bootstrap>:9)"),
        ([["<drumline>", 5, "next_batch"], *LOAD], "be in load_batch (data.py:31)"),
        (
            [
                ["/v/lib/python3.11/site-packages/torch/nn/modules/linear.py", 9, "forward"],
                ["/v/lib/python3.11/site-packages/torch/nn/modules/module.py", 8, "_call_impl"],
                ["/v/lib/python3.11/site-packages/torch/nn/modules/module.py", 7, "_wrapped_call_impl"],
                *LOAD,
            ],
            "be in forward (data.py:31, in load_batch)",
        ),
        (
            [["/usr/lib/python3.11/threading.py", 1560, "_shutdown"]],
            "be at the end of its program, where it waits for its threads",
        ),
        ([["/usr/lib/python3.11/queue.py", 171, "get"]], "be in get"),
        ([["/v/lib/python3.11/site-packages/kit/train.py", 3, "step"]], "be in step (kit/train.py:3)"),
        ([], ""),
    ],
)
def test_a_place_is_the_programs_own_line_and_what_it_called(frames, place):
    assert list_places(at(frames)) == ([place] if place else [])


def said(stacks, quiet_s=118.0):
    watch = HangDetector(300)
    watch.add(Poll({rank: RankSample(0, 0.0) for rank in stacks}, 1000.0))
    return explain_hang(stacks, {rank: str(rank) for rank in stacks}, watch, 1000.0 + quiet_s)


def test_ranks_at_one_place_come_together_and_the_odd_one_last():
    stacks = {rank: at(ALL_REDUCE) for rank in range(16)}
    stacks[5] = at(LOAD, state="D")
    assert said(stacks) == (
        "ranks 0-4 and 6-15 wait in all_reduce (train.py:210, in step); "
        "rank 5 is in load_batch (data.py:31), waiting on the disk for 118 s"
    )


def test_a_rank_without_python_is_where_the_kernel_has_it():
    assert (
        said({0: at([], waits_in="futex_wait_queue")}) == "rank 0 is asleep in the kernel (futex_wait_queue)"
    )
    assert said({0: at([], state="T")}) == "rank 0 is stopped by a signal"
    assert said({0: [], 1: []}) == "ranks 0-1 are at a place that is not known"


def test_when_nobody_answers_that_is_said():
    assert explain_hang({}, {}, HangDetector(1), 0.0) == "no rank has answered"


def test_a_rank_of_several_processes_is_at_several_places():
    workers = at([["train.py", 3, "alpha"]]) + at([["train.py", 6, "beta"]]) + at([["train.py", 3, "alpha"]])
    assert said({0: workers}) == "rank 0 is in alpha (train.py:3), in beta (train.py:6)"


def test_collectives_have_their_number_where_the_recorder_knows_it():
    waits = {"name": "all_reduce", "seq": 4812, "group": "", "is_waiting": True}
    stacks = {rank: at(ALL_REDUCE, collective=waits) for rank in range(3)}
    stacks[3] = at(
        LOAD, collective={"name": "all_gather", "seq": 4811, "group": "tensor", "is_waiting": False}
    )
    stacks[4] = at(LOAD, collective={**waits, "seq": 4810})
    labels = {rank: str(rank) for rank in stacks}
    assert explain_hang(stacks, labels, HangDetector(10), 0.0) == (
        "ranks 0-2 wait in all_reduce (seq 4812, train.py:210, in step); "
        "rank 3 is in load_batch (data.py:31), its last collective was all_gather, seq 4811 of tensor; "
        "rank 4 is in load_batch (data.py:31), waiting in all_reduce, seq 4810"
    )


RAISED = {"type": "ValueError", "message": "bad batch", "file": "train.py", "line": 5, "function": "step"}


def outlived(raised=None):
    """A process that its program's exception did not end, as in MPI_Finalize."""
    return [{**at([])[0], "raised": raised or RAISED}]


def test_a_rank_that_outlives_its_exception_is_told_by_that():
    stacks = {0: at(ALL_REDUCE), 1: outlived(), 2: outlived({**RAISED, "message": "", "file": ""})}
    assert said(stacks) == (
        "rank 0 waits in all_reduce (train.py:210, in step); "
        "rank 1 raised ValueError: bad batch (train.py:5) but did not end; "
        "rank 2 raised ValueError but did not end"
    )
    assert said({0: outlived(), 1: outlived()}) == (
        "ranks 0-1 raised ValueError: bad batch (train.py:5) but did not end"
    )


def test_a_rank_that_spins_after_its_exception_does_not_go_on():
    def looks(ended, second, rank):
        where = RankPlace("there") if rank == 0 else locate_rank(ended)
        return RankSample(0, second * 1.0 if rank else 0.0, where=where)

    assert both(lambda *now: looks(outlived(), *now)) == (10, 10)
    # Of processes of one rank, another may work.
    assert both(lambda *now: looks(outlived() + at([]), *now))[1] is None
    assert both(lambda *now: looks(outlived(), *now), ranks=(1,)) == (None, None)


def active(**rising):
    """An idle rank of which these rise."""
    return lambda second, _: idle()._replace(
        activity=Activity(**{name: by * (second + 1) for name, by in rising.items()})
    )


@pytest.mark.parametrize("count", ["collectives", "batches"])
def test_a_count_that_rises_is_progress(count):
    assert both(active(counted=1, **({"collectives": 1} if count == "collectives" else {}))) == (None, None)


def test_requests_are_progress_where_no_training_is_counted():
    assert both(active(requests=1)) == (None, None)
    trains = lambda second, rank: idle()._replace(activity=Activity(counted=7, requests=second))  # noqa: E731
    assert both(trains) == (10, 10), "a page of metrics that somebody reads"


@pytest.mark.parametrize("sign", [{"net_bytes": 1 << 17}, {"written_bytes": 5}])
def test_what_may_be_work_keeps_a_job_from_its_end(sign):
    assert both(active(**sign)) == (10, None)
    assert both(active(net_bytes=1 << 10)) == (10, 10), "a heartbeat"


@pytest.mark.parametrize(("sleep_s", "end"), [(0.5, 10), (2.0, None), (299.0, None), (1000.0, 10)])
def test_a_sleep_that_ends_keeps_a_job_from_its_end(sleep_s, end):
    asleep = idle()._replace(activity=Activity(sleep_s=sleep_s))
    assert both(lambda _, __: asleep) == (10, end)


def test_a_rank_that_has_entered_fewer_collectives_is_behind():
    stacks = {0: at(ALL_REDUCE), 1: at(ALL_REDUCE), 2: at(LOAD), 3: at(ALL_REDUCE)}
    labels = {rank: str(rank) for rank in stacks}
    entered = {0: 5, 1: 5, 2: 4, 3: 2}
    assert explain_hang(stacks, labels, HangDetector(10), 0.0, entered) == (
        "ranks 0-1 wait in all_reduce (train.py:210, in step); "
        "rank 2 is in load_batch (data.py:31), one collective behind; "
        "rank 3 waits in all_reduce (train.py:210, in step), 3 collectives behind"
    )
    assert "behind" not in explain_hang(stacks, labels, HangDetector(10), 0.0, dict.fromkeys(stacks, 7))


def watched(seen, *, ends_when_hung=False, until=80, exception_at=0):
    """The seconds at which a job of ``hang_after`` 60 is told of and may be ended, and for which rank."""
    watches, report, end = JobWatches(60.0, ends_when_hung=ends_when_hung), None, None
    for second in range(until):
        if second == exception_at:
            watches.note_exception()
        has_stacks = watches.wants_stacks(second)
        looks = {rank: seen(second, rank) for rank in (0, 1)}
        if not has_stacks:
            looks = {rank: one._replace(where=RankPlace()) for rank, one in looks.items()}
        news = watches.add(Poll(looks, float(second), has_stacks=has_stacks))
        report = report or (news and (second, news.lost))
        end = end or (news and news.ends and (second, news.lost))
    return report, end


def lost(second, rank, **activity):
    where = locate_rank(outlived()) if rank == 1 else RankPlace("here")
    return RankSample(0, second * 1.0 * rank, where=where, activity=Activity(**activity))


def test_a_rank_that_outlives_its_exception_is_told_of_and_ended_soon():
    assert watched(lost) == ((10, 1), (30, 1))
    assert watched(lost, ends_when_hung=True) == ((10, 1), (10, 1))


def test_a_job_that_goes_on_without_the_rank_that_raised_is_left_alone():
    assert watched(lambda second, rank: lost(second, rank, counted=second)) == (None, None)


def test_an_exception_that_was_expected_changes_nothing():
    assert watched(lambda _, __: idle()) == ((60, None), None)
    assert watched(lambda _, __: idle(), ends_when_hung=True) == ((60, None), (60, None))


def test_a_rank_that_nobody_waits_for_is_told_as_late_as_any_and_as_the_cause():
    both_raised = lambda second, _: lost(second, 1)  # noqa: E731
    assert watched(both_raised) == ((60, 0), None)
    assert watched(both_raised, ends_when_hung=True) == ((60, 0), (60, 0))


EXITS = [["/usr/lib/python3.11/multiprocessing/util.py", 360, "_exit_function"]]
POLLS = [["train.py", 11, "poll"]]


@pytest.mark.parametrize(
    ("kept", "by"),
    [
        ([{**at(POLLS)[0], "is_done": True}], "a thread, in poll (train.py:11)"),
        ([{**at(EXITS)[0], "is_done": True}, *at(POLLS)], "a child process, in poll (train.py:11)"),
        ([{**at([["/usr/lib/python3.11/threading.py", 9, "_shutdown"]])[0], "is_done": True}], "a thread"),
    ],
)
def test_a_rank_whose_program_has_ended_is_told_by_what_keeps_it(kept, by):
    assert said({2: kept}) == f"rank 2 is done with the program but kept by {by}"
    kept[0] = {**kept[0], "raised": RAISED}
    raised = "raised ValueError: bad batch (train.py:5) but did not end"
    assert said({2: kept}) == f"rank 2 {raised}, kept by {by}"


def test_a_rank_that_a_child_keeps_is_lost_unless_the_child_works():
    def looks(is_busy, second, rank):
        where = RankPlace("waits") if rank == 0 else locate_rank([*outlived(), *at(POLLS)])
        where = where._replace(stack="here", spin_s=second * 1.0 * is_busy * rank)
        return RankSample(0, where.spin_s, where=where)

    assert watched(lambda *now: looks(False, *now)) == ((10, 1), (30, 1))
    assert watched(lambda *now: looks(True, *now)) == ((10, 1), None)
