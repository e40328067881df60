"""Lines of logs by their numbers, in one order of all ranks, found, folded and compared."""

import os
import time

import pytest
from made_jobs import MadeJob

from drumline.contract import events as e
from drumline.contract.errors import UsageError
from drumline.control.logs import line_queries, merged
from drumline.control.logs.line_queries import Wanted, find_divergence, read_lines, search_logs
from drumline.control.logs.merged import ALL, ChosenLogs, LineIndex, group_looks, read_whole

LATER = 1e12
"""A deadline that never comes."""


def grown(path):
    index = LineIndex(str(path))
    assert index.grow(LATER)
    return index


def texts(index, first, count):
    return [line.text for line in index.read(first, count)]


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(merged, "BLOCK", 8)
    monkeypatch.setattr(merged, "MOST_BLOCKS", 16)


@pytest.mark.parametrize(
    "text", [b"", b"a", b"a\n", b"a\n\nb", b"one\ntwo\nthree\n" * 40, b"x" * 50 + b"\ny\n"]
)
def test_each_line_is_found(tmp_path, small_blocks, text):
    path = tmp_path / "log"
    path.write_bytes(text)
    index = grown(path)
    lines = text.splitlines()
    assert index.count == len(lines)
    assert [texts(index, number, 1) for number in range(len(lines) + 1)] == [[line] for line in lines] + [[]]
    assert texts(index, 0, 1000) == lines
    ends = [place + 1 for place, byte in enumerate(text) if byte == ord("\n")]
    offsets = range(len(text) + 2)
    assert index.count_ended(offsets) == [sum(end <= offset for end in ends) for offset in offsets]
    assert index.read_block(1, 2, 1 << 20) == b"".join(line + b"\n" for line in lines[1:3])


def test_a_log_that_grows_is_counted_on(tmp_path, small_blocks):
    path = tmp_path / "log"
    path.write_bytes(b"one\ntw")
    index = grown(path)
    assert texts(index, 0, 9) == [b"one", b"tw"]
    with path.open("ab") as file:
        file.write(b"o\nthree" * 30)
    assert index.count_ended([3, 6]) == [0, 1]
    index.grow(LATER)
    assert texts(index, 0, 2) == [b"one", b"two"]
    assert index.count == 32
    assert index.count_ended([3, 6, 8, 9, 500]) == [0, 1, 2, 2, 31]
    path.write_bytes(b"new\n")
    index.grow(LATER)
    assert texts(index, 0, 9) == [b"new"]
    path.unlink()
    index.grow(LATER)
    assert index.count == 0
    assert texts(index, 0, 9) == []


def test_a_deadline_ends_the_reading_and_the_next_call_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(merged, "_CHUNK", 4)
    path = tmp_path / "log"
    path.write_bytes(b"a\nb\nc\nd\n")
    index = LineIndex(str(path))
    assert not index.grow(0.0)
    assert 0 < index.count < 4
    assert index.grow(LATER)
    assert index.count == 4


def test_a_pipe_in_the_place_of_a_log_is_left_alone(tmp_path):
    os.mkfifo(tmp_path / "log")
    assert grown(tmp_path / "log").count == 0


def test_long_lines_and_progress_bars_are_shown_as_a_terminal_does(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"x" * 100_000 + b"\n" + b"10%\r20%\r30%\nend\r\n" + b"50%\r" * 50_000 + b"done\n")
    long, bar, end, many = grown(path).read(0, 9)
    assert (len(long.text), long.length) == (merged.LONGEST, 100_000)
    assert [bar.text, end.text, many.text] == [b"30%", b"end", b"done"]


def test_the_first_account_of_an_error_is_found_across_reads(tmp_path, monkeypatch):
    monkeypatch.setattr(merged, "_CHUNK", 7)
    path = tmp_path / "log"
    path.write_bytes(b"ok\nok\n  Traceback (most recent call last):\nTraceback (most recent call last):\n")
    assert grown(path).first_error == 2


