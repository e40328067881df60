"""Lines of a log as it grows; the file is written by the test, between reads."""

import os

import pytest

from drumline.control.logs import rank_log
from drumline.control.logs.rank_log import LINE_LIMIT, RankLog


@pytest.fixture
def path(tmp_path):
    return tmp_path / "std_log.txt"


def texts(blocks):
    data = b"".join(blocks)
    assert data[-1:] in (b"", b"\n")
    return data.split(b"\n")[:-1]


def read(log):
    """All that is there by now."""
    blocks = [log.read()]
    while log.found:
        blocks.append(log.read())
    return texts([*blocks, log.bar()])


def append(path, data):
    with path.open("ab") as file:
        file.write(data)


@pytest.mark.parametrize("raw", [True, False])
def test_lines_come_as_they_are_completed(path, raw):
    log = RankLog(str(path), "0", 0, raw=raw)
    assert read(log) == []
    append(path, b"one\ntw")
    assert read(log) == [b"one"]
    append(path, b"o\nthree")
    assert read(log) == [b"two"]
    assert texts(log.finish()) == [b"three"]


def test_a_line_longer_than_a_read_is_whole_when_raw(path):
    long = b"x" * (rank_log.CHUNK * 3 + 7)
    append(path, long + b"\n\nend\n")
    assert [long, b"", b"end"] == texts(RankLog(str(path), "0", 0, raw=True).finish())


def test_a_long_line_is_cut_for_a_person_and_the_rest_counted(path):
    append(path, b"x" * (LINE_LIMIT * 9) + b"\nnext\n")
    cut = b"x" * LINE_LIMIT + b" ... (%d bytes more)" % (LINE_LIMIT * 8)
    assert [cut, b"next"] == texts(RankLog(str(path), "0", 0).finish())


def test_a_line_at_the_limit_is_not_cut(path):
    append(path, b"x" * LINE_LIMIT + b"\n")
    assert texts(RankLog(str(path), "0", 0).finish()) == [b"x" * LINE_LIMIT]


@pytest.mark.parametrize(
    ("written", "lines"),
    [
        (b"0123456789abc\nnext\n", [b"0123456789", b"abc", b"next"]),
        (b"one\n0123456789\n\n", [b"one", b"0123456789", b""]),
        (b"0123456789" * 3, [b"0123456789"] * 3),
        (b"0123456789" * 2 + b"a", [b"0123456789"] * 2 + [b"a"]),
    ],
)
@pytest.mark.parametrize("chunk", [1, 7, 1 << 18])
def test_a_raw_line_beyond_its_limit_is_broken_and_whole(path, monkeypatch, written, lines, chunk):
    monkeypatch.setattr(rank_log, "RAW_LINE_LIMIT", 10)
    append(path, written)
    log = RankLog(str(path), "0", 0, raw=True)
    found = b""
    while (piece := log.read(chunk)) or log.found:
        found += piece
    found += b"".join(log.finish())
    assert found.splitlines() == lines


def test_a_person_sees_the_last_state_of_a_progress_bar(path):
    append(path, b"1%\r50%\r100%\r\n")
    assert texts(RankLog(str(path), "0", 0).finish()) == [b"100%"]


def test_a_progress_bar_without_an_end_is_shown_now_and_then(path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(rank_log.time, "monotonic", lambda: now[0])
    log = RankLog(str(path), "0", 0)
    append(path, b"1%\r2%\r3")
    assert read(log) == [b"2%"]
    append(path, b"%\r4%\r5")
    assert read(log) == []
    now[0] += 2.0
    assert read(log) == [b"4%"]


def test_the_half_of_a_lines_end_is_no_progress_bar(path):
    log = RankLog(str(path), "0", 0)
    append(path, b"end\r")
    assert read(log) == []
    append(path, b"\nnext\r\n")
    assert read(log) == [b"end", b"next"]


def test_raw_lines_keep_their_carriage_returns(path):
    append(path, b"1%\r50%\r\nend\r\n")
    assert texts(RankLog(str(path), "0", 0, raw=True).finish()) == [b"1%\r50%\r", b"end\r"]


def test_attempts_that_ended_between_two_looks_are_read_too(path):
    def put_aside(attempt):
        folder = path.parent / f"attempt-{attempt}"
        folder.mkdir()
        path.rename(folder / path.name)

    append(path, b"zero\n")
    log = RankLog(str(path), "0", 0)
    assert read(log) == [b"zero"]
    append(path, b"end of zero")
    put_aside(0)
    append(path, b"one\n")
    put_aside(1)
    (path.parent / "attempt-2").mkdir()  # One in which this rank was not started.
    assert read(log) == [b"end of zero", b"one"]
    append(path, b"three\n")
    assert read(log) == [b"three"]
    put_aside(3)
    assert read(log) == []
    for attempt in range(4, 12):
        append(path, b"%d\n" % attempt)
        put_aside(attempt)
    assert texts(log.finish()) == [b"%d" % attempt for attempt in range(4, 12)]


@pytest.mark.parametrize("where", ["attempt-0", ""])
def test_what_is_no_plain_file_is_passed_over(path, where):
    """A job can put anything into its folder."""
    (path.parent / "attempt-0").mkdir()
    os.mkfifo(path.parent / where / path.name)
    if where:
        append(path, b"one\n")
    assert texts(RankLog(str(path), "0", 0).finish()) == ([b"one"] if where else [])
