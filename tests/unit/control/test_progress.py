"""What a person sees while data is on its way and an environment is being made."""

import fcntl
import io
import os
import struct
import sys
import termios
import threading
import time

import pytest

from drumline.cli import colour
from drumline.contract import events as e
from drumline.contract.outcome import fold
from drumline.control import progress_bar
from drumline.control.logs.stream import ProgressLine, read_last_line
from drumline.control.progress_bar import ProgressBar


@pytest.fixture
def terminal(monkeypatch):
    """Standard error as a terminal of 90 columns, and what it has shown so far."""
    for name in ("NO_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 90, 0, 0))
    os.set_blocking(ours, False)
    got = bytearray()

    def shown():
        try:
            while data := os.read(ours, 1 << 16):
                got.extend(data)
        except BlockingIOError:
            pass
        return got.decode()

    with os.fdopen(theirs, "w") as out:
        out.shown = shown  # type: ignore[attr-defined]
        yield out
    os.close(ours)


def moving(done, time=1.0):
    return e.TransferProgress(time, "inputs.d", done, 2_000_000, 1, 4)


def screen(text, row=-1):
    """What is to be seen in the last row, or in another, once all of it was written."""
    line = ""
    for part in text.replace("\r\n", "\n").split("\n")[row].split("\r"):
        line = part + line[len(part) :]
    return line.rstrip()


ARRIVED = e.Transferred(9.0, "inputs.d", "s3://b/\x1b[31mx", 2_000_000, 4, 500_000, 3.2, 4, "not mounted")


def test_a_terminal_has_a_bar_that_goes_when_all_is_there(terminal):
    progress = ProgressLine("job", terminal)
    progress.look(fold([moving(500_000)]))
    assert screen(terminal.shown()).startswith("inputs.d   25% |")
    assert "| 488 KiB of 1.91 MiB  " in screen(terminal.shown())
    progress.look(fold([moving(1_500_000, 2.0)]))
    line = screen(terminal.shown())
    assert line.startswith("inputs.d   75% |")
    assert "1.43 MiB of 1.91 MiB" in line
    assert len(line) <= 90
    progress.look(fold([ARRIVED]))
    told = screen(terminal.shown(), -2)
    assert screen(terminal.shown()) == ""
    assert told.startswith("job job: inputs.d: 1.91 MiB in 4 files from s3://b/")
    assert told.endswith("in 3.2 s, 488 KiB of it from the cache (not mounted)")
    assert "\x1b[31m" not in terminal.shown()


def test_the_bar_gives_way_to_a_line_of_the_job(terminal):
    progress = ProgressLine("job", terminal)
    progress.look(fold([moving(500_000)]))
    progress.clear()
    assert screen(terminal.shown()) == ""
    progress.look(fold([moving(1_000_000, 2.0)]))
    assert screen(terminal.shown()).startswith("inputs.d   50% |")


def test_elsewhere_there_are_whole_lines_once():
    out = io.StringIO()
    progress = ProgressLine("job", out)
    for events in ([moving(500_000)], [moving(900_000, 2.0)], [ARRIVED], [ARRIVED]):
        progress.look(fold(events))
    begun, arrived = out.getvalue().splitlines()
    assert begun == "job job: inputs.d: 1.91 MiB in 4 files on the way"
    assert arrived.startswith("job job: inputs.d: 1.91 MiB in 4 files from s3://b/")


@pytest.mark.parametrize("how", ["NO_COLOR", "TERM", "--color never"])
def test_nothing_is_drawn_where_a_person_wants_plain_lines(terminal, monkeypatch, how):
    if how == "NO_COLOR":
        monkeypatch.setenv("NO_COLOR", "1")
    elif how == "TERM":
        monkeypatch.setenv("TERM", "dumb")
    else:
        monkeypatch.setattr(colour, "_choice", colour.ContextVar("choice", default="auto"))
        monkeypatch.setattr(progress_bar, "IS_ALLOWED", progress_bar.ContextVar("allowed", default=True))
        colour.choose("never")
    progress = ProgressLine("job", terminal)
    progress.look(fold([moving(500_000)]))
    progress.look(fold([e.EnvironmentBuilding(2.0, "installing 3 packages")]))
    assert terminal.shown().replace("\r", "") == (
        "job job: inputs.d: 1.91 MiB in 4 files on the way\njob job: environment: installing 3 packages\n"
    )


def test_an_environment_that_was_there_is_not_worth_a_line():
    out = io.StringIO()
    progress = ProgressLine("job", out)
    progress.look(fold([e.EnvironmentReady(1.0, "d", "/p", 0.0, reused=True)]))
    assert out.getvalue() == ""
    progress.look(fold([e.EnvironmentBuilding(2.0, "installing 3 packages")]))
    progress.look(fold([e.EnvironmentReady(5.0, "d", "/p", 3.0)]))
    assert (
        out.getvalue()
        == "job job: environment: installing 3 packages\njob job: environment: ready after 3 s\n"
    )


def test_a_build_shows_its_time_and_what_its_tool_said_last(terminal, tmp_path):
    (tmp_path / "system_logs").mkdir()
    log = tmp_path / "system_logs" / "environment.log"
    log.write_text("# 3 packages\n$ uv pip install\n")
    progress = ProgressLine("job", terminal, str(tmp_path))
    building = fold([e.EnvironmentBuilding(time.time() - 61, "3 packages", "system_logs/environment.log")])
    progress.look(building)
    assert screen(terminal.shown()).startswith("environment: 3 packages  01:0")
    log.write_text(
        log.read_text()
        + "Resolved 3\rDownloading https://me:secret@host/a.whl \x1b]0;x\x07"
        + "y" * 200
        + "\n\n"
    )
    progress.tick()
    line = screen(terminal.shown())
    assert "  Downloading https://...@host/a.whl yyyy" in line
    assert 80 < len(line) < 90
    progress.look(fold([e.EnvironmentReady(time.time(), "d", "/p", 62.0)]))
    assert screen(terminal.shown()) == ""
    assert screen(terminal.shown(), -2) == "job job: environment: ready after 62 s"
    progress.tick()
    assert screen(terminal.shown()) == ""


def test_a_build_that_fails_leaves_no_line(terminal):
    progress = ProgressLine("job", terminal)
    building = e.EnvironmentBuilding(time.time(), "3 packages", "x.log")
    progress.look(fold([building]))
    assert screen(terminal.shown()) != ""
    progress.look(fold([building, e.JobEnded(3.0, "Failed", 1, "no")]))
    progress.tick()
    assert screen(terminal.shown()) == ""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", ""),
        ("$ pip install x\n", ""),
        ("before\n# a new step\n", ""),
        ("one\ntwo\n  \n", "two"),
        ("10%\r20%", "20%"),
        ("\x1b[2Kcollecting\n", "collecting"),
    ],
)
def test_the_last_line_of_a_tool(tmp_path, text, said):
    (tmp_path / "log").write_text(text)
    assert read_last_line(str(tmp_path / "log")) == said


