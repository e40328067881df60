"""A server of ``drumline azure serve`` for a test, and requests to it."""

import contextlib
import http.client
import json
import shlex
import signal
import ssl
import subprocess
import sys
from typing import Any, NamedTuple
from urllib.parse import urlsplit

SCOPE = "/subscriptions/sub/resourceGroups/rg/providers/Microsoft.MachineLearningServices/workspaces/team"
DRUMLINE = [sys.executable, "-P", "-m", "drumline"]


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def message(self) -> str:
        return str(self.json["error"]["message"])


class Service:
    """A running server; ``ask`` has its token unless ``headers`` are given."""

    def __init__(self, process: "subprocess.Popen[str]", address: str) -> None:
        self.process = process
        self.address = address
        self.variables = read_variables()
        answer = self.ask("/msi/token?resource=https://ml.azure.com", headers=self.identity)
        self.token = answer.json["access_token"]

    @property
    def identity(self) -> dict[str, str]:
        return {"X-IDENTITY-HEADER": self.variables["IDENTITY_HEADER"]}

    def ask(
        self, path: str, method: str = "GET", body: Any = None, headers: "dict[str, str] | None" = None
    ) -> Answer:
        """Ask for a path, or for an address of the server."""
        context = ssl.create_default_context(cafile=self.variables["REQUESTS_CA_BUNDLE"])
        parts = urlsplit(self.address)
        given = {"Authorization": f"Bearer {self.token}"} if headers is None else headers
        connection = http.client.HTTPSConnection(str(parts.hostname), parts.port, context=context, timeout=60)
        with contextlib.closing(connection):
            data = None if body is None else json.dumps(body)
            connection.request(method, path.removeprefix(self.address), data, given)
            found = connection.getresponse()
            return Answer(found.status, dict(found.getheaders()), found.read())

    def of(self, path: str, method: str = "GET", body: Any = None, service: str = "") -> Answer:
        """Ask for a path of the workspace."""
        return self.ask(f"{service}{SCOPE}{path}?api-version=2024-01-01", method, body)


@contextlib.contextmanager
def run_service(port: int = 0, *words: str):
    """Run a server of this test's home, and end it."""
    process = subprocess.Popen(
        [*DRUMLINE, "azure", "serve", "--port", str(port), *words], stdout=subprocess.PIPE, text=True
    )
    try:
        address = process.stdout.readline().strip() if process.stdout else ""
        assert address.startswith("https://127.0.0.1:"), "the server has not started"
        yield Service(process, address)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)
        if process.stdout:
            process.stdout.close()


def read_variables() -> "dict[str, str]":
    """Return what a shell has after ``eval "$(drumline azure env)"``."""
    text = f'eval "$({shlex.join([*DRUMLINE, "azure", "env", "--shell", "bash"])})" && env -0'
    done = subprocess.run(["bash", "-c", text], capture_output=True, check=True)
    pairs = (line.partition("=") for line in done.stdout.decode().split("\0") if line)
    return {name: value for name, _, value in pairs}


def job_body(command: str, **fields: Any) -> "dict[str, Any]":
    """Return the body of a command job as the client sends it."""
    properties = {
        "jobType": "Command", "command": command, "environmentId": f"{SCOPE}/environments/AzureML-any/labels/latest",
        "computeId": f"{SCOPE}/computes/cpu-cluster", "distribution": None, "inputs": {}, "outputs": {},
        "environmentVariables": {}, "isArchived": False, "tags": {}, "properties": {},
        "resources": {"instanceCount": 1, "properties": {}}, **fields,
    }  # fmt: skip
    return {"properties": properties}


def has_ended(process: "subprocess.Popen[str]") -> bool:
    return process.poll() is not None
