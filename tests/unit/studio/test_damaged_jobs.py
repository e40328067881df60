"""Jobs whose files are damaged: the list, the news and the answers about others go on."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from made_jobs import MadeJob
from waiting import PATIENCE

from drumline.contract import events as e
from drumline.control.facts import jobs, metrics
from drumline.control.facts.job_table import JobTable, RowFigures, _read_spark, find_page
from drumline.control.facts.jobs import JobFilters, describe_row
from drumline.control.times import utc
from drumline.tracking import metrics as metric_files

starlette = pytest.importorskip("starlette")

from drumline.studio.live_streams import Live  # noqa: E402


def test_a_job_that_cannot_be_read_does_not_hide_the_others(drumline_home, monkeypatch):
    MadeJob("bad")
    MadeJob("good")
    look = jobs._look

    def fail(folder, outcome):
        if folder.name == "bad":
            raise AttributeError("'int' object has no attribute 'get'")
        return look(folder, outcome)

    monkeypatch.setattr(jobs, "_look", fail)
    table = JobTable()
    page = find_page(table, JobFilters())
    rows = {row.name: row for row in map(describe_row, page.jobs)}
    assert rows.keys() == {"bad", "good"}
    assert "damaged" in rows["bad"].sentence
    assert RowFigures(table).describe(page.jobs, sparks=True)


def test_a_look_that_fails_is_not_the_last_one(capsys):
    loop: Any = None

    class Table:
        version = 0
        looks = 0
        went_on = asyncio.Event()

        def refresh(self):
            self.looks += 1
            if self.looks == 4:
                loop.call_soon_threadsafe(self.went_on.set)
            if self.looks > 1:
                raise TypeError("unorderable")

        def changes_since(self, version):
            raise AssertionError

    class Tables:
        table = Table()

        def here(self):
            return self

    async def watch():
        nonlocal loop
        loop = asyncio.get_running_loop()
        live = Live(Tables())
        stream = await live.open("", [], "")
        async with asyncio.timeout(20.0 * PATIENCE):
            await Tables.table.went_on.wait()
        live.leave(stream._viewer)
        await live._task

    asyncio.run(watch())
    assert capsys.readouterr().err.count("unorderable") == 1


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), 1e300, "x", 10**30, -1e300])
def test_what_is_no_time_is_none(seconds):
    assert utc(seconds) is None


_TIMES = (b'"x"', b"1e300", b"NaN", b"Infinity", b"null", b"true", b"[]", b"-1", b"1" + b"0" * 30)


@pytest.mark.parametrize(
    "line",
    [
        b"[" * 100_000,
        b'{"a":' * 100_000,
        *(b'{"type":"JobSubmitted","time":%s,"user":"ann"}' % bad for bad in _TIMES),
        b'{"type":"JobSubmitted","time":1.0,"user":7}',
        b'{"type":"AgentJoined","time":1.0,"node":[],"pid":1,"host":"a"}',
        b'{"type":"RankStarted","time":1.0,"rank":"0","node":0,"pid":1}',
        b'{"type":"RankStarted","time":1.0,"rank":1e3,"node":0,"pid":1}',
        b'{"type":"RankStarted","time":1.0,"rank":1' + b"0" * 30 + b',"node":0,"pid":1}',
        b'{"type":"JobPruned","time":1.0,"parts":[1]}',
        b'{"type":"JobEnded","time":1.0,"status":"Failed","exit_code":1,"reason":"","verdict":[1]}',
        b'{"type":["JobEnded"],"time":1.0}',
    ],
    ids=lambda line: line[:60].decode(),
)
def test_a_damaged_line_is_no_event(line):
    assert e.from_line(line) is None


def test_events_of_the_running_version_pass():
    for line in Path(__file__).parents[2].glob("homes/*/jobs/*/events.jsonl"):
        for one in line.read_bytes().splitlines():
            assert e.from_line(one) is not None, json.loads(one)


def test_the_curve_of_a_row_is_read_without_a_look_at_other_runs(drumline_home, monkeypatch):
    job = MadeJob("own")
    job.track()
    for step in range(3):
        metric_files.log_value(job.run_dir, "loss", 3.0 - step, step)
    monkeypatch.setattr(metrics.MetricsReader, "look", lambda *_: pytest.fail("looked"))
    assert _read_spark("own", "loss") == [3.0, 2.0, 1.0]
    monkeypatch.setattr(metrics.MetricsReader, "look", lambda *_: metrics.FoundMetrics([], 0))
    assert _read_spark("own", "accuracy") == _read_spark("own", "../loss") == []
