"""A server of blobs that is killed in the middle of an upload: no half blob has a name, and the next server goes on."""

import base64
import contextlib
import http.client
import signal
import socket
import subprocess
import sys
from urllib.parse import quote

import pytest
from waiting import PATIENCE, wait_until

pytest.importorskip("starlette")

from drumline.rest.blob_access import sign
from drumline.rest.blobs import PREFIX

KEY = b"k" * 32
LARGE = bytes(range(256)) * 16384

PROGRAM = """
import sys, uvicorn
from starlette.applications import Starlette
from drumline.rest.blob_files import Container
from drumline.rest.blobs import make_routes
app = Starlette(routes=make_routes(lambda name: Container(sys.argv[2]), b"k" * 32))
uvicorn.run(app, fd=int(sys.argv[1]), log_level="critical", access_log=False)
"""


class Server:
    """A process that serves a folder; its successors take over its socket, as those of a supervised server do."""

    def __init__(self, folder):
        self.folder = folder
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.start()

    def start(self):
        argv = [sys.executable, "-c", PROGRAM, str(self.listener.fileno()), str(self.folder)]
        self.process = subprocess.Popen(argv, pass_fds=[self.listener.fileno()])

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        assert self.process.wait(20.0 * PATIENCE) == -signal.SIGKILL

    def connect(self):
        return http.client.HTTPConnection(*self.listener.getsockname(), timeout=30.0 * PATIENCE)

    def ask(self, method, name, body=None, query=""):
        with contextlib.closing(self.connect()) as client:
            client.request(method, address(name, query), body, {"x-ms-blob-type": "BlockBlob"})
            answer = client.getresponse()
            return answer.status, answer.read()

    def begin_upload(self, name, query=""):
        """Send the half of a body, and wait until some of that is on the disk."""
        client = self.connect()
        client.putrequest("PUT", address(name, query))
        client.putheader("x-ms-blob-type", "BlockBlob")
        client.putheader("Content-Length", str(len(LARGE)))
        client.endheaders(LARGE[: len(LARGE) // 2])
        wait_until(lambda: any(path.stat().st_size for path in self.partial()), 20.0, "the half of an upload")
        return client

    def partial(self):
        return list(self.folder.glob(".drumline-blobs/uploads/*.partial"))


def address(name, query=""):
    return f"{PREFIX}/data/{quote(name)}?{sign(KEY, 'data', 'rcwdl', 600)}&{query}"


def block(name):
    return f"comp=block&blockid={quote(base64.b64encode(name.encode()))}"


@pytest.fixture
def server(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    one = Server(folder)
    try:
        yield one
    finally:
        one.kill()
        one.listener.close()


def test_a_kill_in_the_middle_of_a_blob_leaves_what_was_there(server):
    assert server.ask("PUT", "a", b"before")[0] == 201
    for name in ("a", "b"):
        with contextlib.closing(server.begin_upload(name)):
            server.kill()
            server.start()
    assert server.ask("GET", "a") == (200, b"before")
    assert server.ask("GET", "b")[0] == 404
    assert sorted(path.name for path in server.folder.iterdir()) == [".drumline-blobs", "a"]
    assert server.ask("PUT", "a", LARGE)[0] == 201
    assert server.ask("GET", "a") == (200, LARGE)


def test_blocks_of_a_server_that_was_killed_are_joined_by_the_next(server):
    assert server.ask("PUT", "a", LARGE, block("1"))[0] == 201
    with contextlib.closing(server.begin_upload("a", block("2"))):
        server.kill()
        server.start()
    listed = "".join(f"<Latest>{base64.b64encode(one).decode()}</Latest>" for one in (b"1", b"2"))
    body = f"<BlockList>{listed}</BlockList>"
    assert server.ask("PUT", "a", body, "comp=blocklist")[0] == 400
    assert server.ask("PUT", "a", b"the rest", block("2"))[0] == 201
    assert server.ask("PUT", "a", body, "comp=blocklist")[0] == 201
    assert server.ask("GET", "a") == (200, LARGE + b"the rest")
