"""Which of a rank's exceptions tells why it failed, from what its node knows of them."""

import pytest

from drumline.contract.events import RankExited
from drumline.contract.evidence import ExitEvidence
from drumline.contract.messages import RankEnded
from drumline.node.diagnostics import last_words
from drumline.supervisor.explaining import exit_evidence, exit_messages, missing_rank
from drumline.supervisor.explaining.verdict import judge

CLOSED = "RuntimeError: [pair.cc:537] Connection closed by peer [127.0.0.1]:4242"
KILLED = "RuntimeError: DataLoader worker (pid 12) is killed by signal: Killed."
EXITED = "RuntimeError: DataLoader worker (pid 12) exited unexpectedly with exit code 3."
UNEXPECTED = "RuntimeError: DataLoader worker (pid(s) 12) exited unexpectedly"
FULL = "OSError: [Errno 28] No space left on device"
WRITER = "RuntimeError: [enforce fail at inline_container.cc:672] . unexpected pos 832 vs 790"
CHILD_FAILED = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ======"


def exception(said, line=1):
    kind, _, message = said.partition(": ")
    return {"type": kind, "message": message, "file": "train.py", "line": line, "function": "step"}


def failure(*said, at=5.0, pid=100):
    """The first is what ended the program."""
    return {"at": at, "pid": pid, **exception(said[0]), "chain": [exception(one, 2) for one in said[1:]]}


@pytest.mark.parametrize(
    ("chain", "told"),
    [
        ([CLOSED, "ValueError: bad batch"], "ValueError: bad batch"),
        ([CLOSED, "RuntimeError: step 3", "KeyError: 'label'"], "RuntimeError: step 3"),
        (["AttributeError: close", CLOSED, "ValueError: bad batch"], "ValueError: bad batch"),
        (["RuntimeError: step 3", "KeyError: 'label'"], "RuntimeError: step 3"),
        ([UNEXPECTED, KILLED], KILLED),
        (["EOFError: ", KILLED], KILLED),
        (["FileNotFoundError: [Errno 2] No such file or directory", "EOFError: ", KILLED], KILLED),
        (["EOFError: no more samples", "KeyError: 'label'"], "EOFError: no more samples"),
        (["EOFError: ", EXITED], EXITED),
        ([WRITER, FULL], FULL),
        (
            [WRITER, "RuntimeError: basic_ios::clear: iostream error"],
            "RuntimeError: basic_ios::clear: iostream error",
        ),
        ([UNEXPECTED], UNEXPECTED),
        ([CLOSED], CLOSED),
    ],
)
def test_the_exception_that_counts(chain, told):
    found = exit_evidence.unchain(failure(*chain))
    assert f"{found['type']}: {found['message']}" == told
    assert (found["at"], found["pid"]) == (5.0, 100)
    assert "chain" not in found


def test_what_was_raised_because_a_peer_was_gone_counts_as_cut_off():
    found = exit_evidence.unchain(failure("TrainError: step 3 failed", CLOSED))
    assert found["type"] == "TrainError"
    assert missing_rank.find_in_exception(found) == "Connection closed by peer"
    other = exit_evidence.unchain(failure("TrainError: step 3 failed", "KeyError: 'x'"))
    assert missing_rank.find_in_exception(other) == ""


def exits(rank, said, *chain, time, told=None):
    evidence = ExitEvidence(failure(said, *chain, at=time), told_at=told)
    ended = RankEnded(rank, 1, None, "", time, evidence)
    return RankExited(time, rank, 0, 1, None, "", exit_evidence.record_evidence(ended, lambda at: at))


def test_a_rank_whose_barrier_gave_up_after_the_others_began():
    """It was told to end before its barrier gave up; its exception was there before."""
    late = [exits(rank, CLOSED, time=10.0 + rank) for rank in range(3)]
    began = exits(3, CLOSED, "ValueError: bad batch", time=14.0, told=10.5)
    labels = {rank: str(rank) for rank in range(4)}
    found = judge(labels, {one.rank: one for one in [*late, began]}, 10.0, 1.0)
    assert (found.rank, found.fields["cut_off"]) == (3, [0, 1, 2])
    assert "ValueError: bad batch (train.py:2, in step)" in found.reason


