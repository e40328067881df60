"""What the studio answers while its threads work, and to a client that goes."""

import asyncio
import json
import threading
from array import array

import pytest
from anyio.to_thread import current_default_thread_limiter
from starlette.requests import Request
from waiting import PATIENCE

from drumline.control.answer_cache import KeptAnswers
from drumline.studio.answers import encode
from drumline.studio.handlers import wrap
from drumline.studio.security import StudioSettings

SETTINGS = StudioSettings(1)


def a_request(method, path="/x", message=None):
    async def receive():
        return message or {"type": "http.request", "body": b"{}", "more_body": False}

    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": b"",
        "headers": [(b"host", b"x")],
        "path_params": {},
    }
    return Request(scope, receive)


def test_actions_that_take_long_keep_nobody_from_looking():
    may_end = threading.Event()

    async def look():
        current_default_thread_limiter().total_tokens = 8
        submit = wrap(lambda _: may_end.wait(60 * PATIENCE), SETTINGS)
        show, cancel = wrap(lambda _: 1, SETTINGS), wrap(lambda _: 2, SETTINGS)
        tasks = [asyncio.create_task(submit(a_request("POST"))) for _ in range(12)]
        try:
            async with asyncio.timeout(10 * PATIENCE):
                # All that can begin has begun before these are asked.
                for _ in range(100):
                    await asyncio.sleep(0)
                assert (await show(a_request("GET"))).body == b"1"
                assert (await cancel(a_request("POST"))).body == b"2"
        finally:
            may_end.set()
        assert [answer.body for answer in await asyncio.gather(*tasks)] == [b"true"] * 12

    asyncio.run(look())


def test_a_client_that_goes_before_it_has_asked_is_no_error(capsys):
    answer = asyncio.run(
        wrap(lambda _: 1, SETTINGS)(a_request("POST", "/login", {"type": "http.disconnect"}))
    )
    assert answer.status_code == 400
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("path", ["/x\x1b[2Jy", "/x\nerror: nothing"])
def test_an_error_names_the_path_without_what_a_terminal_obeys(capsys, path):
    def fail(_):
        raise RuntimeError("oh")

    assert asyncio.run(wrap(fail, SETTINGS)(a_request("GET", path))).status_code == 500
    told = capsys.readouterr().err
    assert "RuntimeError('oh')" in told
    assert "\x1b" not in told
    assert told.count("\n") == 1


def test_many_numbers_are_kept_and_sent_as_they_are():
    rows = [{"rank": rank, "values": array("d", [rank, float("nan"), 2.5])} for rank in range(512)]
    kept = KeptAnswers(1 << 20)
    made = {"rows": rows, "\u20ac": '"x"', 7: [], "few": (1, {"a": None})}
    kept.get_or_make("system", "stamp", lambda: (made, None))
    assert kept.get_or_make("system", "another", lambda: ({}, 0.0)) == {}
    told = json.loads(encode(kept.get_or_make("system", "stamp", lambda: ({}, None))))
    assert told["rows"] == [{"rank": rank, "values": [rank, None, 2.5]} for rank in range(512)]
    assert {key: told[key] for key in told.keys() - {"rows"}} == {
        "\u20ac": '"x"',
        "7": [],
        "few": [1, {"a": None}],
    }
