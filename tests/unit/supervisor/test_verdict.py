"""Who began, how, and what became of the others, from the ends of ranks alone."""

from typing import Any

import pytest

from drumline.contract.events import RankExited
from drumline.supervisor.explaining.missing_rank import RunningRank
from drumline.supervisor.explaining.verdict import judge

FOUR = {rank: str(rank) for rank in range(4)}


def ended(rank, time, code=1, signal=None, raised=None, error="ValueError: bad batch", node=None, **evidence):
    """``raised``: when its exception was; None: there was none."""
    if raised is not None:
        kind, _, message = error.partition(": ")
        place = {"file": "train.py", "line": 88, "function": "step"}
        further = {name: evidence.pop(name) for name in ("handled", "circumstances") if name in evidence}
        evidence["failure"] = {"type": kind, "message": message, "time": raised, **place, **further}
    where = rank // 2 if node is None else node
    return RankExited(time, rank, where, None if signal else code, signal, "", evidence or None)


def cut_off(rank, raised):
    message = "RuntimeError: [pair.cc:525] Connection closed by peer [127.0.0.1]:4242"
    return ended(rank, raised + 0.3, raised=raised, error=message)


def verdict(*exits, labels=FOUR, heard=None, where=None):
    """``heard``: when the first failure was heard of; default: when the first of them ended."""
    stopped_after = exits[0].time if heard is None else heard
    return judge(labels, {one.rank: one for one in exits}, stopped_after, 100.0, where)


def test_the_exception_and_its_place_and_who_was_cut_off():
    found = verdict(
        ended(3, 102.5, raised=102.31), cut_off(0, 102.32), cut_off(1, 102.33), cut_off(2, 102.34)
    )
    assert found.reason == (
        "rank 3 on node 1 failed first, 2.31 s in: ValueError: bad batch (train.py:88, in step); "
        "ranks 0-2 were then cut off (Connection closed by peer)"
    )
    assert (found.exit_code, found.rank, found.node) == (1, 3, 1)
    assert found.fields["cut_off"] == [0, 1, 2]
    assert (found.fields["error_type"], found.fields["line"]) == ("ValueError", 88)


def test_a_victim_that_ends_sooner_than_the_one_that_began_is_still_a_victim():
    """The one that began takes a second to tear down; its peers do not."""
    found = verdict(cut_off(0, 102.32), ended(3, 104.0, raised=102.31), ended(1, 102.7, signal=15))
    assert found.rank == 3
    assert found.fields["cut_off"] == [0]
    assert found.fields["stopped"] == [1]


@pytest.mark.parametrize("signal", [15, 6])
def test_an_exception_ends_with_code_1_whatever_became_of_the_process_on_its_way_out(signal):
    """Its peers were gone before it, and it was told to end; or a library's cleanup aborted."""
    found = verdict(cut_off(0, 102.32), ended(3, 104.0, raised=102.31, signal=signal))
    assert (found.exit_code, found.rank) == (1, 3)
    assert (found.fields["exit_code"], found.fields["signal"]) == (1, signal)


def test_a_victim_is_none_even_when_its_clock_is_a_little_ahead():
    found = verdict(cut_off(0, 102.300), ended(3, 102.6, raised=102.301), heard=102.6)
    assert found.rank == 3


def test_of_two_that_fail_by_themselves_the_first_to_raise_began():
    found = verdict(
        ended(0, 102.50, raised=102.40, error="KeyError: 'x'"), ended(2, 102.45, raised=102.42), heard=102.45
    )
    assert (found.rank, found.fields["failed_too"]) == (0, [2])
    assert found.reason.endswith("KeyError: 'x' (train.py:88, in step); rank 2 failed too")


def test_ranks_that_fail_alike_are_told_together():
    missing = "ModuleNotFoundError: No module named 'apex'"
    found = verdict(
        *(ended(rank, 100.2 + rank / 100, raised=100.1 + rank / 100, error=missing) for rank in FOUR)
    )
    assert found.rank == 0
    assert found.reason == (
        "rank 0 on node 0 failed first, 0.1 s in: ModuleNotFoundError: No module named 'apex' "
        "(train.py:88, in step); ranks 1-3 failed the same way"
    )


