"""The application of the server, asked without a socket."""

import asyncio
import json

import pytest

pytest.importorskip("starlette")

from drumline.rest import endpoint, service

KEY = bytes(32)
JOBS = "/subscriptions/s/resourceGroups/g/providers/Microsoft.MachineLearningServices/workspaces/w/jobs/a"


def test_a_body_is_not_waited_for_without_end(drumline_home, monkeypatch):
    monkeypatch.setattr(service, "BODY_S", 0.05)
    token, _ = endpoint.make_token(KEY, "a")
    sent = []

    async def receive():
        await asyncio.Event().wait()

    async def send(message):
        sent.append(message)

    headers = [(b"host", b"127.0.0.1:1"), (b"authorization", f"Bearer {token}".encode())]
    scope = {
        "type": "http", "method": "PUT", "path": JOBS, "query_string": b"", "headers": headers, "scheme": "https",
        "server": ("127.0.0.1", 1),
    }  # fmt: skip
    app = service.RestService(KEY, "https://127.0.0.1:1")
    asyncio.run(asyncio.wait_for(app(scope, receive, send), 30))
    assert sent[0]["status"] == 408
    assert "has not arrived" in json.loads(sent[1]["body"])["error"]["message"]
