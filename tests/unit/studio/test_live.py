"""The viewers of the studio's stream."""

import asyncio

import pytest

from drumline.contract.errors import EngineError
from drumline.studio.live import EventStream, Live
from drumline.studio.tables import Tables


def test_no_more_viewers_come_in_together_than_one_after_another(drumline_home):
    (drumline_home / "jobs").mkdir(parents=True)

    async def open_many():
        live = Live(Tables())
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
        live = Live(Tables())
        stream = await live.open("", [], "")

        async def send(_message):
            raise OSError("gone")

        async def receive():
            return {"type": "http.disconnect"}

        with pytest.raises(OSError, match="gone"):
            await stream({"type": "http"}, receive, send)
        assert live._viewers == set()

    asyncio.run(go_early())
