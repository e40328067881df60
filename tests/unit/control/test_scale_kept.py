"""The report of drumline scale in the run folders of its jobs."""

import json

import pytest
from made_jobs import MadeJob

from drumline.contract.errors import DamagedError, NotFoundError
from drumline.control.measure.scale_values import keep_report, read_report

ROW = {"nodes": 1, "ranks": 2, "job": "one", "refused": "", "step_s": 0.1, "low_s": 0.09, "high_s": 0.11}
PHASES = {
    "input": 0.01,
    "forward": 0.03,
    "backward": 0.04,
    "exchange": 0.01,
    "waiting": 0.005,
    "other": 0.005,
}
VALUES = {
    "job": "<b>digits</b>",
    "scaling": "weak",
    "measured": [
        {**ROW, "speed_up": 1.0, "efficiency": 1.0, "phases": PHASES},
        {**ROW, "nodes": 2, "ranks": 4, "job": "two", "step_s": None, "refused": "it hung"},
        {**ROW, "nodes": 4, "ranks": 8, "job": "removed"},
    ],
    "predicted": [{**ROW, "nodes": 8, "job": None, "speed_up": 3.0, "efficiency": 0.375, "guess": True}],
    "sentences": ["1 node: fine"],
}


def test_each_job_of_a_report_leads_to_it(drumline_home):
    jobs = [MadeJob(name, nodes=1) for name in ("one", "two", "other")]
    keep_report(VALUES)
    told = read_report("two")
    assert told == read_report("one")
    assert (told["title"], told["sentences"]) == ("<b>digits</b>", ["1 node: fine"])
    assert [one["job"] for one in told["measured"]] == ["one", "two", "removed"]
    assert [one["key"] for one in told["measured"][0]["phases"]] == [
        *("input", "forward", "backward", "exchange", "waiting", "other")
    ]
    assert told["predicted"][0]["is_guess"]
    with pytest.raises(NotFoundError, match="not measured"):
        read_report(jobs[-1].name)
    assert not (drumline_home / "jobs" / "removed").exists()


def test_a_report_that_is_damaged_is_told(drumline_home):
    job = MadeJob("one", nodes=1)
    job.folder.write(job.folder.scale, json.dumps({"measured": 3}))
    with pytest.raises(DamagedError, match=r"scale\.json of job one is damaged"):
        read_report("one")
