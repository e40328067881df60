"""The blob subset over HTTP: what is put, read and listed, who is let in, and what is left of uploads."""

import base64
import contextlib
import hashlib
import http.client
import os
import socket
import threading
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, urlencode
from xml.etree import ElementTree as ET

import pytest
from waiting import PATIENCE, wait_until

pytest.importorskip("starlette")
import uvicorn
from starlette.applications import Starlette

from drumline.rest.blob_access import sign
from drumline.rest.blob_files import Container, JobContainer
from drumline.rest.blobs import PREFIX, make_routes

KEY = b"k" * 32
ALL = "rcwdl"
BLOB = {"x-ms-blob-type": "BlockBlob"}


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def code(self):
        return self.status, self.headers.get("x-ms-error-code")

    def names(self):
        return [one.text for one in ET.fromstring(self.body).iter("Name")]


class Served(NamedTuple):
    port: int
    folder: Path
    """Of the container ``data``."""

    def ask(self, method, name, body=None, headers=(), *, sas=None, container="data", root=PREFIX, **query):
        sas = sign(KEY, container, ALL, 60) if sas is None else sas
        target = f"{root}/{container}{'/' + quote(name) if name else ''}?{urlencode(query)}&{sas}"
        return self.send(method, target, body, headers)

    def send(self, method, target, body=None, headers=()):
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20.0 * PATIENCE)
        with contextlib.closing(client):
            client.request(method, target, body, dict(headers))
            answer = client.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, found, answer.read())

    def put(self, name, body=b"text", headers=(), **options):
        return self.ask("PUT", name, body, {**BLOB, **dict(headers)}, **options)

    def list(self, container="data", **query):
        return self.ask("GET", "", container=container, restype="container", comp="list", **query)

    def put_block(self, name, block, body, **options):
        return self.ask("PUT", name, body, comp="block", blockid=to_id(block), **options)

    def commit(self, name, *blocks, headers=(), **options):
        latest = "".join(f"<Latest>{to_id(block)}</Latest>" for block in blocks)
        body = f'<?xml version="1.0" encoding="utf-8"?>\n<BlockList>{latest}</BlockList>'.encode()
        return self.ask("PUT", name, body, headers, comp="blocklist", **options)

    def files(self):
        """All files below the folder that are no locks or properties."""
        kept = ("lock", "properties")
        return sorted(
            str(path.relative_to(self.folder))
            for path in self.folder.rglob("*")
            if path.is_file() and not set(path.parts) & set(kept)
        )


def to_id(block):
    return base64.b64encode(block.encode()).decode()


def to_md5(body):
    return base64.b64encode(hashlib.md5(body).digest()).decode()


@pytest.fixture
def served(tmp_path, drumline_home):
    folder = tmp_path / "data"
    containers = {
        "data": Container(str(folder), is_ours=True),
        "fixed": Container(str(folder), is_writable=False),
        "gone": Container(str(tmp_path / "gone")),
        "runs": JobContainer(""),
    }
    listener = socket.create_server(("127.0.0.1", 0))
    app = Starlette(routes=make_routes(containers.get, KEY))
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", access_log=False))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        wait_until(lambda: server.started, 20.0, "the server to start")
        yield Served(listener.getsockname()[1], folder)
    finally:
        server.should_exit = True
        thread.join(20.0 * PATIENCE)
        listener.close()


@pytest.mark.parametrize("root", [PREFIX, ""])
def test_a_blob_is_put_and_read(served, root):
    made = served.put("a/b é%20#.txt", b"0123456789", root=root)
    assert made.status == 201
    read = served.ask("GET", "a/b é%20#.txt", root=root)
    assert (read.status, read.body, read.headers["etag"]) == (200, b"0123456789", made.headers["etag"])
    assert read.headers["x-ms-blob-type"] == "BlockBlob"
    head = served.ask("HEAD", "a/b é%20#.txt", root=root)
    assert (head.status, head.headers["content-length"], head.body) == (200, "10", b"")
    assert os.stat(served.folder / "a" / "b é%20#.txt").st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("asked", "status", "body", "place"),
    [
        ("bytes=2-4", 206, b"234", "bytes 2-4/10"),
        ("bytes=2-", 206, b"23456789", "bytes 2-9/10"),
        ("bytes=0-33554431", 206, b"0123456789", "bytes 0-9/10"),
        ("bytes=10-20", 416, None, None),
        ("bytes=999999999999999999-", 416, None, None),
        ("bytes=9999999999999999999999-", 400, None, None),
        ("bytes=4-2", 400, None, None),
        ("bytes=-3", 400, None, None),
        ("lines=1-2", 400, None, None),
    ],
)
@pytest.mark.parametrize("name", ["range", "x-ms-range"])
def test_a_range_is_read(served, name, asked, status, body, place):
    served.put("a", b"0123456789")
    answer = served.ask("GET", "a", headers={name: asked})
    assert (answer.status, answer.headers.get("content-range")) == (status, place)
    if body is not None:
        assert answer.body == body


