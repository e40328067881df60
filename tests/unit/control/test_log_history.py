"""Which part of logs is shown: real files, of which as little is read as need be."""

import os
import signal
import time
from types import SimpleNamespace

import pytest

from drumline.contract import log_times
from drumline.contract.errors import UsageError
from drumline.contract.folder import RunFolder
from drumline.control.logs import log_history, matching
from drumline.control.logs.log_history import (
    History,
    find_line_end,
    find_offset,
    find_tail,
    read_stretches,
)
from drumline.control.logs.matching import Matcher
from drumline.control.logs.printer import LogChoice
from drumline.node.metrics import log_files as noting


@pytest.fixture
def run(tmp_path):
    folder = RunFolder(str(tmp_path))
    os.mkdir(folder.user_logs)
    return folder


def make_task(rank):
    return SimpleNamespace(rank=rank, label=str(rank), log=f"user_logs/{rank}.txt")


PLAN = SimpleNamespace(nodes=[SimpleNamespace(node=rank, ranks=[make_task(rank)]) for rank in (0, 1)])
"""Rank 0 is on node 0, rank 1 on node 1."""


def write(run, rank, text, attempt=None):
    folder = run.user_logs if attempt is None else os.path.join(run.user_logs, f"attempt-{attempt}")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, f"{rank}.txt"), "ab") as file:
        file.write(text)
        return file.tell()


def note(run, rank, *looks, attempt=0):
    path = run.log_times_path(attempt, rank)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    before = 0
    with open(path, "ab") as file:
        for when, size in looks:
            file.write(log_times.to_line(when, [log_times.Growth(rank, size, size - before)]))
            before = size


def show(run, attempt=0, **choice):
    blocks = History(run, PLAN, LogChoice(**choice), attempt).blocks()
    return [(block.label, line) for block in blocks for line in block.lines.splitlines()]


def lines_of(run, **choice):
    return [line.decode() for _, line in show(run, labels=frozenset("0"), **choice)]


@pytest.mark.parametrize("chunk", [1, 5, 1 << 18])
def test_the_tail_of_a_log_is_found_from_its_end(run, monkeypatch, chunk):
    monkeypatch.setattr(log_history.rank_log, "CHUNK", chunk)
    write(run, 0, b"one\ntwo\n\nfour\nfi")
    assert lines_of(run, tail=0) == []
    assert lines_of(run, tail=1) == ["fi"]
    assert lines_of(run, tail=3) == ["", "four", "fi"]
    assert lines_of(run, tail=5) == lines_of(run, tail=99) == ["one", "two", "", "four", "fi"]
    with Matcher("f") as text, Matcher("^t.o") as expression:
        assert lines_of(run, tail=2, matcher=text) == ["four", "fi"]
        assert lines_of(run, tail=1, matcher=expression) == ["two", "", "four", "fi"]


def test_the_tail_goes_back_into_earlier_attempts(run):
    write(run, 0, b"a\nb\n", attempt=0)
    write(run, 0, b"c\n", attempt=1)
    write(run, 0, b"d\n")
    assert lines_of(run, attempt=2, tail=3) == ["b", "c", "d"]
    shown = History(run, PLAN, LogChoice(frozenset("0"), attempt=1), 2).blocks()
    assert [block.lines for block in shown] == [b"c\n"]


def test_a_tail_reads_nothing_of_a_large_log_but_its_end(run):
    path = os.path.join(run.user_logs, "0.txt")
    with open(path, "wb") as file:
        file.truncate(10 << 30)  # a hole, which would take seconds to read
        file.seek(0, os.SEEK_END)
        file.write(b"\nlast\n")
    note(run, 0, (100.0, (10 << 30) + 1), (200.0, (10 << 30) + 6))
    before = time.process_time()
    assert lines_of(run, tail=1) == ["last"]
    assert lines_of(run, since=150.0)[-1] == "last"
    assert time.process_time() - before < 1.0


def test_since_begins_with_the_first_line_that_was_completed_then(run):
    first = write(run, 0, b"one\ntw")
    second = write(run, 0, b"o\nthree\n")
    note(run, 0, (100.0, first), (200.0, second))
    os.utime(os.path.join(run.user_logs, "0.txt"), (200.0, 200.0))
    assert lines_of(run, since=99.0) == ["one", "two", "three"]
    assert lines_of(run, since=150.0) == ["two", "three"]
    assert lines_of(run, since=201.0) == []
    assert lines_of(run, since=150.0, tail=1) == ["three"]


def test_lines_that_no_look_has_found_are_of_the_time_of_their_file(run):
    note(run, 0, (100.0, write(run, 0, b"old\n")))
    write(run, 0, b"new\n")
    os.utime(os.path.join(run.user_logs, "0.txt"), (300.0, 300.0))
    assert lines_of(run, since=200.0) == ["new"]
    assert lines_of(run, since=301.0) == []
    blocks = list(History(run, PLAN, LogChoice(), 0).blocks())
    assert [(block.lines, block.time) for block in blocks] == [(b"old\n", 100.0), (b"new\n", 300.0)]