def test_looks_are_put_together_as_coarsely_as_is_wanted():
    looks = b"10.0 0:5+5\n10.4 0:9+4 1:3+3\n12.1 1:8+5\n"
    assert [tuple(one) for one in group_looks(looks, 1.0)] == [(10.4, {0: 9, 1: 3}), (12.1, {1: 8})]
    assert [tuple(one) for one in group_looks(looks, 100.0)] == [(12.1, {0: 9, 1: 8})]


# several ranks


def shown(told):
    return [(line.n, line.rank, line.text) for line in told.lines]


@pytest.fixture
def job(drumline_home):
    made = MadeJob()
    made.start()
    made.log(0, "a0\nb0\n", at=1010.0)
    made.log(1, "a1\n", at=1010.5)
    made.log(2, "a2\n", at=1011.7)
    made.log(0, "c0\n", at=1015.0)
    made.log(1, "b1\nc1\n", at=1013.0)
    made.log(3, "never looked at\n")
    return made


ORDER = ["a0", "b0", "a1", "a2", "b1", "c1", "c0", "never looked at"]


def test_lines_of_all_ranks_are_in_the_order_of_their_times(job):
    told = read_lines(job.name)
    assert [text for _, _, text in shown(told)] == ORDER
    assert [number for number, _, _ in shown(told)] == list(range(8))
    assert (told.total, told.exact, told.within_s, told.next) == (8, False, 1.0, 8)
    assert told.lines[0].time == "1970-01-01T00:16:50.500Z"
    for first in range(-8, 9):
        part = read_lines(job.name, line=first, count=3)
        begin = first % 8 if first < 0 else first
        assert [text for _, _, text in shown(part)] == ORDER[begin : begin + 3]


@pytest.mark.parametrize(("at", "first"), [(0.0, 0), (1010.5, 0), (1010.6, 3), (1014.0, 6), (1e12, 7)])
def test_lines_are_asked_for_from_a_time_on(job, at, first):
    told = read_lines(job.name, at=at, count=1)
    assert (told.line, told.lines[0].text) == (first, ORDER[first])


def test_whole_logs_are_one_text_with_the_rank_before_each_line(job):
    job.log(2, "no end of line")
    whole = b"".join(read_whole(job.name, ALL)).decode().splitlines()
    assert sorted(whole) == sorted(
        [
            *("[0|node-0] a0", "[0|node-0] b0", "[0|node-0] c0"),
            *("[1|node-0] a1", "[1|node-0] b1", "[1|node-0] c1"),
            *("[2|node-1] a2", "[2|node-1] no end of line", "[3|node-1] never looked at"),
        ]
    )
    assert whole[:3] == ["[0|node-0] a0", "[0|node-0] b0", "[1|node-0] a1"]
    some = b"".join(read_whole(job.name, ChosenLogs(ranks="1,3", nodes="1")))
    assert some == b"[3|node-1] never looked at\n"
    with pytest.raises(UsageError, match="no rank '9'"):
        read_whole(job.name, ChosenLogs(ranks="9"))


def test_the_whole_log_of_a_job_with_one_rank_is_as_it_is(drumline_home):
    alone = MadeJob("alone", nodes=1, procs=1)
    alone.log(0, "one\ntwo\n")
    assert b"".join(read_whole("alone", ALL)) == b"one\ntwo\n"


def test_one_rank_is_in_its_own_order(job):
    told = read_lines(job.name, ChosenLogs(ranks="1"))
    assert shown(told) == [(0, 1, "a1"), (1, 1, "b1"), (2, 1, "c1")]
    assert told.exact
    assert [rank for _, rank, _ in shown(read_lines(job.name, ChosenLogs(nodes="1")))] == [2, 3]


