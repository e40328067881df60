"""The outcome of a job with very many events, of which each is read once."""

import pytest
from made_jobs import MadeJob

from drumline.contract import events as e
from drumline.contract.outcome import fold
from drumline.control.facts import start
from drumline.control.jobs import job_outcome, many_events


@pytest.fixture
def job(monkeypatch):
    monkeypatch.setattr(job_outcome, "_MANY_BYTES", 1)
    many_events.outcomes.clear()
    made = MadeJob()
    made.start()
    yield made
    many_events.outcomes.clear()


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
    assert look(job_outcome.fold_events(job.folder)) == look(fold(job.folder.read_events()))
    job.add(e.RankExited(1005.0, 0, 0, 1, None), e.JobEnded(1006.0, "Failed", 1, "rank 0 failed"))
    assert look(job_outcome.fold_events(job.folder)) == look(fold(job.folder.read_events()))


def test_each_event_is_read_once(job, parsed):
    job_outcome.fold_events(job.folder)
    parsed.clear()
    job_outcome.fold_events(job.folder)
    assert parsed == []
    job.add(e.JobWarned(1005.0, "slow", "slow"))
    assert [one.text for one in job_outcome.fold_events(job.folder).warnings] == ["slow"]
    assert len(parsed) == 1


def test_what_a_caller_changes_is_its_own(job):
    job_outcome.fold_events(job.folder).reason = "changed"
    assert job_outcome.fold_events(job.folder).reason != "changed"


def test_a_line_that_is_cut_short_is_read_when_it_is_whole(job):
    job_outcome.fold_events(job.folder)
    line = e.to_line(e.JobWarned(1005.0, "slow", "slow"))
    with open(job.folder.events, "ab") as file:
        file.write(line[:10])
    assert job_outcome.fold_events(job.folder).warnings == []
    with open(job.folder.events, "ab") as file:
        file.write(line[10:])
    assert len(job_outcome.fold_events(job.folder).warnings) == 1


def test_a_file_that_was_written_anew_is_read_anew(job):
    job_outcome.fold_events(job.folder)
    fresh = [
        e.JobSubmitted(2000.0, "eve", "local"),
        *(e.JobWarned(2001.0, "slow", "x" * 50) for _ in range(100)),
    ]
    with open(job.folder.events, "wb") as file:
        file.write(b"".join(map(e.to_line, fresh)))
    assert job_outcome.fold_events(job.folder).user == "eve"


AGAIN = (
    e.RankExited(1005.0, 1, 0, 1, None),
    e.AttemptEnded(1005.5, 0, 1, "rank 1 failed", 1, 0),
    e.JobStarting(1006.0),
    e.RankStarted(1006.2, 0, 0, 41),
)


def test_of_earlier_attempts_little_is_parsed(job, parsed):
    job.add(*AGAIN, *AGAIN, e.FirstOutput(1007.0, 0, 0))
    job_outcome.fold_events(job.folder)
    assert not [line for line in parsed if b"RankExited" in line or b"FirstOutput" in line]


@pytest.mark.parametrize("number", [0, 1, 2])
def test_the_start_of_an_attempt_is_that_of_all_events(job, parsed, number):
    job.add(*AGAIN, e.RankExited(1007.0, 0, 0, 0, None), *AGAIN)
    whole = start.fold(job.folder.read_events())
    parsed.clear()
    starts = start.read_starts(job.folder, number)
    assert len(parsed) < 20 or number == 0
    assert vars(starts[number]) == vars(whole[number])
    assert [(one.zero, one.cause) for one in starts] == [(one.zero, one.cause) for one in whole]
    assert vars(start.read_starts(job.folder)[2]) == vars(whole[2])
    assert (not starts[1].started) == (number != 1)
