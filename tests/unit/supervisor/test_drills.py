"""When drills begin and end, and what becomes of requests that nobody has checked."""

import json
import os

import pytest
from planning import plan
from waiting import wait_until

from drumline.contract import events as e
from drumline.contract.drill_kinds import DrillRequest, read_request
from drumline.contract.folder import RunFolder, private_folder
from drumline.contract.messages import DrillTaken
from drumline.contract.outcome import fold
from drumline.spec.parts.resources import PyTorchDistribution
from drumline.supervisor.drills import Drills, explain_refusal, explain_target


class Performer:
    """Notes what it is to do; agents are asked for wedges."""

    def __init__(self):
        self.done = []

    def complete(self, request):
        return request

    def begin(self, request):
        self.done.append(("begin", request.kind, request.node, request.rank))
        return "it is gone" if request.kind == "fill-disk" else ""

    def end(self, request):
        self.done.append(("end", request.kind, request.node, request.rank))


@pytest.fixture
def two_by_two():
    return plan(distribution=PyTorchDistribution(process_count_per_instance=2))


class Attempt:
    def __init__(self, path, plan):
        self.folder = RunFolder(str(path))
        self.start = None
        self.performer = Performer()
        self.events = []
        self.drills = Drills(self.folder, plan, 0, lambda: self.start, self.performer, self.events.append)

    def ask(self, name, **fields):
        private_folder(self.folder.drills)
        path = os.path.join(self.folder.drills, f"{name}.json")
        self.folder.write(path, json.dumps({"by": "ann", **fields}))

    def run(self):
        self.start = 0.0
        self.drills.poll()


@pytest.fixture
def attempt(tmp_path, two_by_two):
    return Attempt(tmp_path, two_by_two)


def test_a_drill_waits_for_the_ranks_and_is_performed_once(attempt):
    attempt.ask("one", kind="kill-agent", node=1)
    attempt.drills.poll()
    assert attempt.performer.done == []
    assert list(attempt.drills.list_times()) == []
    attempt.run()
    attempt.drills.poll()
    assert attempt.performer.done == [("begin", "kill-agent", 1, None)]
    (event,) = attempt.events
    assert (event.kind, event.node, event.by, event.attempt) == ("kill-agent", 1, "ann", 0)
    assert os.listdir(attempt.folder.drills) == []


def test_a_drill_of_an_agent_begins_with_its_answer_and_ends_with_the_attempt(attempt):
    attempt.ask("one", kind="wedge", rank=3)
    attempt.run()
    assert attempt.events == []
    attempt.drills.take_answer(DrillTaken("one", ""))
    attempt.drills.take_answer(DrillTaken("one", ""))
    attempt.drills.finish()
    began, ended = attempt.events
    assert (type(began), began.node, began.rank) == (e.DrillBegan, 1, 3)
    assert (type(ended), ended.reason, ended.refused) == (e.DrillEnded, "its attempt ended", False)
    assert attempt.performer.done == [("begin", "wedge", 1, 3), ("end", "wedge", 1, 3)]


def test_a_drill_that_an_agent_cannot_make_is_refused_in_its_words(attempt):
    attempt.ask("one", kind="wedge", node=0)
    attempt.run()
    attempt.drills.take_answer(DrillTaken("one", "its ranks do not run"))
    attempt.drills.finish()
    (event,) = attempt.events
    assert (event.refused, event.reason) == (True, "its ranks do not run")
    (drill,) = fold(attempt.events).drills.values()
    assert (drill.began, drill.reason) == (None, "its ranks do not run")


def test_what_cannot_be_is_refused(attempt):
    attempt.ask("one", kind="clock", node=0)
    attempt.ask("two", kind="fill-disk", node=0)
    attempt.run()
    assert [one.refused for one in attempt.events] == [True, True]
    clock, disk = fold(attempt.events).drills.values()
    assert (clock.began, disk.began, disk.reason) == (None, None, "it is gone")
    assert clock.reason.startswith("its nodes share the clock of this machine")


def test_a_drill_with_a_time_is_due_then_and_lasts_as_long_as_it_is_to(attempt):
    attempt.ask("late", kind="kill-agent", node=0, after_s=1000.0)
    attempt.ask("one", kind="wedge", node=0, for_s=0.01)
    attempt.run()
    assert attempt.performer.done == [("begin", "wedge", 0, None)]
    attempt.drills.take_answer(DrillTaken("one", ""))
    (late, soon) = attempt.drills.list_times()
    assert late - soon > 900

    def end():
        attempt.drills.poll()
        return attempt.performer.done[1:]

    assert wait_until(end, 20) == [("end", "wedge", 0, None)]
    assert attempt.events[-1].reason == "its time was over"