def test_ranks_that_differ_in_numbers_fail_alike():
    error = "OSError: [Errno 98] Address already in use: port 2950{}"
    found = verdict(
        *(
            ended(rank, 100.2 + rank / 100, raised=100.1 + rank / 100, error=error.format(rank))
            for rank in FOUR
        )
    )
    assert found.reason.endswith("port 29500 (train.py:88, in step); ranks 1-3 failed the same way")


def test_a_rank_that_handles_its_end_and_ends_well_was_stopped():
    found = verdict(ended(2, 101.0, code=7), ended(0, 101.1, code=0, told=101.05), ended(1, 100.5, code=0))
    assert found.reason == "rank 2 on node 1 failed first, 1 s in: exit code 7; rank 0 was then stopped"
    assert found.fields["stopped"] == [0]


def test_python_itself_ends_by_a_signal_after_an_interrupt():
    found = verdict(
        ended(3, 102.5, raised=102.3, signal=2, error="KeyboardInterrupt: enough"), labels={3: "3"}
    )
    assert (found.exit_code, found.fields["error_type"]) == (130, "KeyboardInterrupt")


def test_one_that_failed_before_its_node_was_told_of_the_other_was_not_stopped():
    found = verdict(ended(2, 101.0, code=7, told=None), ended(0, 101.01, code=3, told=None))
    assert found.reason == "rank 2 on node 1 failed first, 1 s in: exit code 7; rank 0 failed too"


def test_a_rank_that_was_told_to_end_did_not_begin():
    found = verdict(ended(2, 101.0, code=7), ended(0, 101.01, signal=15), ended(1, 101.02, code=1))
    assert found.reason == "rank 2 on node 1 failed first, 1 s in: exit code 7; ranks 0-1 were then stopped"
    assert found.exit_code == 7


def test_one_that_ended_too_early_is_what_the_others_waited_for():
    found = verdict(
        ended(1, 101.0, code=0), cut_off(0, 101.05), cut_off(2, 101.06), cut_off(3, 101.07), heard=101.35
    )
    assert found.reason == (
        "rank 1 on node 0 ended early, 1 s in, with exit code 0; "
        "rank 0 still waited for it, and failed 0.05 s later: "
        "RuntimeError: [pair.cc:525] Connection closed by peer [127.0.0.1]:4242 (train.py:88, in step); "
        "ranks 2-3 were then cut off (Connection closed by peer)"
    )
    assert (found.rank, found.exit_code, found.fields["cut_off"]) == (1, 1, [0, 2, 3])


def test_the_connections_of_one_that_ends_well_close_before_its_end_is_seen():
    found = verdict(cut_off(0, 101.0), ended(1, 101.4, code=0), cut_off(2, 101.01), heard=101.35)
    assert found.reason == (
        "rank 1 on node 0 ended early, 1.4 s in, with exit code 0; "
        "rank 0 still waited for it, and was cut off by that: "
        "RuntimeError: [pair.cc:525] Connection closed by peer [127.0.0.1]:4242 (train.py:88, in step); "
        "rank 2 was then cut off (Connection closed by peer)"
    )
    assert (found.rank, found.exit_code) == (1, 1)


def test_one_that_ends_with_0_because_it_was_told_to_explains_nothing():
    assert verdict(cut_off(0, 101.0), ended(1, 101.4, code=0, told=101.3)).rank == 0
    assert verdict(cut_off(0, 101.0), ended(1, 101.4, code=0, left=101.2, told=101.3)).rank == 1


def test_a_connection_that_may_be_to_another_service_is_explained_by_an_end_at_that_time_alone():
    reset = ended(0, 101.1, raised=101.0, error="ConnectionResetError: [Errno 104] Connection reset by peer")
    assert verdict(reset, ended(1, 101.3, code=0)).rank == 1
    assert verdict(reset, ended(1, 101.9, code=0)).rank == 0


def in_flight(kind, message="", *before):
    """What a rank was failing of, and what that came of."""
    place = {"file": "train.py", "line": 7, "function": "step"}
    own: Any = {"type": kind, "message": message, **place}
    return RunningRank((), [own, *(one.in_flight[0] for one in before)])


