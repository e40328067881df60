"""What a job can write to its own run folder, or a request can hold, to stop the studio."""

import json
import os

import pytest
import yaml
from made_jobs import MadeJob

from drumline.contract import events as e
from drumline.contract.errors import DamagedError, DrumlineError, UsageError
from drumline.contract.plan import Plan
from drumline.control.comparing import compare_jobs
from drumline.control.facts import parts
from drumline.control.facts.changes import EVENT, Message, describe_event
from drumline.control.facts.job_table import JobTable
from drumline.control.jobs import lookup

pytest.importorskip("starlette")

from drumline.studio import live_streams
from drumline.studio.queries import Reader


@pytest.mark.parametrize(
    "damage",
    [
        lambda plan: "[" * 200_000,
        lambda plan: "[]",
        *(
            lambda plan, field=field, value=value: json.dumps({**plan, field: value})
            for field in ("job", "env", "user_env", "nodes", "cwd", "compute", "build")
            for value in (7, ["x"])
        ),
    ],
)
def test_a_damaged_plan_is_one_sentence(drumline_home, damage):
    job = MadeJob("bad")
    plan = json.loads(job.plan.to_json())
    job.folder.write(job.folder.plan, damage(plan))
    with pytest.raises(DrumlineError, match="the plan"):
        Plan.read(job.folder.plan)
    with pytest.raises(DrumlineError, match="of job bad cannot be read"):
        lookup.read_plan(job.folder)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 1_000_000,
        "{a: " * 1_000_000,
        "- " * 1_000_000,
        "a: 2026-99-99",
        "a: !!timestamp 99",
        '"\\ud800"',
        "[",
    ],
    ids=lambda text: text[:10],
)
def test_a_job_file_that_cannot_be_read_is_empty(drumline_home, text):
    job = MadeJob("bad")
    job.folder.write(job.folder.job, text)
    assert lookup.read_spec(job.folder) == {}


def test_a_job_file_with_many_brackets_is_read():
    given = {"command": "[" * 1000, "tags": {f"t{index}": [] for index in range(200)}}
    assert lookup.load_yaml(yaml.safe_dump(given).encode()) == given


def test_run_folders_of_others_are_not_listed(drumline_home, monkeypatch):
    MadeJob("mine")
    other = MadeJob("other")
    other.add(e.JobWaiting(1.0, "secret plans"))
    assert lookup.is_own(other.folder)
    own = os.geteuid()
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: own + 1)
        assert not lookup.is_own(other.folder)
    for module in ("drumline.control.facts.job_table", "drumline.control.facts.parts"):
        monkeypatch.setattr(f"{module}.is_own", lambda folder: folder.name != "other")
    table = JobTable()
    table.refresh()
    assert [job.name for job in table.overviews()] == ["mine"]
    sweep = MadeJob("sweep")
    sweep.add(e.JobSubmitted(2.0, "ann", kind="sweep"), e.StepStarted(3.0, "one", "other"))
    told = parts.list_trials(sweep.folder, lookup_outcome(sweep))
    assert "secret" not in json.dumps(told)


def lookup_outcome(job):
    from drumline.contract.outcome import fold

    return fold(job.folder.read_events())


def test_an_object_in_a_body_has_few_levels():
    nested = []
    for _ in range(900):
        nested = [nested]
    with pytest.raises(UsageError, match="more than 64 levels"):
        Reader({"set": {"tags": nested}}).mapping("set")
    assert Reader({"set": {"tags": [{"a": [1]}]}}).mapping("set") == {"tags": [{"a": [1]}]}


@pytest.mark.parametrize("mark", ["-9", str(10**30)])
def test_a_cursor_outside_of_a_file_is_none(mark):
    assert live_streams.parse_cursor(f"{live_streams._EPOCH}.1|job:{mark}") is None
    assert live_streams.parse_cursor(f"{live_streams._EPOCH}.1|job:7") == live_streams.Cursor(1, {"job": 7})


def test_what_waits_for_a_viewer_is_limited_in_bytes():
    viewer = live_streams.Viewer("", ["job"])
    (packed,) = live_streams.pack([Message(EVENT, {"text": "x" * 100_000}, "job", 1)])
    for _ in range(20):
        viewer.put(packed)
    assert viewer.is_behind
    assert viewer.queue.qsize() == 10
    again = live_streams.Viewer("", ["job"])
    for _ in range(20):
        again.put(packed)
        again.to_bytes(again.queue.get_nowait())
    assert not again.is_behind


def test_a_long_reason_is_cut_wherever_it_is_and_a_large_list_left_out():
    told = describe_event(1, e.JobWaiting(1.0, "x" * 100_000))
    assert len(told["text"]) == len(told["reason"]) == 4096
    changes = describe_event(1, e.JobEdited(1.0, {"tags": {"a": "x" * 100_000}, "list": ["x"] * 10_000}))[
        "changes"
    ]
    assert (len(changes["tags"]["a"]), changes["list"]) == (4096, [])


def test_a_comparison_with_a_damaged_job_is_one_sentence(drumline_home):
    MadeJob("good")
    job = MadeJob("bad")
    plan = json.loads(job.plan.to_json())
    job.folder.write(job.folder.plan, json.dumps({**plan, "env": 7}))
    with pytest.raises(DamagedError, match="a file of job bad or good is damaged"):
        compare_jobs("bad", "good")