def test_ranks_are_shown_in_the_order_in_which_they_wrote(run):
    for rank, first, second in ((0, 100.0, 300.0), (1, 200.0, 400.0)):
        one = write(run, rank, b"first of %d\n" % rank)
        two = write(run, rank, b"second of %d\n" % rank)
        note(run, rank, (first, one), (second, two))
    assert [line for _, line in show(run)] == [
        b"first of 0",
        b"first of 1",
        b"second of 0",
        b"second of 1",
    ]
    assert [label for label, _ in show(run, labels=frozenset("1"))] == ["1", "1"]


def test_a_history_that_is_followed_ends_with_a_whole_line(run):
    write(run, 0, b"whole\nhal")
    told = History(run, PLAN, LogChoice(), 0, follows=True)
    (descriptor,) = told.take_open().values()
    try:
        assert [block.lines for block in told.blocks()] == [b"whole\n"]
        assert os.read(descriptor, 10) == b"hal"
    finally:
        os.close(descriptor)


def test_the_last_whole_line_ends_where_it_ends(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"one\n" + b"x" * 9000)
    with path.open("rb") as file:
        assert find_line_end(file.fileno(), 9004) == 4
        assert find_line_end(file.fileno(), 4) == 4
        assert find_line_end(file.fileno(), 3) == 0
        assert find_tail(file.fileno(), 0, 9004, 1) == (4, 0)


def test_looks_are_read_from_a_time_on_and_damaged_ones_are_left_out(tmp_path):
    path = tmp_path / "times"
    looks = [log_times.to_line(100.0 + at, [log_times.Growth(0, at + 1, 1)]) for at in range(100)]
    path.write_bytes(b"".join(looks) + b"no look\n" + b"250.0 0:101+1")
    assert [tuple(one) for one in read_stretches(str(path), 197.5)[0]] == [(98, 99, 198.0), (99, 100, 199.0)]
    known = read_stretches(str(path))[0]
    assert len(known) == 100
    assert find_offset(known, 150.0) == 50
    assert find_offset(known, 300.0) == 100
    assert read_stretches(str(tmp_path / "none")) == {}


def test_an_agent_notes_when_logs_grow(tmp_path, monkeypatch):
    monkeypatch.setattr(noting, "GROWTH_INTERVAL_S", 0.0)
    log = tmp_path / "0.txt"
    path = tmp_path / "log_times" / "attempt-0-node-0"
    times = noting.LogTimes(str(path), {0: str(log), 1: str(tmp_path / "none")})
    times.look()
    assert not path.exists()
    for text in ("one\n", "", "three\n"):
        with log.open("a") as file:
            file.write(text)
        times.look()
    with log.open("a") as file:
        file.write("end")
    monkeypatch.setattr(noting, "GROWTH_INTERVAL_S", 99.0)
    times.look()
    times.close()
    assert [tuple(one)[:2] for one in read_stretches(str(path))[0]] == [(0, 4), (4, 10), (10, 13)]
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_folder_that_cannot_be_written_costs_times_alone(tmp_path, capfd):
    log = tmp_path / "0.txt"
    log.write_text("one\n")
    times = noting.LogTimes(str(tmp_path / "gone" / "log_times" / "x"), {0: str(log)})
    times.look()
    times.close()
    assert capfd.readouterr().err.count("times of logs") == 1


def test_a_pattern_that_backtracks_is_ended(monkeypatch):
    monkeypatch.setattr(matching, "LIMIT_S", 0.1)
    with Matcher("(a+)+$") as matcher:
        assert matcher.select(b"aaa\nb\n") == b"aaa\n"
        with pytest.raises(UsageError, match="takes too long"):
            matcher.select(b"a" * 40 + b"b\n")


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("rror", ["an error\n", "Error é\n"]),
        ("(?i)^error", ["Error é\n"]),
        ("[é]$", ["Error é\n"]),
        ("x", []),
        ("", ["an error\n", "fine\n", "\n", "Error é\n"]),
    ],
)
def test_lines_are_found_by_a_pattern(pattern, found):
    text = "an error\nfine\n\nError é\n"
    with Matcher(pattern) as matcher:
        assert matcher.select(text.encode()) == "".join(found).encode()


def test_a_pattern_with_a_newline_is_refused():
    with pytest.raises(UsageError, match="has a newline"):
        Matcher("one\ntwo")


@pytest.mark.parametrize("lines", [b"x\n", b"x\n" * 1_000_000], ids=["an answer", "lines"])
def test_a_search_ends_though_its_process_was_stopped(monkeypatch, lines):
    """What waits for an answer, or for room in the pipe, waits for so long and no longer."""
    with Matcher("^x") as matcher:
        monkeypatch.setattr(matching, "_WALL_FACTOR", 0.2)
        os.kill(matcher._process.pid, signal.SIGSTOP)
        with pytest.raises(UsageError, match="takes too long on these lines"):
            matcher.select(lines)


def test_a_search_has_its_limit_where_its_signal_was_blocked():
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGVTALRM])
    try:
        with Matcher("(a+)+$") as matcher:
            assert matcher.find(b"a" * 40 + b"b\n", 0.2) is None
            assert matcher._process.wait() == -signal.SIGVTALRM
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def test_a_pattern_that_is_none_is_explained():
    with pytest.raises(UsageError, match="not a regular expression"):
        Matcher("(")
