"""The events of a supervisor in a pod, beside those that people append here."""

import os
import signal
from pathlib import Path

import pytest

from drumline.contract import events as e
from drumline.contract.folder import RunFolder
from drumline.engines.kubernetes import receiver
from drumline.engines.kubernetes.receiver import SupervisorEvents

SUBMITTED = e.JobSubmitted(1.0, "ann", "kubernetes")
THERE = [
    SUBMITTED,
    e.JobStarting(2.0),
    e.RankStarted(3.0, 0, 0, 17),
    e.AttemptEnded(4.0, 0, 1, "rank 0 failed"),
    e.JobEnded(5.0, "Completed", 0, "done"),
]
WHOLE = b"".join(map(e.to_line, THERE))
PIECES = [(at, WHOLE[at : at + 50]) for at in range(0, len(WHOLE), 50)]


@pytest.fixture
def folder(tmp_path):
    made = RunFolder(str(tmp_path / "job"))
    made.create()
    made.begin(SUBMITTED)
    return made


def edit(folder, name):
    folder.append(e.JobEdited(9.0, {"description": name}))


def read(folder):
    """The supervisor's events, and what people have edited; every line is an event."""
    events = list(folder.read_events())
    with open(folder.events, "rb") as file:
        assert len([line for line in file if line.strip()]) == len(events)
    edits = [one.changes["description"] for one in events if isinstance(one, e.JobEdited)]
    return [one for one in events if not isinstance(one, e.JobEdited)], edits


def take(lines, pieces):
    for piece in pieces:
        lines.take(*piece)


def test_what_people_change_meanwhile_stays(folder):
    lines = SupervisorEvents(folder.events)
    for number, piece in enumerate(PIECES):
        edit(folder, str(number))
        lines.take(*piece)
        # Readers go on from where they were: there are whole lines alone.
        assert Path(folder.events).read_bytes().endswith(b"\n")
    assert read(folder) == (THERE, list(map(str, range(len(PIECES)))))
    assert lines.count_ended_attempts() == SupervisorEvents(folder.events).count_ended_attempts() == 1


@pytest.mark.parametrize("count", range(len(PIECES) + 1))
def test_whoever_begins_anew_writes_no_event_twice_and_loses_none(folder, count):
    edit(folder, "before")
    take(SupervisorEvents(folder.events), PIECES[:count])
    edit(folder, "between")
    another = SupervisorEvents(folder.events)
    take(another, PIECES[: count // 2])
    edit(folder, "after")
    # A server may close a log, which is then read from its beginning.
    take(another, PIECES[count // 3 :])
    assert read(folder) == (THERE, ["before", "between", "after"])


@pytest.mark.parametrize("when", ["before", "half", "after"])
@pytest.mark.parametrize("number", range(1, len(THERE)))
def test_a_courier_may_be_killed_at_any_moment(folder, when, number):
    pid = os.fork()
    if pid == 0:
        count, write = 0, os.write

        def write_and_die(descriptor, data):
            nonlocal count
            count += 1
            if count == number:
                part = {"before": 0, "half": len(data) // 2, "after": len(data)}[when]
                write(descriptor, data[:part])
                os.kill(os.getpid(), signal.SIGKILL)
            return write(descriptor, data)

        receiver.os.write = write_and_die
        try:
            take(SupervisorEvents(folder.events), PIECES)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    take(SupervisorEvents(folder.events), PIECES)
    edit(folder, "after")
    assert [*folder.read_events()] == [*THERE, e.JobEdited(9.0, {"description": "after"})]


def test_a_piece_that_did_not_fit_may_be_given_again(folder, monkeypatch):
    write = os.write

    def write_some(descriptor, data):
        monkeypatch.setattr(receiver.os, "write", write)
        return write(descriptor, data[:10])

    lines = SupervisorEvents(folder.events)
    monkeypatch.setattr(receiver.os, "write", write_some)
    with pytest.raises(OSError, match="No space left"):
        lines.take(0, WHOLE)
    edit(folder, "between")
    lines.take(0, WHOLE)
    events = list(folder.read_events())
    assert events == [THERE[0], e.JobEdited(9.0, {"description": "between"}), *THERE[1:]]


@pytest.mark.parametrize("lost", [1, 60, len(e.to_line(SUBMITTED))])
def test_what_was_lost_of_a_log_costs_its_lines_alone(folder, lost):
    """A node has cut the log, which then begins anywhere."""
    lines = SupervisorEvents(folder.events)
    lines.take(0, WHOLE[:1])
    lines.take(lost + 1, WHOLE[lost + 1 :])
    assert {*map(e.to_line, THERE[2:])} <= {*map(e.to_line, read(folder)[0])}
    # Whoever begins anew with the rest finds all of it.
    before = Path(folder.events).read_bytes()
    SupervisorEvents(folder.events).take(lost, WHOLE[lost:])
    assert Path(folder.events).read_bytes().startswith(before)
    assert [*map(e.to_line, read(folder)[0])].count(e.to_line(THERE[-1])) == 1