TABLE = """\
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
inner.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-11-22_15:58:29
  host      : localhost
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 22598)  (SIGTERM)
  error_file: <N/A>
  traceback : Signal 15 (SIGTERM) received by PID 22598
[2]:
  time      : 2026-11-22_15:58:29
  host      : localhost
  rank      : 2 (local_rank: 2)
  exitcode  : 1 (pid: 22600)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-22_15:58:29
  host      : localhost
  rank      : 1 (local_rank: 1)
  exitcode  : {code} (pid: 22599) {name}
  error_file: <N/A>
  traceback : ...
============================================================
"""


def table(code, name=""):
    return last_words.parse_report(TABLE.format(code=code, name=name))


def test_what_torchrun_reports_of_its_processes():
    assert table(-9, "(SIGKILL)") == [
        {"rank": 1, "pid": 22599, "code": None, "signal": 9},
        {"rank": 0, "pid": 22598, "code": None, "signal": 15},
        {"rank": 2, "pid": 22600, "code": 1, "signal": None},
    ]
    assert last_words.parse_report("ValueError: rank : 1 FAILED") == []


def of_launcher(reported, *inner):
    """Its sentence, where those of its processes left an exception."""
    launcher = {**failure(CHILD_FAILED, at=9.0, pid=7), "chain": []}
    evidence = ExitEvidence(inner[0] if inner else launcher, inner, launcher, reported)
    recorded = exit_evidence.record_evidence(RankEnded(0, 1, None, "", 9.5, evidence), lambda at: at)
    return exit_messages.describe_cause(RankExited(9.5, 0, 0, 1, None, "", recorded)), recorded["failure"][
        "time"
    ]


def victim(at=5.0, pid=22600):
    return failure(CLOSED, at=at, pid=pid)


@pytest.mark.parametrize(
    ("code", "inner", "said", "at"),
    [
        (-9, [victim()], "rank 1 of its launcher was killed by signal 9 (SIGKILL: ", 5.0),
        (-9, [], "rank 1 of its launcher was killed by signal 9 (SIGKILL: ", 9.0),
        (7, [victim()], "rank 1 of its launcher ended with exit code 7", 5.0),
        (
            1,
            [victim(4.0), failure("ValueError: bad batch", at=4.5, pid=22599)],
            "ValueError: bad batch (train.py:1, in step), in rank 1 of its launcher",
            4.5,
        ),
        # One that the launcher has started anew since, and one that a rank only tried.
        (
            1,
            [
                failure("KeyError: 'x'", at=1.0, pid=22000),
                failure("ValueError: bad batch", at=4.5, pid=22599),
            ],
            "ValueError: bad batch (train.py:1, in step), in rank 1 of its launcher",
            4.5,
        ),
        # The launcher saw the end of another process first.
        (
            -6,
            [victim(4.6), failure("ValueError: bad batch", at=4.5, pid=22600)],
            "ValueError: bad batch (train.py:1, in step), in rank 2 of its launcher",
            4.5,
        ),
        # Of several nodes, this one has victims alone.
        (1, [victim(4.0, 22599), victim(4.1)], "RuntimeError: [pair.cc:537] Connection closed by peer", 4.0),
    ],
)
def test_a_launcher_inside_a_rank(code, inner, said, at):
    sentence, time = of_launcher(table(code), *inner)
    assert sentence.startswith(said)
    assert time == at


def test_a_launcher_of_multiprocessing_names_how_its_process_ended():
    launcher = failure("ProcessExitedException: process 1 terminated with signal SIGKILL", at=9.0, pid=7)
    chosen = exit_evidence.choose_failure(ExitEvidence(victim(), [victim()], launcher), 9.0)
    assert chosen is not None
    assert chosen["message"] == "process 1 terminated with signal SIGKILL"


def test_a_table_of_an_earlier_launcher_explains_no_other_exception():
    chosen = exit_evidence.choose_failure(
        ExitEvidence(failure("ValueError: bad batch"), reported=table(-9)), 9.0
    )
    assert chosen is not None
    assert chosen["type"] == "ValueError"
