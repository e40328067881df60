"""What an agent sees of its ranks' first words and first process groups: real files, a real epoll."""

import json
import os
import select
import time

import pytest

from drumline.contract.events import FirstOutput, GroupFormed
from drumline.contract.evidence import ExitEvidence
from drumline.contract.messages import HERE, ExceptionSeen
from drumline.node.agent import first_output
from drumline.node.agent.first_output import FirstOutputWatcher
from drumline.node.diagnostics import failures


@pytest.fixture
def watched(tmp_path):
    """What is told of rank 3, whose log and notes are two files of the test's folder."""

    class Watched:
        def __init__(self):
            self.poller = select.epoll()
            self.told = []
            self.first = FirstOutputWatcher(self.poller, self.told.append)
            self.log, self.notes = str(tmp_path / "std_log.txt"), str(tmp_path / "failures-3.jsonl")

        def expect(self):
            self.first.expect(3, self.log, self.notes)

        def write(self, file, text):
            with open(file, "a") as opened:
                opened.write(text)

        def look(self):
            """What is told at the next thing that happens; nothing when nothing does."""
            before = len(self.told)
            self.first.look([descriptor for descriptor, _ in self.poller.poll(0)])
            return self.told[before:]

    made = Watched()
    yield made
    made.poller.close()


def note(**content):
    return json.dumps({"at": time.monotonic(), "pid": 7, "parent": 1, **content}) + "\n"


def test_the_first_bytes_are_told_once(watched):
    watched.expect()
    assert watched.look() == []
    before = time.monotonic()
    watched.write(watched.log, "hello\n")
    (output,) = watched.look()
    assert (type(output), output.rank) == (FirstOutput, 3)
    assert before <= output.time <= time.monotonic()
    watched.write(watched.log, "again\n")
    assert watched.look() == []


def test_what_was_in_the_file_before_is_no_output(watched):
    watched.write(watched.log, "of another attempt\n")
    watched.expect()
    assert watched.look() == []
    watched.first.note_end(3, time.monotonic())
    assert watched.told == []


def test_the_files_are_their_owners_alone(watched):
    watched.expect()
    assert [os.stat(file).st_mode & 0o777 for file in (watched.log, watched.notes)] == [0o600, 0o600]


def test_the_first_group_is_told_whatever_else_is_noted_before(watched):
    watched.expect()
    watched.write(watched.notes, note())
    watched.write(watched.notes, "no JSON\n" + '{"group": "' + "\n")
    assert watched.look() == []
    line = note(group="gloo\x1b[31m")
    watched.write(watched.notes, line)
    assert watched.look() == [GroupFormed(json.loads(line)["at"], 3, HERE, "gloo [31m")]
    watched.write(watched.notes, note(group="nccl"))
    assert watched.look() == []


def test_a_group_of_another_time_is_not_believed(watched):
    watched.expect()
    watched.write(watched.notes, '{"at": 1.0, "pid": 1, "parent": 1, "group": "gloo"}\n')
    watched.write(watched.notes, '{"at": NaN, "pid": 1, "parent": 1, "group": "gloo"}\n')
    watched.write(watched.notes, '{"at": 1e300, "pid": 1, "parent": 1, "group": "gloo"}\n')
    assert watched.look() == []


def test_nothing_is_watched_when_a_rank_has_ended(watched):
    def descriptors():
        return len(os.listdir("/proc/self/fd"))

    before = descriptors()
    watched.expect()
    assert descriptors() == before + 1
    watched.write(watched.log, "hello\n")
    watched.write(watched.notes, note(group="gloo"))
    assert [type(one) for one in watched.look()] == [FirstOutput, GroupFormed]
    watched.first.note_end(3, time.monotonic())
    assert descriptors() == before


def test_each_exception_that_ends_a_program_is_told(watched):
    """That of a child may be expected."""
    watched.expect()
    watched.write(watched.notes, note(group="gloo"))
    assert [type(one) for one in watched.look()] == [GroupFormed]
    for _ in range(2):
        watched.write(watched.notes, note(type="ValueError", message="bad batch"))
        assert watched.look() == [ExceptionSeen(3)]
    watched.write(watched.notes, note())
    assert watched.look() == []


def test_what_comes_right_before_the_end_is_told(watched):
    watched.expect()
    watched.write(watched.log, "hello\n")
    watched.write(watched.notes, note(group="gloo"))
    watched.first.note_end(3, time.monotonic())
    assert [type(one) for one in watched.told] == [FirstOutput, GroupFormed]


@pytest.fixture
def without_inotify(monkeypatch):
    def refuse():
        raise OSError("no inotify")

    monkeypatch.setattr(first_output, "Inotify", refuse)
    monkeypatch.setattr(first_output, "_POLL_INTERVAL_S", 0.0)


@pytest.mark.usefixtures("without_inotify")
def test_without_inotify_the_files_are_looked_at(watched):
    watched.write(watched.log, "of another attempt\n")
    watched.expect()
    assert watched.look() == []
    watched.write(watched.log, "hello\n")
    watched.write(watched.notes, note(group="gloo"))
    assert [type(one) for one in watched.look()] == [FirstOutput, GroupFormed]
    assert watched.look() == []


def test_a_log_that_cannot_be_is_none(watched, tmp_path):
    watched.log = str(tmp_path / "missing" / "std_log.txt")
    watched.expect()
    assert watched.look() == []
    watched.first.note_end(3, time.monotonic())


def test_a_pipe_in_the_place_of_notes_blocks_nobody(watched):
    os.mkfifo(watched.notes)
    watched.expect()
    assert watched.look() == []


def test_a_group_is_neither_a_failure_nor_an_end(tmp_path):
    notes = tmp_path / "notes.jsonl"
    since = time.monotonic()
    group = note(group="gloo", message="bad", type="ValueError", file="f", line=1, function="f")
    notes.write_text(group)
    assert failures.read_failure(str(notes), 7, 1, "", since, time.monotonic()) == ExitEvidence()
    notes.write_text(group + note())
    told = failures.read_failure(str(notes), 7, 0, "", since, time.monotonic())
    assert [name for name, value in told._asdict().items() if value] == ["left_at"]
    failure = note(type="ValueError", message="bad", file="train.py", line=2, function="step")
    notes.write_text(failure + group)
    told = failures.read_failure(str(notes), 7, 1, "", since, time.monotonic())
    assert told.failure is not None
    assert told.failure["message"] == "bad"
