"""The viewers of the studio's stream."""

import asyncio

import pytest
from made_jobs import MadeJob

from drumline.contract.errors import EngineError
from drumline.control.facts import job_table
from drumline.studio import tables
from drumline.studio.live_streams import EventStream, Live


def test_no_more_viewers_come_in_together_than_one_after_another(drumline_home):
    (drumline_home / "jobs").mkdir(parents=True)

    async def open_many():
        live = Live(tables.Tables())
        found = await asyncio.gather(*(live.open("", [], "") for _ in range(60)), return_exceptions=True)
        streams = [one for one in found if isinstance(one, EventStream)]
        assert len(streams) == 50
        assert all(isinstance(one, (EventStream, EngineError)) for one in found)
        for one in streams:
            live.leave(one._viewer)
        assert isinstance(await live.open("", [], ""), EventStream)

    asyncio.run(open_many())


def test_a_viewer_that_goes_before_the_first_word_is_no_viewer_any_more(drumline_home):
    (drumline_home / "jobs").mkdir(parents=True)

    async def go_early():
        live = Live(tables.Tables())
        stream = await live.open("", [], "")

        async def send(_message):
            raise OSError("gone")

        async def receive():
            return {"type": "http.disconnect"}

        with pytest.raises(OSError, match="gone"):
            await stream({"type": "http"}, receive, send)
        assert live._viewers == set()

    asyncio.run(go_early())


def test_jobs_are_looked_at_before_somebody_asks(drumline_home, monkeypatch):
    monkeypatch.setattr(job_table, "_CHUNK", 2)
    monkeypatch.setattr(job_table, "_ENOUGH_S", 0.0)
    names = [MadeJob(f"job_{number}").folder.name for number in range(5)]
    made = tables.Tables()
    asyncio.run(tables.fill(made))
    assert {job.name for job in made.here().table.overviews()} == set(names)


def test_a_home_without_jobs_is_looked_at_once(drumline_home):
    asyncio.run(tables.fill(tables.Tables()))