def test_an_empty_blob_has_no_range(served):
    served.put("a", b"")
    assert served.ask("GET", "a", headers={"x-ms-range": "bytes=0-9"}).code == (416, "InvalidRange")
    assert served.ask("GET", "a").body == b""


def test_metadata_is_kept_with_the_content_that_it_was_put_with(served):
    served.put("a", headers={"x-ms-meta-one": "1"})
    assert served.ask("HEAD", "a").headers["x-ms-meta-one"] == "1"
    assert (
        served.ask("PUT", "a", headers={"x-ms-meta-upload_status": "completed"}, comp="metadata").status
        == 200
    )
    found = served.ask("HEAD", "a").headers
    assert (found.get("x-ms-meta-one"), found["x-ms-meta-upload_status"]) == (None, "completed")
    assert b"<upload_status>completed<" in served.list(include="metadata").body
    (served.folder / "a").write_text("of another program")
    assert "x-ms-meta-upload_status" not in served.ask("HEAD", "a").headers


def test_a_blob_that_is_not_to_be_replaced_stays(served):
    served.put("a", b"first")
    answer = served.put("a", b"second", {"if-none-match": "*"})
    assert answer.code == (409, "BlobAlreadyExists")
    served.put_block("a", "1", b"third")
    assert served.commit("a", "1", headers={"if-none-match": "*"}).code == (409, "BlobAlreadyExists")
    assert served.put("a", b"fourth", sas=sign(KEY, "data", "c", 60)).code == (409, "BlobAlreadyExists")
    assert served.ask("GET", "a").body == b"first"


def test_blocks_become_a_blob_in_the_order_of_their_list(served):
    for block, body in (("2", b"two"), ("1", b"one"), ("3", b"never named")):
        assert served.put_block("a", block, body).status == 201
    assert served.ask("GET", "a").code == (404, "BlobNotFound")
    assert served.list().names() == []
    assert served.commit("a", "1", "2", "1").status == 201
    assert served.ask("GET", "a").body == b"onetwoone"
    assert served.files() == ["a"]


def test_a_list_that_names_an_unknown_block_changes_nothing(served):
    served.put("a", b"before")
    served.put_block("a", "1", b"one")
    assert served.commit("a", "1", "2").code == (400, "InvalidBlockList")
    assert served.ask("GET", "a").body == b"before"


def test_a_body_with_another_md5_is_refused(served):
    assert served.put("a", b"text", {"content-md5": to_md5(b"text")}).status == 201
    assert served.ask("GET", "a").headers["content-md5"] == to_md5(b"text")
    assert served.put("a", b"other", {"content-md5": to_md5(b"text")}).code == (400, "Md5Mismatch")
    assert served.put("a", b"other", {"content-md5": "short"}).code == (400, "InvalidMd5")
    assert served.ask("GET", "a").body == b"text"
    assert served.files() == ["a"]


def test_a_container_is_listed_in_the_order_of_names(served):
    names = ["a-b", "a.", "a/b", "a/c/d", "a0", "b/x", "é"]
    for name in reversed(names):
        served.put(name)
    assert served.list().names() == names
    assert served.list(prefix="a/").names() == ["a/b", "a/c/d"]
    assert served.list(delimiter="/").names() == ["a-b", "a.", "a/", "a0", "b/", "é"]
    assert served.list(prefix="a/", delimiter="/").names() == ["a/b", "a/c/"]
    assert served.list(prefix="a", delimiter="/").names() == ["a-b", "a.", "a/", "a0"]
    assert served.list(prefix="../").names() == []