def test_a_rank_node_or_attempt_that_is_not_there_is_refused(job):
    with pytest.raises(UsageError, match="no rank '9'"):
        read_lines(job.name, ChosenLogs(ranks="9"))
    with pytest.raises(UsageError, match="no node 7"):
        read_lines(job.name, ChosenLogs(nodes="7"))
    with pytest.raises(UsageError, match="no attempt 1"):
        read_lines(job.name, ChosenLogs(attempt=1))


def test_what_comes_is_seen_by_the_next_look(job):
    before = read_lines(job.name).total
    job.log(0, "d0\n", at=1016.0)
    told = read_lines(job.name)
    assert told.total == before + 1
    assert "d0" in [text for _, _, text in shown(told)]


def test_equal_lines_of_ranks_are_one_when_folded(drumline_home):
    job = MadeJob(nodes=1, procs=3)
    for rank in range(3):
        job.log(rank, f"step 1\nstep 2\nmine {rank}\nstep 1\n", at=1010.0)
    told = read_lines(job.name, fold=True)
    folded = [(line.text, line.ranks) for line in told.lines]
    assert folded[:4] == [
        ("step 1", [0, 1, 2]),
        ("step 2", [0, 1, 2]),
        ("mine 0", [0]),
        ("step 1", [0, 1, 2]),
    ]
    assert folded[4:] == [("mine 1", [1]), ("mine 2", [2])]
    assert told.next == told.total == 12
    part = read_lines(job.name, fold=True, line=1, count=5)
    assert [(line.n, line.ranks) for line in part.lines] == [(1, [0, 1]), (2, [0]), (3, [0, 1])]
    assert part.next == 6


def test_very_many_looks_are_put_together(drumline_home, monkeypatch):
    monkeypatch.setattr(merged, "MOST_PIECES", 10)
    job = MadeJob(nodes=1, procs=2)
    for step in range(100):
        job.log(0, f"zero {step}\n", at=1000.0 + step)
        job.log(1, f"one {step}\n", at=1000.3 + step)
    told = read_lines(job.name, count=1000)
    assert told.within_s > 15
    for rank, word in ((0, "zero"), (1, "one")):
        assert [text for _, one, text in shown(told) if one == rank] == [
            f"{word} {step}" for step in range(100)
        ]


def test_errors_are_marked_and_the_first_is_found(job):
    job.log(2, "Traceback (most recent call last):\n  File x\nValueError: no\n", at=1020.0)
    told = read_lines(job.name)
    marked = [line.text for line in told.lines if line.error]
    assert marked == ["Traceback (most recent call last):", "ValueError: no"]
    assert told.lines[told.first_error].text == marked[0]


def test_an_earlier_attempt_has_its_own_lines(job):
    job.log(0, "before\n", at=900.0, attempt=0, is_earlier=True)
    job.add(e.AttemptEnded(1100.0, 0, 1, "rank 1 failed"))
    assert shown(read_lines(job.name, ChosenLogs(attempt=0))) == [(0, 0, "before")]


def test_what_a_job_prints_moves_no_cursor_and_is_cut(job):
    job.log(3, b"\x1b[31mred\x1b[0m\x1b]0;title\x07\x1b[2J \xff\n" + b"y" * 3000 + b"\n", at=1030.0)
    lines = read_lines(job.name, ChosenLogs(ranks="3"), line=1).lines
    assert lines[0].text == "\x1b[31mred\x1b[0m \ufffd"
    assert (len(lines[1].text), lines[1].cut) == (2000, 3000)


# search


def found(told):
    return [(match.n, match.rank) for match in told.matches]


def test_a_text_is_found_on_and_back(job):
    assert found(search_logs(job.name, Wanted("A"))) == []
    assert found(search_logs(job.name, Wanted("a"))) == [(0, 0), (2, 1), (3, 2), (7, 3)]
    assert found(search_logs(job.name, Wanted("a"), begin=1, limit=1)) == [(2, 1)]
    back = search_logs(job.name, Wanted("a"), begin=7, backwards=True, limit=2)
    assert found(back) == [(3, 2), (2, 1)]
    assert (back.more, back.next) == (True, 2)
    assert found(search_logs(job.name, Wanted("a"), begin=2, backwards=True)) == [(0, 0)]
    assert found(search_logs(job.name, Wanted("a"), ChosenLogs(ranks="1"))) == [(0, 1)]