def test_a_log_that_is_none_says_nothing(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/etc/passwd")
    assert [read_last_line(str(tmp_path / name)) for name in ("pipe", "link", "none")] == ["", "", ""]
    assert read_last_line("") == ""


def test_a_narrow_terminal_gets_one_line(terminal):
    fcntl.ioctl(terminal.fileno(), termios.TIOCSWINSZ, struct.pack("HHHH", 24, 30, 0, 0))
    with ProgressBar(terminal) as bar:
        bar.show_bytes("a name that is rather long for so narrow a terminal", 1, 10)
        assert len(screen(terminal.shown())) <= 30
        bar.show_work("what is being done at this moment", 3.0, "and what was said")
        assert len(screen(terminal.shown())) <= 30
    assert screen(terminal.shown()) == ""


def test_it_starts_no_thread_and_leaves_the_users_own_bars_alone(terminal):
    from tqdm import tqdm

    threads, interval = threading.active_count(), tqdm.monitor_interval
    with ProgressBar(terminal, interval_s=0.1) as bar:
        bar.show_bytes("x", 0, 100)
        for _ in range(100):
            bar.add(1)
    assert threading.active_count() == threads
    assert tqdm.monitor_interval == interval
    assert not hasattr(tqdm, "mp_lock")


def test_tqdm_is_imported_for_what_is_drawn_alone(monkeypatch):
    for name in [name for name in sys.modules if name == "tqdm" or name.startswith("tqdm.")]:
        monkeypatch.delitem(sys.modules, name)
    with ProgressBar(io.StringIO()) as bar:
        bar.show_bytes("x", 0, 100)
        bar.add(5)
        bar.show_work("x", 1.0)
        bar.clear()
    assert "tqdm" not in sys.modules


def test_a_bar_of_the_users_own_is_not_looked_for(terminal):
    from tqdm import tqdm

    with tqdm(total=1, file=io.StringIO()), ProgressBar(terminal) as bar:
        bar.show_bytes("x", 1, 10)
        assert screen(terminal.shown()).startswith("x   10% |")
    assert "\x1b[A" not in terminal.shown()
