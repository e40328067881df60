"""The start of an attempt: phases as one fold over events, and what is made of them for people."""

import pytest

from drumline.cli.views import show
from drumline.contract import events as e
from drumline.contract.errors import NotFoundError, UsageError
from drumline.contract.folder import RunFolder
from drumline.contract.outcome import fold
from drumline.control.facts import start

START = [
    e.JobSubmitted(100.0, "ann"),
    e.JobWaiting(100.1, "waiting for 4 cores"),
    e.JobWaiting(100.5, "waiting for 2 cores"),
    e.JobPreparing(101.1),
    e.Transferred(101.9, "inputs.digits", "https://example.org/digits", 10, 1, seconds=0.7),
    e.EnvironmentReady(104.0, "abc", "/env", 2.8),
    e.JobStarting(104.1),
    e.AgentJoined(104.2, 0, 11, "127.0.0.1"),
    e.AgentJoined(104.3, 1, 12, "127.0.0.2"),
    e.WarmStart(105.4, 0, 104.3, False, 0.9, ["torch", "numpy"], "train.py:12: os.environ.update(...)"),
    e.WarmStart(104.31, 1, 104.3, True, 1.0, ["torch", "numpy"]),
    e.RankStarted(105.5, 0, 0, 21),
    e.RankStarted(105.6, 1, 1, 22),
    e.JobRunning(105.7),
    e.FirstOutput(105.8, 0, 0),
    e.FirstOutput(105.9, 1, 1),
    e.GroupFormed(106.0, 0, 0, "gloo"),
    e.GroupFormed(106.2, 1, 1, "gloo"),
]
AGAIN = [
    e.RankExited(110.0, 1, 1, 1, None),
    e.JobStopping(110.1, "rank 1 failed"),
    e.RankExited(110.4, 0, 0, None, 15),
    e.AttemptEnded(110.5, 0, 1, "rank 1 on node 1 failed first: \x1b]0;title\x07ValueError", 1, 1),
    e.JobStarting(110.6),
    e.AgentJoined(110.8, 0, 31, "127.0.0.1"),
    e.RankStarted(111.0, 0, 0, 41),
    e.JobRunning(111.1),
]
OLDER = [one for one in START if not isinstance(one, (e.WarmStart, e.FirstOutput, e.GroupFormed))]


def told_of(events, attempt=-1):
    starts = start.fold(events)
    folder, outcome = RunFolder("/jobs/job"), fold(events)
    return start.describe_attempt(start.FoundStart(folder, outcome, starts[attempt], starts))


def spans(told):
    return {one.phase: (one.from_s, one.to_s) for one in told.phases}


def test_every_phase_has_its_seconds_since_the_submission():
    told = told_of(START)
    expected = {
        "submitted": (0.0, 0.1),
        "in line": (0.1, 1.1),
        "preparing": (1.1, 4.1),
        "environment": (1.2, 4.0),
        "inputs.digits": (1.2, 1.9),
        "agents joined": (4.2, 4.3),
        "imports": (4.3, 5.4),
        "ranks started": (5.5, 5.6),
        "all running": (5.7, 5.7),
        "first output": (5.8, 5.9),
        "process group": (6.0, 6.2),
    }
    assert list(spans(told)) == list(expected)
    for name, span in spans(told).items():
        assert span == pytest.approx(expected[name], abs=1e-5), name
    rank = told.ranks[1]
    assert (rank.node, rank.backend, told.total_s) == (1, "gloo", pytest.approx(6.2))
    assert [one.warm.reused for one in told.nodes] == [False, True]


def test_what_took_longest_is_named_with_its_largest_part():
    told = told_of(START)
    assert told.longest == ("preparing", pytest.approx(3.0), None)
    assert show.render_start(told).endswith(
        "What took longest: preparing code, data and environment, 3.000 s of 6.200 s (48 %)."
        " Of that, environment took 2.800 s.\n"
    )


def test_a_first_output_long_after_the_group_is_no_part_of_the_start():
    told = told_of(
        [*OLDER, e.GroupFormed(106.2, 0, 0), e.GroupFormed(106.2, 1, 1), e.FirstOutput(900.0, 0, 0)]
    )
    assert told.total_s == pytest.approx(6.2)


