"""
Services of clouds on loopback, for tests: Azurite for Azure's blobs, moto's server for S3.

Each is a process of its own that ends with ours. What is put there is put by plain requests, not by what is tested.
"""

import base64
import contextlib
import hashlib
import hmac
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path

from waiting import wait_until

from drumline.linux.kernel import die_with_parent

ACCOUNT = "devstoreaccount1"
# The one that Azurite's documentation gives to everybody.
ACCOUNT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

# moto asks for one, and looks at no more than who it is.
_ANY_KEY = {
    "Authorization": "AWS4-HMAC-SHA256 Credential=testing/20260101/us-east-1/s3/aws4_request, "
    "SignedHeaders=host, Signature=0"
}
_CLOUD_VARIABLES = re.compile(r"(AWS|AZURE|GOOGLE|GCE|CLOUDSDK|HF|HUGGING|STORAGE|BOTO)_?", re.ASCII)
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


class Unavailable(Exception):  # noqa: N818 - as of slurm_cluster
    """What the service is made of is not installed."""


def cloud_variables() -> list[str]:
    """Names of variables at hand that libraries of clouds would heed, for a test to take away."""
    return [name for name in os.environ if _CLOUD_VARIABLES.match(name) or name.lower() in _PROXIES]


class Azurite:
    """The blob service, with one account whose key everybody knows. Containers are the test's own: name them so."""

    def __init__(self, port: int) -> None:
        self.endpoint = f"http://127.0.0.1:{port}/{ACCOUNT}"
        self.connection_string = (
            f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={ACCOUNT_KEY};"
            f"BlobEndpoint={self.endpoint};"
        )

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to find this account here."""
        return {"AZURE_STORAGE_CONNECTION_STRING": self.connection_string}

    def uri(self, container: str, path: str = "") -> str:
        """As a job would have it."""
        return f"abfss://{container}@{ACCOUNT}.dfs.core.windows.net/{path}"

    def make_container(
        self, name: str, files: dict[str, bytes] | None = None, *, is_public: bool = False
    ) -> None:
        """With these files in it."""
        headers = {"x-ms-blob-public-access": "container"} if is_public else {}
        self._request("PUT", name, {"restype": "container"}, headers=headers)
        for path, content in (files or {}).items():
            self.put(name, path, content)

    def put(self, container: str, path: str, content: bytes) -> None:
        """Replaces what is there."""
        self._request("PUT", f"{container}/{path}", {}, content, {"x-ms-blob-type": "BlockBlob"})

    def get(self, container: str, path: str) -> bytes:
        return self._request("GET", f"{container}/{path}", {})

    def names(self, container: str) -> list[str]:
        listing = self._request("GET", container, {"restype": "container", "comp": "list"})
        return re.findall(r"<Name>([^<]*)</Name>", listing.decode())

    def signature(self, permissions: str = "rl") -> str:
        """An account's shared access signature for containers and their blobs, until 2099."""
        fields = {
            "sv": "2021-12-02", "ss": "b", "srt": "sco", "sp": permissions, "se": "2099-01-01T00:00:00Z",
            "spr": "https,http",
        }  # fmt: skip
        order = ("sp", "ss", "srt", "st", "se", "sip", "spr", "sv", "ses")
        text = "\n".join([ACCOUNT, *(fields.get(name, "") for name in order), ""])
        return urllib.parse.urlencode({**fields, "sig": _signed(text)})

    def _request(
        self,
        method: str,
        path: str,
        query: dict[str, str],
        body: bytes = b"",
        headers: dict[str, str] | None = None,
    ) -> bytes:
        """https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key"""
        quoted = urllib.parse.quote(path)
        own = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-12-02", **(headers or {})}
        lines = [
            method,
            "",
            "",
            str(len(body)) if body else "",
            "",
            "application/octet-stream" if body else "",
        ]
        lines += [""] * 6 + [f"{name}:{own[name]}" for name in sorted(own)]
        lines += [f"/{ACCOUNT}/{ACCOUNT}/{quoted}", *(f"{name}:{query[name]}" for name in sorted(query))]
        own["Authorization"] = f"SharedKey {ACCOUNT}:{_signed(chr(10).join(lines))}"
        if body:
            own["Content-Type"] = "application/octet-stream"
        url = f"{self.endpoint}/{quoted}" + (f"?{urllib.parse.urlencode(query)}" if query else "")
        return _sent(method, url, body, own)


