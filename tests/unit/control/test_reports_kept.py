"""The table of a rehearsal in the run folders of its jobs, and the list of all reports of a home."""

import json
import os

import pytest
from made_jobs import MadeJob

from drumline.contract.errors import DamagedError, NotFoundError
from drumline.control.measure.rehearsal import keep_table, list_tables, read_table
from drumline.control.measure.scale_values import keep_report, list_scalings

CALM = {
    "job": "calm",
    "status": "Completed",
    "seconds": 4.0,
    "metric": "loss",
    "final": 0.25,
    "sentences": [],
}
DRILL = {
    "drill": "kill",
    "what": "kill on rank 1",
    "job": "killed",
    "result": "survived",
    "is_ok": True,
    "lost_s": 2.5,
    "repeated": 3,
    "same_metric": True,
    "left_behind": [],
    "sentences": ["rank 1 was killed"],
}
TABLE = {"ok": True, "undisturbed": CALM, "drills": [DRILL], "left_out": ["wedge: one node"]}
SIZE = {"nodes": 1, "ranks": 2, "job": "one", "refused": "", "efficiency": 1.0}
REPORT = {
    "job": "digits",
    "scaling": "weak",
    "measured": [SIZE, {**SIZE, "nodes": 2, "job": "two", "efficiency": 0.8}],
    "predicted": [],
    "sentences": [],
}


def test_each_job_of_a_rehearsal_leads_to_its_table(drumline_home):
    for name in ("calm", "killed", "other"):
        MadeJob(name, nodes=1)
    keep_table("<b>digits</b>", TABLE)
    told = read_table("killed")
    assert told == read_table("calm")
    assert (told["title"], told["ok"], told["left_out"]) == ("<b>digits</b>", True, ["wedge: one node"])
    assert told["undisturbed"] == CALM
    assert told["drills"] == [{**DRILL, "ok": True}]
    with pytest.raises(NotFoundError, match="ran for no rehearsal"):
        read_table("other")


@pytest.mark.parametrize("table", ["[", {"undisturbed": 7}, {**TABLE, "title": "x", "drills": [7]}])
def test_a_table_that_is_damaged_is_told_and_not_listed(drumline_home, table):
    job = MadeJob("calm", nodes=1)
    job.folder.write(job.folder.rehearsal, table if isinstance(table, str) else json.dumps(table))
    with pytest.raises((DamagedError, NotFoundError)):
        read_table("calm")
    assert list_tables() == []


def test_a_report_is_listed_once_and_the_newest_first(drumline_home):
    jobs = {name: MadeJob(name, nodes=1).folder for name in ("one", "two", "again", "calm", "killed")}
    keep_report(REPORT)
    keep_report({**REPORT, "job": "later", "measured": [{**SIZE, "job": "again", "refused": "it hung"}]})
    keep_table("digits", TABLE)
    for name, at in (("one", 1000), ("two", 1000), ("again", 2000), ("calm", 3000)):
        path = jobs[name].rehearsal if name == "calm" else jobs[name].scale
        os.utime(path, (at, at))
    assert list_scalings() == [
        {
            "job": "again",
            "title": "later",
            "scaling": "weak",
            "nodes": [1],
            "efficiency": 1.0,
            "refused": 1,
            "made": "1970-01-01T00:33:20.000Z",
        },
        {
            "job": "one",
            "title": "digits",
            "scaling": "weak",
            "nodes": [1, 2],
            "efficiency": 0.8,
            "refused": 0,
            "made": "1970-01-01T00:16:40.000Z",
        },
    ]
    assert list_tables() == [
        {
            "job": "calm",
            "title": "digits",
            "ok": True,
            "drills": 1,
            "survived": 1,
            "made": "1970-01-01T00:50:00.000Z",
        }
    ]


def test_a_report_is_listed_with_a_job_that_is_still_there(drumline_home):
    MadeJob("two", nodes=1)
    keep_report(REPORT)
    assert [one["job"] for one in list_scalings()] == ["two"]
