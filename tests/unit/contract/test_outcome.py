"""Status, reason and timeline as one fold over events."""

import pytest

from drumline.contract import events as e
from drumline.contract.outcome import fold

START = [
    e.JobSubmitted(1.0, "ann"),
    e.JobWaiting(2.0, "waiting for 2 of 4 cores held by job x"),
    e.JobPreparing(3.0),
    e.JobStarting(4.0),
    e.AgentJoined(4.5, 0, 11, "127.0.0.1"),
    e.RankStarted(5.0, 0, 0, 12),
    e.JobRunning(5.1),
    e.RankExited(6.0, 0, 0, 0, None),
    e.JobFinalizing(6.1),
    e.JobEnded(6.2, "Completed", 0, "its only rank ended with exit code 0"),
]


def test_every_status_in_turn():
    seen = [fold(START[:count]).status for count in range(1, len(START) + 1)]
    assert seen == [
        "NotStarted",
        "Queued",
        "Preparing",
        "Starting",
        "Starting",
        "Starting",
        "Running",
        "Running",
        "Finalizing",
        "Completed",
    ]


def test_why_it_waits_is_said_only_while_it_waits():
    assert fold(START[:2]).reason == "waiting for 2 of 4 cores held by job x"
    assert fold(START[:3]).reason == ""


def test_times_and_ranks():
    outcome = fold(START)
    assert (outcome.created, outcome.started, outcome.ended) == (1.0, 5.0, 6.2)
    rank = outcome.ranks[0]
    assert (rank.node, rank.pid, rank.started, rank.ended, rank.code, rank.state) == (
        0,
        12,
        5.0,
        6.0,
        0,
        "done",
    )
    assert outcome.agents == {0: 11}


def test_ranks_of_a_lost_node_run_no_more():
    events = [*START[:5], *(e.RankStarted(5.0, rank, rank, 20 + rank) for rank in range(3))]
    outcome = fold([*events, e.RankExited(6.0, 2, 2, 1, None), e.NodeLost(7.0, 1, "was killed by SIGKILL")])
    assert [outcome.ranks[rank].state for rank in range(3)] == ["running", "lost", "exit 1"]
    assert outcome.ranks[1].lost == 7.0
    # Nobody is left who would see their end.
    outcome = fold([e.JobEnded(8.0, "Failed", 1, "its supervisor was killed")], outcome)
    assert [outcome.ranks[rank].state for rank in range(3)] == ["lost", "lost", "exit 1"]
    assert (outcome.ranks[0].lost, outcome.ranks[1].lost) == (8.0, 7.0)


def test_a_job_started_with_the_rank_that_was_first_not_with_the_one_heard_of_first():
    events = [
        *START[:5],
        e.RankStarted(66.0, 1, 0, 13),
        e.RankStarted(24.9, 0, 0, 12),
        e.RankStarted(30.0, 2, 0, 14),
    ]
    assert fold(events).started == 24.9


@pytest.mark.parametrize(
    "late",
    [
        e.JobEnded(9.0, "Failed", 1, "its supervisor was killed"),
        e.CancelRequested(9.0, "ann"),
        e.JobRunning(9.0),
        e.JobWaiting(9.0, "x"),
    ],
)
def test_the_terminal_status_never_changes_again(late):
    outcome = fold([*START, late])
    assert (outcome.status, outcome.exit_code) == ("Completed", 0)
    assert outcome.reason == "its only rank ended with exit code 0"


def test_an_ended_job_can_be_archived_restored_and_edited():
    outcome = fold([*START, e.JobArchived(7.0), e.JobEdited(8.0, {"display_name": "b"})])
    assert (outcome.archived, outcome.edits) == (True, {"display_name": "b"})
    assert not fold([*START, e.JobArchived(7.0), e.JobRestored(8.0)]).archived


@pytest.mark.parametrize("event", START)
def test_an_event_survives_the_way_to_disk_and_back(event):
    back = e.from_line(e.to_line(event))
    assert (type(back), back) == (type(event), event)


@pytest.mark.parametrize(
    "line",
    [b"", b"{", b"[]", b"1", b'{"type": "JobDanced", "time": 1}', b'{"type": "JobRunning"}', b"\xff\n"],
)
def test_a_line_that_is_no_event_of_this_version_is_left_out(line):
    assert e.from_line(line) is None


def test_a_field_of_a_newer_version_is_left_out():
    assert e.from_line(b'{"type": "JobRunning", "time": 1.0, "new": 2}') == e.JobRunning(1.0)