class S3Server:
    """Any key is good. Buckets are the test's own: name them so."""

    def __init__(self, port: int) -> None:
        self.endpoint = f"http://127.0.0.1:{port}"

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to find these buckets here."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_REGION": "us-east-1",
        }

    def make_bucket(self, name: str, files: dict[str, bytes] | None = None) -> None:
        """With these files in it."""
        _sent("PUT", f"{self.endpoint}/{name}", b"", _ANY_KEY)
        for key, content in (files or {}).items():
            self.put(name, key, content)

    def put(self, bucket: str, key: str, content: bytes) -> None:
        """Replaces what is there."""
        _sent("PUT", f"{self.endpoint}/{bucket}/{urllib.parse.quote(key)}", content, _ANY_KEY)

    def get(self, bucket: str, key: str) -> bytes:
        return _sent("GET", f"{self.endpoint}/{bucket}/{urllib.parse.quote(key)}", b"", _ANY_KEY)

    def names(self, bucket: str) -> list[str]:
        listing = _sent("GET", f"{self.endpoint}/{bucket}?list-type=2", b"", _ANY_KEY)
        return re.findall(r"<Key>([^<]*)</Key>", listing.decode())


@contextlib.contextmanager
def azurite(folder: Path) -> Iterator[Azurite]:
    """Its data below the folder. Raises Unavailable."""
    program = Path(sys.prefix) / "node/node_modules/.bin/azurite-blob"
    node, found = shutil.which("node"), program if program.exists() else shutil.which("azurite-blob")
    if not node or not found:
        raise Unavailable("no Azurite here: scripts/setup services installs it, where there are node and npm")
    options = ["--blobHost", "127.0.0.1", "--blobPort", "0", "--location", str(folder)]
    options += ["--skipApiVersionCheck", "--disableTelemetry", "--silent"]
    with _running([node, str(found), *options], folder, r"listens on http://127\.0\.0\.1:(\d+)") as port:
        yield Azurite(port)


_MOTO = """
import time
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print("port", server.get_host_and_port()[1], flush=True)
time.sleep(1e6)
"""


@contextlib.contextmanager
def s3_server(folder: Path) -> Iterator[S3Server]:
    """Its log in the folder. Raises Unavailable."""
    import importlib.util

    if importlib.util.find_spec("moto") is None or importlib.util.find_spec("flask") is None:
        raise Unavailable("no moto[server] here: scripts/setup test installs it")
    with _running([sys.executable, "-c", _MOTO], folder, r"port (\d+)") as port:
        yield S3Server(port)


@contextlib.contextmanager
def _running(command: list[str], folder: Path, listens: str) -> Iterator[int]:
    """Gives the port that the output tells. Killed at the end, ours or the block's."""
    log = folder / "service.log"
    ours = os.getpid()
    clean = {
        name: os.environ[name] for name in ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH") if name in os.environ
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env={**clean, "AWS_ACCESS_KEY_ID": "none", "AWS_SECRET_ACCESS_KEY": "none"},
            preexec_fn=lambda: die_with_parent(signal.SIGKILL, ours),  # noqa: PLW1509 - tests have one thread here
        )
    try:
        yield int(wait_until(lambda: _told(process, log, listens), 30, f"{command[0]} listens")[1])
    finally:
        process.kill()
        process.wait()


def _told(process: subprocess.Popen[bytes], log: Path, listens: str) -> re.Match[str] | None:
    text = log.read_text(errors="replace")
    assert process.poll() is None, f"it ended: {text}"
    return re.search(listens, text)


def _signed(text: str) -> str:
    mac = hmac.new(base64.b64decode(ACCOUNT_KEY), text.encode(), hashlib.sha256)
    return base64.b64encode(mac.digest()).decode()


def _sent(method: str, url: str, body: bytes, headers: dict[str, str]) -> bytes:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(url, data=body or None, headers=headers, method=method)
    if body and "Content-Type" not in headers:
        request.add_header("Content-Type", "application/octet-stream")
    try:
        with opener.open(request, timeout=60) as response:
            return bytes(response.read())
    except urllib.error.HTTPError as error:
        with error:
            words = error.read().decode(errors="replace")
        raise AssertionError(f"{method} {url}: {error.code} {words}") from None