@pytest.mark.parametrize(
    ("where", "expected", "code"),
    [
        (
            in_flight("ValueError", "bad batch"),
            "rank 3 on node 1 failed first, 1 s in: ValueError: bad",
            1,
        ),
        (
            in_flight("RuntimeError", "Connection closed by peer", in_flight("KeyError", "'x'")),
            "rank 3 on node 1 failed first, 1 s in: KeyError: 'x' (train.py:7, in step)",
            1,
        ),
        (in_flight("SystemExit", "5"), "rank 3 on node 1 failed first, 1 s in: exit code 5", 5),
        (in_flight("SystemExit", "no data"), "rank 3 on node 1 failed first, 1 s in: exit code 1", 1),
        (in_flight("SystemExit", "-1"), "rank 3 on node 1 failed first, 1 s in: exit code 255", 255),
        (in_flight("SystemExit", "\u00b2"), "rank 3 on node 1 failed first, 1 s in: exit code 1", 1),
        (in_flight("SystemExit", "256"), "rank 3 on node 1 ended early, 1 s in, with exit code 0", 1),
        (in_flight("SystemExit", "0"), "rank 3 on node 1 ended early, 1 s in, with exit code 0", 1),
        (in_flight("ConnectionResetError"), "rank 0 on node 0 failed first, 1 s in: RuntimeError", 1),
        (in_flight("ModuleNotFoundError", "apex"), "rank 0 on node 0 failed first, 1 s in: Runtime", 1),
        (RunningRank((), []), "rank 0 on node 0 failed first", 1),
        (RunningRank((), None), "rank 0 on node 0 failed first", 1),
    ],
)
def test_a_rank_that_was_told_to_end_while_it_cleaned_up_is_the_one_that_began(where, expected, code):
    found = verdict(cut_off(0, 101.0), ended(3, 102.0, signal=15, told=101.9), heard=101.9, where={3: where})
    assert found.reason.startswith(expected)
    assert found.exit_code == code


def test_what_was_in_flight_does_not_count_where_a_rank_has_gone_on_or_failed_otherwise():
    where = {3: in_flight("ValueError", "bad batch")}
    assert verdict(cut_off(0, 101.0), ended(3, 101.5, code=4, told=None), where=where).exit_code == 4
    assert verdict(cut_off(0, 101.0), cut_off(3, 101.5), where=where).rank == 0


TIMED_OUT = "RuntimeError: [unbound_buffer.cc:78] Timed out waiting 2000ms for recv operation to complete"
AT_THE_LINE = RunningRank(("wait in all_reduce (train.py:88, in step)",), None)
LOADING = RunningRank(("be in load_batch (data.py:31)",), [])


def gave_up(rank, raised, error=TIMED_OUT, line=88):
    exit_ = ended(rank, raised + 0.3, raised=raised, error=error, told=None)
    exit_.evidence["failure"]["line"] = line
    return exit_


def told_to_end(rank):
    return ended(rank, 103.5, signal=15, told=103.4)


def test_of_a_timeout_the_late_rank_is_named_and_where_it_was():
    found = verdict(
        gave_up(0, 102.0),
        gave_up(1, 102.01),
        told_to_end(2),
        told_to_end(3),
        where={1: LOADING, 2: AT_THE_LINE, 3: LOADING},
    )
    assert found.reason == (
        "rank 3 on node 1 kept the others waiting: it was in load_batch (data.py:31) when rank 0 gave up, "
        "2 s in: RuntimeError: [unbound_buffer.cc:78] Timed out waiting 2000ms for recv operation to complete "
        "(train.py:88, in step); rank 1 was then cut off (Timed out waiting); rank 2 was then stopped"
    )
    assert (found.rank, found.node, found.exit_code) == (3, 1, 1)
    assert (found.fields["late"], found.fields["cut_off"], found.fields["stopped"]) == ([3], [0, 1], [2])
    assert found.fields["error_type"] == "RuntimeError"


def test_several_that_are_late_are_told_with_their_places():
    where = {2: LOADING, 3: RunningRank(("wait in recv (train.py:99, in step)",), None)}
    found = verdict(gave_up(0, 102.0), gave_up(1, 102.01), told_to_end(2), told_to_end(3), where=where)
    assert found.reason.startswith(
        "ranks 2-3 kept the others waiting: rank 2 was in load_batch (data.py:31) and "
        "rank 3 waited in recv (train.py:99, in step) when rank 0 gave up, 2 s in: "
    )
    assert found.fields["late"] == [2, 3]


