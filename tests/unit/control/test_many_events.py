"""The outcome of a job with very many events, of which each is read once."""

import pytest
from made_jobs import MadeJob

from drumline.contract import events as e
from drumline.contract.outcome import fold
from drumline.control.jobs import many_events, outcome
from drumline.control.observing import timeline, timeline_phases
from drumline.control.observing.charts import attempt_starts


@pytest.fixture
def job(monkeypatch):
    monkeypatch.setattr(outcome, "_MANY_BYTES", 1)
    many_events.outcomes.clear()
    attempt_starts._starts.clear()
    made = MadeJob()
    made.start()
    yield made
    many_events.outcomes.clear()
    attempt_starts._starts.clear()


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


# the timeline

AGAIN = (
    e.RankExited(1005.0, 1, 0, 1, None),
    e.JobWarned(1005.1, "slow", "slow"),
    e.AttemptEnded(1005.5, 0, 1, "rank 1 failed", 1, 0),
    e.JobStarting(1006.0),
    e.AgentJoined(1006.1, 0, 31, "127.0.0.1"),
    e.RankStarted(1006.2, 0, 0, 41),
)


def told_of_all(job, number):
    starts = timeline_phases.fold(job.folder.read_events())
    return timeline.describe_attempt(starts[number], len(starts), starts[0].zero)


def told(job, number):
    found = timeline.describe_start(job.folder.name, number)
    return {key: value for key, value in found.items() if key not in ("job", "drills", "now_s")}


@pytest.mark.parametrize("number", [0, 1, 2])
def test_the_timeline_of_an_attempt_is_that_of_all_events(job, number):
    job.add(*AGAIN, *AGAIN, e.JobEnded(1009.0, "Failed", 1, "rank 0 failed"))
    expected = told_of_all(job, number)
    del expected["now_s"]
    assert told(job, number) == expected
    assert told(job, number) == expected


def test_a_second_look_at_a_timeline_reads_what_is_new(job, parsed):
    job.add(*AGAIN)
    timeline.describe_start(job.folder.name)
    parsed.clear()
    timeline.describe_start(job.folder.name)
    assert parsed == []
    job.add(e.FirstOutput(1007.0, 0, 0), e.JobEnded(1009.0, "Completed", 0, "all ranks completed"))
    found = timeline.describe_start(job.folder.name)
    assert len(parsed) == 3, "two for the timeline, one for the outcome"
    assert found["ranks"][0]["first_output_s"] == 2.0


def test_of_earlier_attempts_little_is_parsed(job, parsed):
    job.add(*AGAIN, *AGAIN, e.FirstOutput(1007.0, 0, 0))
    attempt_starts.read_starts(job.folder)
    assert sum(b"RankStarted" in line for line in parsed) == 1
    parsed.clear()
    outcome.fold_events(job.folder)
    assert not [line for line in parsed if b"RankExited" in line or b"FirstOutput" in line]


def test_events_that_say_nothing_of_a_start_are_not_parsed(job, parsed):
    job.add(*(e.JobWarned(1005.0, "slow", "slow") for _ in range(20)))
    attempt_starts.read_starts(job.folder)
    assert not [line for line in parsed if b"JobWarned" in line]
