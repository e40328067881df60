"""Many lines at once, held against the same done line by line."""

import contextlib
import io
import os
import random
import threading
import tty

import pytest

from drumline.control.logs import rank_log
from drumline.control.logs.printer import LogView, Printer
from drumline.control.logs.rank_log import RankLog
from drumline.control.terminal import clean, decode

HOSTILE = [
    *(
        b"step 12 loss 0.5",
        b"caf\xc3\xa9 \xe6\xbc\xa2 \xf0\x9f\xa5\x81",
        b"\t",
        b" ",
        b"x" * 30,
        b"",
        b"m",
        b"0;",
    ),
    *(b"\r", b"\r\r", b"\r\n", b" 50%\r", b"\x08", b"\x0b\x0c", b"\0", b"\x7f", b"\x1c\x1d"),
    *(b"\x1b", b"\x1b[", b"\x1b[31m", b"\x1b[0m", b"\x1b[1;3", b"\x1b[2J", b"\x1b[?25l", b"\x1b(B", b"\x1bc"),
    *(b"\x1b]0;title", b"\x1b]0;title\x07", b"\x1b]52;c;cm0=\x1b\\", b"\x1bPq", b"\x1b_", b"\x07", b"\x1b\\"),
    *("\x9b31m\x9b".encode(), "\x9c\x85".encode(), "\u202e\u2066\u061c".encode(), "\u2028".encode()),
    *(b"\xff\xfe", b"\xe2\x82", b"\xc2", b"\x9b2J", b"\xf0\x9f", b"\xed\xa0\x80", b"\x80"),
]


class Terminal(io.TextIOWrapper):
    def isatty(self):
        return True


def hostile(seed, count=400):
    chance = random.Random(seed)
    lines = [b"".join(chance.choices(HOSTILE, k=chance.randrange(8))) for _ in range(count)]
    return b"\n".join(lines) + b"\n"


def line_by_line(data, prefix, *, colours, limit):
    shown = []
    for line in data[:-1].split(b"\n"):
        text = line.removesuffix(b"\r").rpartition(b"\r")[2]
        if len(text) > limit:
            text = text[:limit] + b" ... (%d bytes more)" % (len(text) - limit)
        shown.append(prefix + clean(decode(text), colours=colours) + "\n")
    return "".join(shown)


def printed(path, out, prefix, counts):
    printer = Printer(out)
    log = RankLog(str(path), "0", 0, raw=printer.is_raw)
    for count in counts:
        if lines := log.read(count):
            printer.write(prefix, lines)
    for lines in log.finish():
        printer.write(prefix, lines)
    printer.flush()


def counts_of(seed):
    chance = random.Random(seed)
    return [chance.choice([1, 2, 7, 50, 1000]) for _ in range(200)]


@pytest.mark.parametrize("seed", range(8))
def test_a_terminal_gets_what_it_would_line_by_line(tmp_path, seed):
    data = hostile(seed)
    (tmp_path / "log").write_bytes(data)
    given = io.BytesIO()
    out = Terminal(given, encoding="utf-8")
    printed(tmp_path / "log", out, "[3|node-1] ", counts_of(seed))
    expected = line_by_line(data, "[3|node-1] ", colours=True, limit=rank_log.LINE_LIMIT)
    assert expected.encode() == given.getvalue()


@pytest.mark.parametrize("limit", [0, 1, 20, 45])
def test_long_lines_are_cut_among_others(tmp_path, monkeypatch, limit):
    monkeypatch.setattr(rank_log, "LINE_LIMIT", limit)
    data = hostile(limit)
    (tmp_path / "log").write_bytes(data)
    out = io.StringIO()
    printed(tmp_path / "log", out, "", [])
    assert line_by_line(data, "", colours=False, limit=limit) == out.getvalue()


def test_bytes_are_not_touched_where_nobody_looks(tmp_path):
    data = hostile(9)
    (tmp_path / "log").write_bytes(data)
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    printed(tmp_path / "log", out, "[0|node-0] ", counts_of(9))
    expected = b"".join(b"[0|node-0] " + line + b"\n" for line in data[:-1].split(b"\n"))
    assert expected == out.buffer.getvalue()


def test_a_progress_bar_that_is_longer_than_a_line_may_be_shows_its_newest_state(tmp_path):
    (tmp_path / "log").write_bytes(b"".join(b"%5d of 20000\r" % state for state in range(20001)) + b"done\n")
    out = io.StringIO()
    printed(tmp_path / "log", out, "", [5000] * 60)
    assert out.getvalue() == "done\n"


def buffered(descriptor):
    return open(descriptor, "w")


def unbuffered(descriptor):
    return io.TextIOWrapper(open(descriptor, "wb", 0), write_through=True)


@pytest.mark.parametrize("opened", [buffered, unbuffered])
@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_reader_that_is_slow_gets_everything_even_when_writing_does_not_wait(opened, is_terminal):
    ours, theirs = os.pipe()
    if is_terminal:
        os.close(ours)
        os.close(theirs)
        ours, theirs = os.openpty()
        tty.setraw(theirs)
    os.set_blocking(theirs, False)
    lines = b"".join(b"line %d\n" % number for number in range(20_000))
    got = bytearray()

    def read():
        with contextlib.suppress(OSError):  # The end of a terminal.
            while data := os.read(ours, 1 << 16):
                got.extend(data)
                if got.endswith(b"p end\n"):
                    break
        os.close(ours)

    reader = threading.Thread(target=read)
    with opened(theirs) as out:
        printer = Printer(out)
        reader_starts = threading.Timer(0.05, reader.start)
        reader_starts.start()
        printer.write("", lines)
        printer.write("p ", b"end\n")
        printer.flush()
        reader_starts.join()
        reader.join()
    assert got == lines + b"p end\n"


def test_what_was_shown_is_in_sight_until_others_have_filled_a_screen():
    show = LogView(io.StringIO())
    assert not show.has_in_sight("3")
    show.note("3", b"Traceback\nValueError: bad batch\n")
    assert show.has_in_sight("3")
    show.note("0", b"closed\n" * 23)
    assert show.has_in_sight("3")
    show.note("0", b"closed\n")
    assert not show.has_in_sight("3")
    assert show.has_in_sight("0")