@pytest.mark.parametrize("query", [{}, {"delimiter": "/"}])
def test_pages_of_a_list_are_the_whole_of_it(served, query):
    for name in ("a-b", "a/b", "a/c/d", "a/c/e", "a0", "é&<"):
        served.put(name)
    found, marker = [], ""
    while True:
        page = served.list(maxresults=1, marker=marker, **query)
        assert len(page.names()) == 1
        found += page.names()
        marker = ET.fromstring(page.body).findtext("NextMarker")
        if not marker:
            break
    assert found == served.list(**query).names()


def test_a_signature_lets_in_as_far_as_it_goes(served):
    served.put("a/b")
    assert served.ask("GET", "a/b", sas=sign(KEY, "data", "r", 60)).status == 200
    assert served.ask("GET", "a/b", sas=sign(KEY, "data", "r", 60, "a/b")).status == 200
    assert served.ask("GET", "a/b", sas=sign(KEY, "data", "r", 60, "a/")).status == 200
    wrong = "AuthorizationPermissionMismatch"
    assert served.ask("DELETE", "a/b", sas=sign(KEY, "data", "rcwl", 60)).code == (403, wrong)
    assert served.put("a/b", sas=sign(KEY, "data", "rdl", 60)).code == (403, wrong)
    assert served.put("a/b", container="fixed").code == (403, wrong)
    assert served.ask("DELETE", "a/b", container="fixed").code == (403, wrong)
    assert served.ask("DELETE", "a/b").status == 202
    assert served.ask("GET", "a/b").code == (404, "BlobNotFound")


def tamper():
    good = sign(KEY, "data", "rl", 60)
    fields = dict(parse_qsl(good))
    yield "none", ""
    yield "cut", good[:-4]
    yield "expired", sign(KEY, "data", "rl", -1)
    yield "of another key", sign(b"l" * 32, "data", "rl", 60)
    yield "of another container", sign(KEY, "other", "rl", 60)
    yield "of another blob", sign(KEY, "data", "r", 60, "b")
    yield "of another folder", sign(KEY, "data", "r", 60, "b/")
    yield "of a blob below", sign(KEY, "data", "r", 60, "a/")
    for name, value in (
        ("sp", "rcwdl"),
        ("sp", "lr"),
        ("se", "2999-01-01T00:00:00Z"),
        ("sr", "b"),
        ("sdd", "1"),
    ):
        yield f"{name}={value}", urlencode({**fields, name: value})
        yield f"{name} twice", f"{good}&{urlencode({name: value})}"
    yield "not text", urlencode({**fields, "sig": "é"})


@pytest.mark.parametrize("sas", [pytest.param(sas, id=name) for name, sas in tamper()])
def test_another_signature_lets_nobody_in(served, sas):
    served.put("a", b"secret")
    for method, name, query in (("GET", "a", {}), ("POST", "a", {}), ("GET", "", {"comp": "list"})):
        answer = served.ask(method, name, sas=sas, **query)
        assert answer.code == (403, "AuthenticationFailed")
        assert b"secret" not in answer.body


def test_the_fields_of_a_signature_have_no_order(served):
    served.put("a")
    sas = urlencode(parse_qsl(sign(KEY, "data", "r", 60))[::-1])
    assert served.ask("GET", "a", sas=sas).status == 200


def test_a_container_that_is_not_there_is_a_404(served):
    for name in ("other", "gone"):
        assert served.put("a", container=name).code == (404, "ContainerNotFound")
    assert not (served.folder.parent / "gone").exists()


def test_what_is_not_supported_is_refused_with_a_sentence(served):
    served.put("a")
    answers = [
        served.ask("POST", "a"),
        served.ask("PUT", "a", comp="lease"),
        served.ask("GET", "a", snapshot="2026"),
        served.ask("GET", "", comp="list"),
        served.list(include="snapshots"),
        served.put("a", headers={"x-ms-copy-source": "https://elsewhere"}),
        served.put("a", headers={"if-unmodified-since": "x"}),
        served.ask("PUT", "a", b"text", {"x-ms-blob-type": "PageBlob"}),
    ]
    assert {one.code for one in answers} == {(501, "NotImplemented")}
    assert all(b"supported here</Message>" in one.body for one in answers)