def test_a_drill_ends_in_time_while_its_attempt_is_ended(attempt):
    """An agent that is stopped could not end its ranks."""
    attempt.ask("one", kind="wedge-agent", node=0, for_s=0.01)
    attempt.run()
    attempt.ask("late", kind="kill-agent", node=0)
    attempt.start = None
    assert len(list(attempt.drills.list_times())) == 1

    def end():
        attempt.drills.poll()
        return attempt.performer.done[1:]

    assert wait_until(end, 20) == [("end", "wedge-agent", 0, None)]
    assert attempt.events[-1].reason == "its time was over"
    assert list(attempt.drills.list_times()) == []


def test_an_end_ends_those_too_that_have_not_begun(attempt):
    attempt.ask("late", kind="kill-agent", node=0, after_s=1000.0)
    attempt.ask("one", kind="wedge", node=0)
    attempt.run()
    attempt.drills.take_answer(DrillTaken("one", ""))
    attempt.ask("stop", kind="end")
    attempt.drills.poll()
    ends = {one.drill: (one.reason, one.refused) for one in attempt.events if isinstance(one, e.DrillEnded)}
    assert ends == {"late": ("ended by ann before it began", True), "one": ("ended by ann", False)}
    assert os.listdir(attempt.folder.drills) == []


DAMAGED = [
    {},
    {"kind": "kill-everything"},
    {"kind": ["kill-rank"]},
    {"kind": "kill-rank", "rank": -1},
    {"kind": "kill-rank", "rank": True},
    {"kind": "kill-rank", "rank": "1"},
    {"kind": "wedge", "for_s": float("nan")},
    {"kind": "wedge", "for_s": "20s"},
    {"kind": "wedge", "after_s": 1e300},
]


@pytest.mark.parametrize("data", DAMAGED)
def test_a_request_that_is_none_is_removed_and_nothing_else(attempt, data):
    """A job can write to its run folder."""
    assert read_request("one", data) is None
    attempt.ask("one", **data)
    attempt.run()
    assert (attempt.events, attempt.performer.done, os.listdir(attempt.folder.drills)) == ([], [], [])


def test_a_request_is_read_as_it_was_written():
    data = {"kind": "wedge", "by": "ann", "node": 1, "for_s": 2, "settings": {"loss": "5%"}}
    assert read_request("one", data) == DrillRequest(
        "one", "wedge", "ann", node=1, for_s=2, settings={"loss": "5%"}
    )


@pytest.mark.parametrize(
    ("engine", "kind", "reason"),
    [
        ("local", "kill-rank", ""),
        ("local", "fill-disk", ""),
        ("local", "clock", "clock of this machine"),
        ("local", "slow-link", "network of this machine"),
        ("local", "slow-cpu", "processors and the memory of this machine"),
        ("slurm", "preempt", ""),
        ("slurm", "wedge", ""),
        ("slurm", "clock", "not Drumline's to set"),
        ("slurm", "partition", "Slurm's, and other jobs use it"),
        ("slurm", "fill-disk", "Slurm's, and other jobs use them"),
        ("slurm", "memory", "Slurm's, and other jobs use them"),
        ("slurm", "wedge-agent", "the agents of its nodes are Slurm's"),
        ("local", "wedge-agent", ""),
        ("kubernetes", "preempt", "do not reach pods"),
    ],
)
def test_each_engine_has_the_drills_that_make_sense_there(two_by_two, engine, kind, reason):
    said = explain_refusal(kind, two_by_two._replace(engine=engine))
    assert bool(said) == bool(reason)
    assert reason in said


def test_ranks_in_containers_are_not_stopped(two_by_two):
    said = explain_refusal("wedge", two_by_two._replace(container={"kind": "podman"}))
    assert "containers" in said


@pytest.mark.parametrize(
    ("kind", "node", "rank", "said"),
    [
        ("kill-rank", None, 3, ""),
        ("kill-rank", 1, 3, ""),
        ("kill-rank", 0, 3, "rank 3 is not on node 0"),
        ("kill-rank", None, 4, "the job has no rank 4"),
        ("kill-agent", 2, None, "the job has no node 2"),
        ("kill-agent", None, None, "it needs a node"),
        ("preempt", None, None, ""),
        ("preempt", None, 1, "it is about a node, not about rank 1"),
    ],
)
def test_a_drill_is_about_something_that_the_job_has(two_by_two, kind, node, rank, said):
    assert explain_target(kind, two_by_two, node, rank) == said