def test_the_text_fits_its_columns_and_has_a_bar_a_phase():
    lines = show.render_start(told_of(START), 80).splitlines()
    assert lines[0] == "job job, 2 ranks on 2 nodes"
    bars = [line for line in lines if line.endswith("=")]
    assert len(bars) == 11
    assert max(map(len, bars)) <= 80
    assert any(line.startswith("process group") and ".=" in line for line in bars)
    assert "    waiting for 2 cores" in lines
    assert "    imported: torch, numpy" in lines
    assert "imported ahead up to train.py:12: os.environ.update(...)" in lines


def test_a_later_attempt_begins_with_what_ended_the_one_before():
    told = told_of([*START, *AGAIN])
    assert (told.attempt, told.attempts, told.since_submission_s) == (1, 2, pytest.approx(10.0))
    found = spans(told)
    assert found["attempt ended"] == pytest.approx((0.0, 0.5))
    assert found["ranks started"] == pytest.approx((1.0, 1.0))
    text = show.render_start(told)
    assert "attempt 1 of 0-1, 1 rank on 1 node\n" in text
    assert "because rank 1 on node 1 failed first: ValueError\n" in text
    assert told_of([*START, *AGAIN], 0).total_s == pytest.approx(6.2)


def test_an_older_job_shows_what_there_is():
    text = show.render_start(told_of(OLDER))
    assert "process group" not in text
    assert "all running" in text


@pytest.mark.parametrize("count", range(1, len(START)))
def test_a_start_that_goes_on_can_be_shown_at_any_time(count):
    told = told_of(START[:count])
    assert show.render_start(told).startswith("job job")
    assert ("so far" in show.render_start(told)) == (e.JobRunning not in map(type, START[:count]))
    if count < 4:
        assert [one.to_s for one in told.phases][-1] is None
        assert "..." in show.render_start(told)


def test_ranks_that_are_not_started_yet_are_waited_for():
    told = told_of(START[:9])
    last = told.phases[-1]
    assert (last.phase, last.from_s, last.to_s) == ("ranks started", pytest.approx(4.3), None)
    assert told.longest.phase == "ranks started"


def test_a_phase_that_was_cut_off_ended_with_the_job():
    told = told_of([*START[:2], e.JobEnded(100.9, "Canceled", 130, "canceled by ann")])
    assert spans(told)["in line"] == pytest.approx((0.1, 0.9))
    told = told_of([*START[:9], e.JobEnded(109.0, "Failed", 1, "no port")])
    assert told.phases[-1].note == "cut off"
    assert spans(told)["ranks started"] == pytest.approx((4.3, 9.0))


def test_ranks_that_are_missing_are_counted_and_slow_ones_named():
    events = [*OLDER, *(e.RankStarted(105.5, rank, 1, 30 + rank) for rank in (2, 3))]
    events += [e.FirstOutput(106.0 + (5.0 if rank == 2 else 0.0), rank, 1) for rank in range(3)]
    text = show.render_start(told_of(events))
    assert "1 rank not yet, or not seen" in text
    assert "slow: rank 2 on node 1: started 5.500, first output 11.000\n" in text
    assert text.endswith("Rank 2 was last.\n")


def test_why_ranks_were_started_cold_is_said_once_and_cleaned():
    declined = e.WarmDeclined(104.4, 0, "live threads:\n\x1b[2Jjava", asked=True)
    text = show.render_start(told_of([*OLDER, declined, declined]))
    assert text.count("node 0: started without shared imports: live threads: java\n") == 1


def test_a_pipeline_has_jobs_that_have_timelines(drumline_home):
    folder = RunFolder.for_job("pipes")
    folder.create()
    folder.append(e.JobSubmitted(1.0, "ann", kind="pipeline"))
    folder.append(e.JobEnded(2.0, "Completed", 0, "done"))
    with pytest.raises(UsageError, match="job pipes is a pipeline: it has jobs"):
        start.describe_start("pipes")
    with pytest.raises(NotFoundError):
        start.describe_start("pipe")
