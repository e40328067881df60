"""The outcome of a job with very many events, of which each is read once."""

import pytest
from made_jobs import MadeJob

from drumline.contract import events as e
from drumline.contract.outcome import fold
from drumline.control.jobs import many_events, outcome


@pytest.fixture
def job(monkeypatch):
    monkeypatch.setattr(outcome, "_MANY_BYTES", 1)
    many_events._kept.clear()
    made = MadeJob()
    made.start()
    yield made
    many_events._kept.clear()


@pytest.fixture
def parsed(monkeypatch):
    """The lines that were read."""
    lines = []
    real = e.from_line
    monkeypatch.setattr(e, "from_line", lambda line: lines.append(line) or real(line))
    return lines


def look(found):
    return {**vars(found), "ranks": {number: vars(one) for number, one in found.ranks.items()}}


def test_the_outcome_is_that_of_all_events(job):
    assert look(outcome.fold_events(job.folder)) == look(fold(job.folder.read_events()))
    job.add(e.RankExited(1005.0, 0, 0, 1, None), e.JobEnded(1006.0, "Failed", 1, "rank 0 failed"))
    assert look(outcome.fold_events(job.folder)) == look(fold(job.folder.read_events()))


def test_each_event_is_read_once(job, parsed):
    outcome.fold_events(job.folder)
    parsed.clear()
    outcome.fold_events(job.folder)
    assert parsed == []
    job.add(e.JobWarned(1005.0, "slow", "slow"))
    assert [one.text for one in outcome.fold_events(job.folder).warnings] == ["slow"]
    assert len(parsed) == 1


def test_what_a_caller_changes_is_its_own(job):
    outcome.fold_events(job.folder).reason = "changed"
    assert outcome.fold_events(job.folder).reason != "changed"


def test_a_line_that_is_cut_short_is_read_when_it_is_whole(job):
    outcome.fold_events(job.folder)
    line = e.to_line(e.JobWarned(1005.0, "slow", "slow"))
    with open(job.folder.events, "ab") as file:
        file.write(line[:10])
    assert outcome.fold_events(job.folder).warnings == []
    with open(job.folder.events, "ab") as file:
        file.write(line[10:])
    assert len(outcome.fold_events(job.folder).warnings) == 1


def test_a_file_that_was_written_anew_is_read_anew(job):
    outcome.fold_events(job.folder)
    fresh = [
        e.JobSubmitted(2000.0, "eve", "local"),
        *(e.JobWarned(2001.0, "slow", "x" * 50) for _ in range(100)),
    ]
    with open(job.folder.events, "wb") as file:
        file.write(b"".join(map(e.to_line, fresh)))
    assert outcome.fold_events(job.folder).user == "eve"