def test_a_text_is_found_in_parts_of_few_lines(job, monkeypatch):
    monkeypatch.setattr(line_queries, "_LINES", 2)
    job.log(0, "".join(f"step {step}\n" for step in range(50)), at=1040.0)
    told = search_logs(job.name, Wanted("step"), limit=7)
    lines = read_lines(job.name).lines
    assert [lines[match.n].text for match in told.matches] == [f"step {step}" for step in range(7)]
    again = search_logs(job.name, Wanted("step"), begin=told.next, limit=100)
    assert [match.text for match in again.matches] == [f"step {step}" for step in range(7, 50)]
    back = search_logs(job.name, Wanted("step"), begin=-1, backwards=True, limit=3)
    assert [match.text for match in back.matches] == ["step 49", "step 48", "step 47"]


def test_a_regular_expression_is_matched(job):
    assert found(search_logs(job.name, Wanted("^[bc]1$", is_regex=True))) == [(4, 1), (5, 1)]
    assert found(search_logs(job.name, Wanted("^A0", is_regex=True))) == []
    with pytest.raises(UsageError, match="not a regular expression"):
        search_logs(job.name, Wanted("(", is_regex=True))


def test_an_expression_that_backtracks_is_stopped_and_does_not_hold_up_the_rest(job):
    job.log(0, "a" * 60 + "b\n", at=1050.0)
    began = time.monotonic()
    told = line_queries.find_lines(
        merged.merge(merged.find_logs(job.name, ChosenLogs())),
        Wanted("(a+)+$", is_regex=True),
        0,
        limit=100,
        limit_s=0.5,
    )
    assert told.timed_out
    assert told.more
    assert time.monotonic() - began < 60


@pytest.mark.parametrize("query", ["", "a\nb", "x" * 600])
def test_what_cannot_be_looked_for_is_refused(job, query):
    with pytest.raises(UsageError, match="q:"):
        search_logs(job.name, Wanted(query))


def test_only_lines_that_match_with_those_around_them(job):
    told = read_lines(job.name, wanted=Wanted("b1"), context=1)
    assert shown(told) == [(2, 1, "a1"), (4, 1, "b1"), (5, 1, "c1")]
    assert [bool(line.context) for line in told.lines] == [True, False, True]


# divergence


def test_the_line_at_which_a_rank_leaves_the_others_is_named(drumline_home):
    job = MadeJob()
    for rank in range(4):
        job.log(
            rank, "".join(f"step {step} loss {0.5 / (step + 1 + rank)}\n" for step in range(20)), at=1010.0
        )
    job.log(2, "loss is not finite, skipping\nstep 21 loss 0.1\n", at=1011.0)
    told = find_divergence(job.name, 2)
    assert told.sentence == "rank 2 leaves the others at its line 21: loss is not finite, skipping"
    assert read_lines(job.name).lines[told.n].text == "loss is not finite, skipping"
    job.log(0, "step 20 loss 1\n", at=1012.0)
    assert find_divergence(job.name, 0).sentence == "rank 0 says what the others say"


def test_a_rank_that_stops_is_told(drumline_home):
    job = MadeJob()
    for rank in range(4):
        job.log(rank, "".join(f"step {step}\n" for step in range(5 if rank == 3 else 20)), at=1010.0)
    told = find_divergence(job.name, 3)
    assert told.sentence == "rank 3 stops after line 5; the others go on to line 20"
    assert told.line == 4
    with pytest.raises(UsageError, match="no rank 9"):
        find_divergence(job.name, 9)
