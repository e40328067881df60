"""Which of the logs are read; the files are written by the test."""

import errno
import time

import pytest

from drumline.contract import ownership
from drumline.control.logs import follow
from drumline.control.logs.follow import LogWatcher
from drumline.control.logs.rank_log import RankLog
from drumline.linux import inotify


@pytest.fixture(params=["watching", "looking", "no inotify", "network"])
def following(request, tmp_path, monkeypatch):
    """Of eight logs, and how many of them may be read for one that has grown."""
    monkeypatch.setattr(follow, "_SETTLE_S", 0.0)
    if request.param == "no inotify":

        def refuse(self):
            raise OSError(errno.EMFILE, "too many")

        monkeypatch.setattr(inotify.Inotify, "__init__", refuse)
    if request.param == "network":
        monkeypatch.setattr(ownership, "is_network", lambda path: True)
    following = Following(tmp_path, may_watch=request.param != "looking")
    yield following
    following.watcher.close()
    for log in following.logs:
        log.close()


class Following:
    def __init__(self, folder, may_watch):
        self.paths = [folder / f"log-{number}" for number in range(8)]
        self.logs = [RankLog(str(path), str(rank), 0) for rank, path in enumerate(self.paths)]
        self.watcher = LogWatcher(self.logs, may_watch=may_watch)
        self.read = []
        """The labels of the logs that were read, since ``lines`` was last asked."""

    def lines(self, timeout_s=20.0):
        """The next that come, by label."""
        self.read = []
        deadline = time.monotonic() + timeout_s
        found = {}
        while not found and time.monotonic() < deadline:
            self.watcher.wait(timeout_s, None)
            found = self.round()
        while self.watcher.due:
            found |= self.round()
        return found

    def round(self):
        found = {}
        for log, look in list(self.watcher.due.items()):
            self.read.append(log.label)
            if lines := log.read(look=look):
                found[log.label] = lines
            self.watcher.mark_read(log, log.found > 0)
        return found

    def drain(self):
        """Until nothing is due, however often it is asked."""
        for _ in range(3):
            while self.watcher.due:
                self.round()
            self.watcher.wait(0.0, None)
        while self.watcher.due:
            self.round()


def test_a_line_is_found_wherever_it_is_written(following):
    for path in following.paths[:6]:
        path.write_bytes(b"first\n")
    following.drain()
    with following.paths[3].open("ab") as file:
        file.write(b"second\n")
    assert following.lines() == {"3": b"second\n"}
    following.paths[7].write_bytes(b"late\n")
    assert following.lines() == {"7": b"late\n"}
    with following.paths[7].open("ab") as file:
        file.write(b"more\n")
    assert following.lines() == {"7": b"more\n"}


def test_a_log_of_the_next_attempt_is_found_and_followed(following):
    path = following.paths[0]
    path.write_bytes(b"one\n")
    following.drain()
    for attempt in range(2):
        aside = path.parent / f"attempt-{attempt}"
        aside.mkdir()
        path.rename(aside / path.name)
        path.write_bytes(b"two\n")
        assert following.lines() == {"0": b"two\n"}
        with path.open("ab") as file:
            file.write(b"three\n")
        assert following.lines() == {"0": b"three\n"}


def test_a_log_that_always_has_more_does_not_keep_the_others_waiting(following):
    for path in following.paths:
        path.write_bytes(b"first\n")
    following.drain()
    with following.paths[1].open("ab") as file:
        file.write(b"second\n")
    hog, other = following.logs[:2]
    watcher, deadline = following.watcher, time.monotonic() + 20.0
    watcher.due[hog] = False
    while other not in watcher.due and time.monotonic() < deadline:
        watcher.wait(20.0, None)
    assert other.read(look=watcher.due[other]) == b"second\n"


def test_only_the_log_that_has_grown_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(follow, "_SETTLE_S", 0.0)
    monkeypatch.setattr(follow, "_FULL_POLL_S", 1000.0)
    following = Following(tmp_path, may_watch=True)
    for path in following.paths:
        path.write_bytes(b"first\n")
    following.drain()
    with following.paths[5].open("ab") as file:
        file.write(b"second\n")
    assert following.lines() == {"5": b"second\n"}
    assert set(following.read) == {"5"}
    following.watcher.close()


def test_what_the_kernel_lost_is_found_by_looking(tmp_path, monkeypatch):
    monkeypatch.setattr(follow, "_SETTLE_S", 0.0)
    following = Following(tmp_path, may_watch=True)
    following.paths[0].write_bytes(b"first\n")
    following.drain()
    monkeypatch.setattr(
        inotify.Inotify, "events", lambda self: [inotify.FileEvent(-1, "", lost=True, written=False)]
    )
    following.paths[1].write_bytes(b"second\n")
    assert following.lines() == {"1": b"second\n"}
    following.watcher.close()


def test_a_folder_that_is_yet_to_come(tmp_path, monkeypatch):
    monkeypatch.setattr(follow, "_SETTLE_S", 0.0)
    following = Following(tmp_path / "later", may_watch=True)
    following.drain()
    (tmp_path / "later").mkdir()
    following.paths[0].write_bytes(b"first\n")
    assert following.lines() == {"0": b"first\n"}
    following.watcher.close()