def test_one_that_came_when_the_others_had_given_up_was_late_all_the_same():
    found = verdict(gave_up(0, 102.0), cut_off(3, 102.9), where={3: LOADING})
    assert found.rank == 3
    # But one that had given up as well, and was ending when it was looked at, was not.
    assert verdict(gave_up(0, 102.0), gave_up(3, 102.1), where={3: LOADING}).rank == 0
    assert verdict(gave_up(0, 102.0), gave_up(3, 103.0), where={3: LOADING}).rank == 0


def test_the_ranks_that_a_barrier_names_were_late_wherever_they_are():
    named = gave_up(0, 102.1, "RuntimeError: [Rank 0]: Ranks 2, 3 failed to pass monitoredBarrier in 2000 ms")
    text = "RuntimeError: Rank 1 successfully reached monitoredBarrier, but received errors while waiting"
    found = verdict(gave_up(1, 102.0, text), named, told_to_end(2), told_to_end(3), where={2: LOADING})
    assert found.reason.startswith(
        "ranks 2-3 kept the others waiting: rank 2 was in load_batch (data.py:31) when rank 0 gave up, "
        "2.1 s in: RuntimeError: [Rank 0]: Ranks 2, 3 failed to pass monitoredBarrier"
    )


def test_where_all_gave_up_the_one_that_waited_elsewhere_is_named():
    others = [gave_up(rank, 102.0 + rank / 100) for rank in (0, 1, 2)]
    found = verdict(*others, gave_up(3, 102.05, line=60), heard=102.4)
    assert found.reason.startswith(
        "rank 3 on node 1 kept the others waiting: it waited (train.py:60, in step) when rank 0 gave up, "
    )
    assert verdict(*others[:2], heard=102.4).rank == 0
    assert verdict(*others, gave_up(3, 101.99, line=60), heard=102.4).rank == 3


def test_a_rank_is_late_only_where_others_gave_up():
    assert verdict(cut_off(0, 102.0), told_to_end(3), where={3: LOADING}).rank == 0


@pytest.mark.parametrize(
    "said",
    [
        "torch.distributed.DistStoreError: Timed out after 3 seconds waiting for clients. 3/4 clients joined.",
        "torch.distributed.DistStoreError: wait timeout after 2000ms, keys: /default_pg/0//cpu//0/0",
        "RuntimeError: Rank 2 successfully reached monitoredBarrier, but received errors while waiting for "
        "send/recv from rank 0. Please check rank 0 logs for faulty rank.",
    ],
)
def test_what_ranks_say_of_one_that_is_late(said):
    found = verdict(gave_up(0, 102.0, said), told_to_end(3), where={3: LOADING})
    assert found.rank == 3


def test_one_that_ended_well_has_nothing_to_do_with_a_server_that_refuses():
    refused = ended(0, 104.1, raised=104.0, error="ConnectionRefusedError: [Errno 111] Connection refused")
    found = verdict(refused, ended(1, 101.0, code=0), heard=104.1)
    assert found.reason.startswith("rank 0 on node 0 failed first, 4 s in: ConnectionRefusedError")


def test_what_a_rank_raises_after_it_was_told_to_end_is_no_failure_of_its_own():
    first = ended(
        0, 102.1, raised=102.0, error="ConnectionRefusedError: [Errno 111] Connection refused", told=103.0
    )
    others = [
        ended(rank, 102.3, raised=102.25, error="RuntimeError: got SIGTERM", told=102.2) for rank in (1, 2)
    ]
    found = verdict(first, *others)
    assert found.rank == 0
    assert found.fields["stopped"] == [1, 2]


def test_where_all_were_cut_off_the_first_of_them_is_named():
    found = verdict(cut_off(2, 101.2), cut_off(0, 101.1), heard=101.5)
    assert found.rank == 0


def test_a_single_rank_failed_and_was_not_first():
    only = {0: "0"}
    found = verdict(ended(0, 101.0, code=9), labels=only)
    assert found.reason == "rank 0 on node 0 failed 1 s in: exit code 9"


def test_a_rank_that_did_not_start():
    exit_ = RankExited(100.0, 1, 0, 127, None, "could not start 'train': No such file or directory")
    found = verdict(exit_, ended(0, 100.1, signal=15))
    assert found.reason == (
        "rank 1 on node 0 did not start: could not start 'train': No such file or directory; "
        "rank 0 was then stopped"
    )


