"""A studio in a process of its own, and questions to it."""

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from waiting import wait_until

API = "/api/v1"


class Answer(NamedTuple):
    status: int
    headers: http.client.HTTPMessage
    data: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.data)


class StudioServer(NamedTuple):
    process: subprocess.Popen[bytes]
    port: int
    token: str
    record: Path

    @property
    def own_headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    def ask(
        self, path: str, method: str = "GET", body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """The answer to a request with just these headers, those of a program that has the token by default."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        sent = dict(self.own_headers if headers is None else headers)
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            sent.setdefault("Content-Type", "application/json")
        with contextlib.closing(connection):
            connection.request(method, path, data, sent)
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read())

    def get(self, path: str) -> Any:
        """The JSON of a path below the interface."""
        answer = self.ask(API + path)
        assert answer.status == 200, answer.data
        return answer.json

    def post(self, path: str, body: Mapping[str, Any]) -> Answer:
        return self.ask(API + path, "POST", body)

    def cookie(self) -> dict[str, str]:
        """The headers of our own page in a browser that is logged in."""
        own = {"Sec-Fetch-Site": "same-origin"}
        answer = self.ask("/login", "POST", {"token": self.token}, own)
        assert answer.status == 200, answer.data
        return {**own, "Cookie": answer.headers["Set-Cookie"].partition(";")[0]}


def _end(process: subprocess.Popen[bytes]) -> None:
    def has_ended() -> bool:
        return process.poll() is not None

    try:
        if not has_ended():
            process.send_signal(signal.SIGINT)
        # Below a shell's background job, SIGINT is ignored until the server has its own handler.
        with contextlib.suppress(TimeoutError):
            wait_until(has_ended, 2.0)
        if not has_ended():
            process.send_signal(signal.SIGTERM)
        wait_until(has_ended, 20.0, "the studio to end")
    finally:
        process.kill()


@contextlib.contextmanager
def run_studio(*arguments: str, home: Path | None = None) -> Iterator[StudioServer]:
    """A studio of the test's home, or another one, on a port of its own, until the end of the ``with``."""
    place = home or Path(os.environ["DRUMLINE_HOME"])
    env = {**os.environ, "DRUMLINE_HOME": str(place)}
    argv = [sys.executable, "-m", "drumline", "studio", "--no-browser", "--port", "0", *arguments]
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=env) as process:
        assert process.stdout is not None
        try:
            # It listens by then.
            port = int(process.stdout.readline().rpartition(b":")[2])
            record = place / "studio" / f"{port}.json"
            token = json.loads(record.read_text())["token"]
            yield StudioServer(process, port, token, record)
        finally:
            _end(process)