@pytest.mark.parametrize(
    ("exit_", "words"),
    [
        (
            ended(0, 101.0, signal=9, memory_ran_out=True, peak_bytes=3 << 30),
            "the kernel killed it at 3 GiB, for memory",
        ),
        (
            ended(0, 101.0, signal=9, memory_ran_out=False),
            "SIGKILL: killed from outside; nothing says that memory",
        ),
        (
            ended(0, 101.0, code=137, memory_ran_out=True, peak_bytes=0),
            "exit code 137: a command in it was killed by",
        ),
        (
            ended(0, 101.0, signal=7, shared_memory="/dev/shm has 0 of 64 MB free"),
            "(SIGBUS: /dev/shm has 0 of 64 MB free)",
        ),
        (
            ended(0, 101.0, signal=11, crash={"file": "train.py", "line": 3, "function": "step"}),
            "(SIGSEGV: it touched memory that is not its own) (train.py:3, in step)",
        ),
        (
            ended(0, 101.0, signal=15, sent_by="sent by rank 2 (train.py:12, in main)"),
            "(SIGTERM: sent by rank 2 (train.py:12, in main))",
        ),
        (ended(0, 101.0, signal=15), "(SIGTERM: sent from outside, not by drumline)"),
        (
            ended(0, 101.0, code=127, said="bash: line 1: trian: command not found"),
            "exit code 127: bash: line 1: trian:",
        ),
        (ended(0, 101.0, code=127), "exit code 127: a command was not found"),
        (
            ended(
                0,
                101.0,
                code=2,
                said="python: can't open file '/c/x.py': [Errno 2] No such file or directory",
            ),
            "exit code 2: python: can't open file '/c/x.py'",
        ),
        (ended(0, 101.0, code=2, said="epoch 3"), "in: exit code 2"),
        (ended(0, 101.0, code=2, said="at x.go:3", gave_up="panic: empty"), "in: exit code 2: panic: empty"),
        (
            ended(0, 101.0, code=3, raised=101.0, handled=True),
            "in: exit code 3, after ValueError: bad batch (train.py:88, in step)",
        ),
        (
            ended(0, 101.0, raised=101.0, error="SystemExit: no lr", handled=True),
            "in: exit code 1: no lr (train.py:88, in step)",
        ),
        (
            ended(0, 101.0, raised=101.0, circumstances=["its limit of open files (60) was reached"]),
            "in step); its limit of open files (60) was reached",
        ),
        (
            ended(0, 101.0, raised=101.0, error="KeyError: 'RANK'"),
            "in step); a job has this variable only with a distribution: add `distribution: {type: pytorch}`",
        ),
        (
            ended(0, 101.0, code=127, said="a.sh: line 4: $'date\\r': command not found"),
            "command not found; the script has Windows line ends (CRLF)",
        ),
        (
            ended(
                0,
                101.0,
                raised=101.0,
                error="RuntimeError: DataLoader worker (pid 12) is killed by signal: Killed.",
                memory_ran_out=True,
            ),
            "memory had run out",
        ),
    ],
)
def test_what_ended_it_is_said_with_what_was_seen(exit_, words):
    assert words in verdict(exit_, labels={0: "0"}).reason


@pytest.mark.parametrize(
    "said",
    [
        "torch.distributed.DistBackendError: NCCL error in: X.cpp:2. ncclRemoteError: A call failed",
        "torch.distributed.DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed.",
        "RuntimeError: Timed out waiting 1800000ms for recv operation to complete",
        "ConnectionResetError: [Errno 104] Connection reset by peer",
        "BrokenPipeError: [Errno 32] Broken pipe",
        "horovod.common.exceptions.HorovodInternalError: Broken",
        "torch.distributed.DistNetworkError: Interrupted system call",
        "tensorflow.python.framework.errors_impl.UnavailableError: Socket closed",
    ],
)
def test_what_peers_say_of_one_that_is_gone(said):
    found = verdict(ended(0, 101.0, raised=100.9, error=said), ended(3, 101.2, signal=9), heard=101.2)
    assert (found.rank, found.fields["cut_off"]) == (3, [0])


def test_what_native_code_says_at_its_end_counts_where_there_is_no_exception():
    gone = ended(0, 101.0, signal=6, said="  what():  [pair.cc:534] Connection closed by peer [127.0.0.2]:9")
    assert verdict(gone, ended(3, 101.2, code=3), heard=101.2).rank == 3
