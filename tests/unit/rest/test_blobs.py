"""The blob subset over HTTP: what is put, read and listed, who is let in, and what is left of uploads."""

import base64
import contextlib
import hashlib
import http.client
import os
import shutil
import socket
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, urlencode
from xml.etree import ElementTree as ET

import pytest
from made_jobs import MadeJob
from waiting import PATIENCE, wait_until

from drumline.contract import events as e
from drumline.contract import status
from drumline.contract.errors import NotFoundError
from drumline.control.assets import datastore_verbs
from drumline.spec.parts.io import Output
from drumline.spec.registered.datastores import LocalDatastore

pytest.importorskip("starlette")
import uvicorn
from starlette.applications import Starlette

from drumline.rest import blob_access
from drumline.rest.blob_access import sign
from drumline.rest.blob_files import Container, JobContainer, list_blobs, open_datastore
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


def test_the_md5_of_a_range_is_that_of_the_range(served):
    served.put("a", b"0123456789", {"content-md5": to_md5(b"0123456789")})
    part = served.ask("GET", "a", headers={"x-ms-range": "bytes=2-4", "x-ms-range-get-content-md5": "true"})
    assert (part.headers["content-md5"], part.headers["x-ms-blob-content-md5"]) == (
        to_md5(b"234"),
        to_md5(b"0123456789"),
    )
    assert "content-md5" not in served.ask("GET", "a", headers={"x-ms-range": "bytes=2-4"}).headers


def test_a_range_of_a_blob_that_has_changed_is_refused(served):
    """The client reads a large blob in ranges, and names the ETag of the first."""
    etag = served.put("a", b"first").headers["etag"]
    assert served.ask("GET", "a", headers={"range": "bytes=0-1", "if-match": etag}).status == 206
    served.put("a", b"second")
    answer = served.ask("GET", "a", headers={"range": "bytes=2-3", "if-match": etag})
    assert answer.code == (412, "ConditionNotMet")


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
    assert served.files() == ["a"]
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
    assert served.put("a", b"other", {"x-ms-blob-content-md5": to_md5(b"text")}).code == (400, "Md5Mismatch")
    assert served.put("a", b"other", {"content-md5": "short"}).code == (400, "InvalidMd5")
    assert served.commit("a", headers={"content-md5": to_md5(b"text")}).code == (400, "Md5Mismatch")
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


SIGNED = {
    "x-ms-meta-upload_status": "completed",
    "x-ms-meta-uploadname": "n",
    "x-ms-meta-upload1": "v",
    "x-ms-version": "2026-10-06",
    "x-ms-date": "Sun, 29 Nov 2026 01:09:39 GMT",
    "x-ms-client-request-id": "8d2e6eba-eb91-11f1-9d3f-02fc00000001",
    "authorization": "SharedKey .blob.core.windows.net:GfT4jQA7NKZpUHyQLAfb2hnbizhtPu4LIo7QaMKAeKc=",
}
"""What azure-storage-blob 12.31.1 sends to set metadata, with ``make_account_key(KEY)``."""

SIGNED_S = 1795914579.0


@pytest.mark.parametrize("changed", [{}, {"x-ms-meta-uploadname": "m"}, {"content-length": "0"}])
@pytest.mark.parametrize("later_s", [0.0, 1000.0, -1000.0])
@pytest.mark.parametrize("method", ["PUT", "DELETE"])
def test_a_request_that_is_signed_by_the_key_of_the_account_is_let_in(monkeypatch, changed, later_s, method):
    path, query = f"{PREFIX}/data/a%20b/%C3%A9%25.txt", {"comp": "metadata"}
    monkeypatch.setattr(blob_access.time, "time", lambda: SIGNED_S + later_s)
    asked = (KEY, method, path, query, {**SIGNED, **changed})
    if later_s or method != "PUT" or "x-ms-meta-uploadname" in changed:
        with pytest.raises(blob_access.BlobError, match="signed"):
            blob_access.check_shared_key(*asked)
    else:
        assert blob_access.check_shared_key(*asked) == set(ALL)
        with pytest.raises(blob_access.BlobError, match="the key of this account"):
            blob_access.check_shared_key(b"l" * 32, *asked[1:])


@pytest.mark.parametrize("value", [SIGNED["authorization"], "SharedKey", "SharedKey a:é", "Bearer a", ""])
def test_an_authorization_that_does_not_fit_lets_nobody_in(served, value):
    served.put("a")
    for headers in ({"authorization": value}, {**SIGNED, "authorization": value}):
        answer = served.ask("GET", "a", headers={**headers, "authorization": value.encode("latin-1")}, sas="")
        assert answer.code == (403, "AuthenticationFailed")


def test_a_container_that_is_not_there_is_a_404(served):
    for name in ("other", "gone"):
        assert served.put("a", container=name).code == (404, "ContainerNotFound")
    assert not (served.folder.parent / "gone").exists()


def test_what_is_not_supported_is_refused_with_a_sentence(served):
    served.put("a")
    answers = [
        served.ask("GET", "a", headers={"if-none-match": "*"}),
        served.ask("GET", "a", headers={"x-ms-range": "bytes=0-1", "x-ms-range-get-content-crc64": "true"}),
        served.put("a", headers={"if-match": "*"}),
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


LEADING = {"link": 201, "link/secret": 409, "file-link": 201, "folder": 409, "pipe": 201}
"""Links and others, with what becomes of a blob that is put there: it takes their place, and goes nowhere else."""

ELSEWHERE = [
    "../secret",
    "a/../../secret",
    "%2e%2e/secret",
    "%2e%2e%2fsecret",
    "..%2Fsecret",
    "a/%2e%2e/%2e%2e/secret",
    "..%5csecret",
    "%2e%2e%c0%afsecret",
    "/secret",
    "//secret",
    "{root}/secret",
    "%2f{root}%2fsecret",
    "a//b",
    "a/./b",
    "./a",
    "a/",
    "a%00b",
    "%00",
    ".drumline-blobs/lock",
    ".drumline-blobs%2fproperties",
    "a/" * 600,
    "n" * 300,
    "%ff",
    *LEADING,
]


@pytest.mark.parametrize("name", ELSEWHERE)
@pytest.mark.parametrize("root", [PREFIX, ""])
def test_no_name_leads_out_of_the_container(served, root, name):
    """However it is spelled: encoded or not, by a link, or into the container's own state."""
    outside = served.folder.parent / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (served.folder.parent / "secret").write_text("secret")
    served.put("a/kept")
    (served.folder / "link").symlink_to(outside)
    (served.folder / "file-link").symlink_to(outside / "secret")
    (served.folder / "folder").mkdir()
    os.mkfifo(served.folder / "pipe")
    before = sorted(served.folder.parent.rglob("*"))
    target = f"{root}/data/{name.replace('{root}', quote(str(served.folder.parent)))}"
    sas = sign(KEY, "data", ALL, 60)
    assert served.send("GET", f"{target}?{sas}").status == 404
    assert served.send("HEAD", f"{target}?{sas}").status == 404
    if name in LEADING:
        assert served.send("PUT", f"{target}?{sas}", b"new", BLOB).status == LEADING[name]
    else:
        for query in ("", "&comp=metadata", f"&comp=block&blockid={to_id('1')}", "&comp=blocklist"):
            assert served.send("PUT", f"{target}?{sas}{query}", b"new", BLOB).status == 400
        assert served.send("DELETE", f"{target}?{sas}").status == 400
        assert sorted(served.folder.parent.rglob("*")) == before
    assert (outside / "secret").read_text() == (served.folder.parent / "secret").read_text() == "secret"
    assert os.listdir(outside) == ["secret"]
    assert not any("secret" in one for one in served.list().names())


def test_a_link_is_replaced_and_not_written_through(served):
    outside = served.folder.parent / "outside"
    outside.write_text("secret")
    served.put("a")
    (served.folder / "link").symlink_to(outside)
    assert served.put("link", b"new").status == 201
    assert outside.read_text() == "secret"
    assert (served.folder / "link").read_bytes() == b"new"


def test_a_name_that_is_encoded_twice_is_a_plain_one(served):
    assert served.put("%2e%2e/a", b"plain").status == 201
    assert (served.folder / "%2e%2e" / "a").read_bytes() == b"plain"
    assert served.ask("GET", "%2e%2e/a").body == b"plain"


def test_names_that_no_blob_can_have_are_in_no_list(served):
    served.put("a")
    for name in (b"not\xffutf-8", b"back\\slash", b"line\nend"):
        (served.folder / os.fsdecode(name)).write_text("")
    assert served.list().names() == ["a", "line%0Aend"]
    assert b'<Name Encoded="true">line%0Aend</Name>' in served.list().body


def test_a_list_goes_on_past_what_is_removed_meanwhile_and_what_lies_too_deep(served, request):
    for name in "abc":
        served.put(f"{name}/{name}")
        served.put(name * 3)
    # Before pytest removes its folders: it goes down by calls.
    request.addfinalizer(lambda: subprocess.run(["rm", "-r", served.folder / "d"], check=True))
    place = os.open(served.folder, os.O_RDONLY)
    for _ in range(1200):
        os.mkdir("d", dir_fd=place)
        inner = os.open("d", os.O_RDONLY, dir_fd=place)
        os.close(place)
        place = inner
    os.close(place)
    found = list_blobs(Container(str(served.folder)), "", "", by_folder=False)
    assert next(found)[0] == "a/a"
    (served.folder / "aaa").unlink()
    shutil.rmtree(served.folder / "b")
    assert [name for name, _ in found] == ["bbb", "c/c", "ccc"]


def test_a_state_that_is_a_link_is_not_written_to(served, tmp_path):
    served.folder.mkdir()
    (tmp_path / "outside").mkdir()
    (served.folder / ".drumline-blobs").symlink_to(tmp_path / "outside")
    assert served.put("a").code == (409, "ResourceTypeMismatch")
    assert served.put_block("a", "1", b"one").code == (409, "ResourceTypeMismatch")
    assert os.listdir(tmp_path / "outside") == []


def test_a_body_without_its_length_is_refused(served):
    sas = sign(KEY, "data", ALL, 60)
    with socket.create_connection(("127.0.0.1", served.port), 20.0 * PATIENCE) as client:
        head = f"PUT {PREFIX}/data/a?{sas} HTTP/1.1\r\nHost: a\r\nx-ms-blob-type: BlockBlob\r\n"
        client.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n4\r\ntext\r\n0\r\n\r\n".encode())
        assert client.recv(100).startswith(b"HTTP/1.1 411 ")
    assert served.ask("GET", "a").status == 404


@pytest.mark.parametrize("length", [str(6 << 30), "9" * 18])
def test_a_body_that_is_too_large_is_refused_before_it_is_sent(served, length):
    sas = sign(KEY, "data", ALL, 60)
    with socket.create_connection(("127.0.0.1", served.port), 20.0 * PATIENCE) as client:
        head = f"PUT {PREFIX}/data/a?{sas} HTTP/1.1\r\nHost: a\r\nx-ms-blob-type: BlockBlob\r\n"
        client.sendall(f"{head}Content-Length: {length}\r\n\r\n".encode())
        assert client.recv(100).startswith(b"HTTP/1.1 413 ")


def test_a_body_that_is_cut_leaves_nothing(served):
    served.put("a", b"before")
    sas = sign(KEY, "data", ALL, 60)
    with socket.create_connection(("127.0.0.1", served.port), 20.0 * PATIENCE) as client:
        head = f"PUT {PREFIX}/data/a?{sas} HTTP/1.1\r\nHost: a\r\nx-ms-blob-type: BlockBlob\r\n"
        client.sendall(f"{head}Content-Length: 10000000\r\n\r\n".encode() + b"x" * 1_000_000)
        wait_until(lambda: len(served.files()) == 2, 20.0, "the upload to begin")
    wait_until(lambda: served.files() == ["a"], 20.0, "the upload to be discarded")
    assert served.ask("GET", "a").body == b"before"


def test_a_refusal_is_read_after_a_long_body(served):
    """A client that may not send its body to the end sees a broken connection, and tries again for minutes."""
    served.put("a")
    assert served.put("a", b"x" * (20 << 20), {"if-none-match": "*"}).code == (409, "BlobAlreadyExists")
    assert served.put("a", b"x" * (20 << 20), sas="sig=a").code == (403, "AuthenticationFailed")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "InvalidXmlDocument"),
        (b"<BlockList>", "InvalidXmlDocument"),
        (b"<Other/>", "InvalidXmlDocument"),
        (b"<BlockList><Oldest>MQ==</Oldest></BlockList>", "InvalidXmlDocument"),
        (b'<!DOCTYPE a [<!ENTITY b "c">]><BlockList>&b;</BlockList>', "InvalidXmlDocument"),
        (
            '<?xml version="1.0" encoding="utf-16"?><!DOCTYPE a><BlockList/>'.encode("utf-16"),
            "InvalidXmlDocument",
        ),
        (b"<BlockList><Latest>no base64</Latest></BlockList>", "InvalidBlockId"),
        (b"<BlockList><Latest/></BlockList>", "InvalidBlockId"),
        (b"<BlockList><Latest>Li4vLi4vYQ==</Latest></BlockList>", "InvalidBlockList"),
        (b"<BlockList>" + b"<Latest>MQ==</Latest>" * 50_001 + b"</BlockList>", "BlockListTooLong"),
    ],
)
def test_a_list_that_is_none_is_refused(served, body, code):
    served.put("a", b"before")
    assert served.ask("PUT", "a", body, comp="blocklist").code == (400, code)
    assert served.ask("GET", "a").body == b"before"


@pytest.mark.parametrize("block", ["", "a" * 65])
def test_the_id_of_a_block_has_64_bytes_at_most(served, block):
    assert served.put_block("a", block, b"text").code == (400, "InvalidBlockId")
    assert served.put_block("a", "a" * 64, b"text").status == 201


@pytest.mark.parametrize("name", ["x-ms-meta-a-b", "x-ms-meta-1", "x-ms-meta-", "x-ms-meta-a.b"])
def test_metadata_whose_name_is_no_element_of_xml_is_refused(served, name):
    assert served.put("a", headers={name: "1"}).code == (400, "InvalidMetadata")
    assert served.put("a", headers={"x-ms-meta-a": "1" * 9000}).code == (400, "MetadataTooLarge")
    assert served.files() == []


def test_uploads_that_nobody_goes_on_with_are_removed_after_a_day(served):
    served.put_block("old", "1", b"one")
    served.put_block("new", "1", b"one")
    uploads = served.folder / ".drumline-blobs" / "uploads"
    (uploads / "killed.partial").write_text("half")
    old = [path for path in served.folder.rglob("*") if path.suffix == ".partial"]
    old.append(uploads / hashlib.sha256(b"old").hexdigest())
    for path in old:
        os.utime(path, (0, 0))
    served.put("another")
    assert not any(path.exists() for path in old)
    assert served.commit("new", "1").status == 201


def test_a_full_disk_is_a_sentence_and_leaves_nothing(served, request):
    served.folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "none", served.folder], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("a disk cannot be mounted here")
    request.addfinalizer(lambda: subprocess.run(["umount", "-l", served.folder], check=True))
    served.put("a", b"before")
    answer = served.put("a", b"x" * (5 << 20))
    assert answer.code == (507, "InsufficientStorage")
    assert b"the disk of this container is full" in answer.body
    served.put_block("a", "1", b"x" * (3 << 20))
    assert served.put_block("a", "2", b"x" * (3 << 20)).code == (507, "InsufficientStorage")
    assert served.commit("a", "1").code == (507, "InsufficientStorage")
    assert served.ask("GET", "a").body == b"before"
    assert [name for name in served.files() if name.endswith(".partial")] == []
    assert served.put("b", b"room for this").status == 201
    subprocess.run(["mount", "-o", "remount,ro", served.folder], check=True)
    assert served.put("b").code == (403, "InsufficientAccountPermissions")
    assert served.ask("DELETE", "b").code == (403, "InsufficientAccountPermissions")
    assert served.ask("GET", "b").body == b"room for this"


def test_many_write_one_blob_at_once_and_one_of_them_is_there(served):
    bodies = [bytes([number]) * 300_000 for number in range(20)]
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda body: served.put("a", body), bodies))
    assert {one.status for one in answers} == {201}
    read = served.ask("GET", "a")
    assert read.body in bodies
    assert read.headers["etag"] in {one.headers["etag"] for one in answers}
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda body: served.put("b", body, {"if-none-match": "*"}), bodies))
    assert sorted(one.status for one in answers) == [201] + [409] * 19


def test_files_of_a_job_are_read_and_nothing_else_of_it(served):
    job = MadeJob("calm")
    folder = Path(job.folder.path)
    (folder / "outputs" / "model").mkdir()
    (folder / "outputs" / "model" / "m.bin").write_bytes(b"model")
    (folder / "user_logs" / "std_log.txt").write_text("hello")
    (folder / "outputs" / "link").symlink_to("/etc")
    (folder / "logs").symlink_to("/etc")
    run = "ExperimentRun/dcid.calm/"
    names = [f"{run}outputs/model/m.bin", f"{run}user_logs/std_log.txt"]
    assert served.list("runs", prefix=run).names() == names
    assert served.list("runs", prefix=run, delimiter="/").names() == [f"{run}outputs/", f"{run}user_logs/"]
    assert served.list("runs", prefix=f"{run}outputs/mo").names() == names[:1]
    assert served.ask("GET", names[0], container="runs").body == b"model"
    log = sign(KEY, "runs", "r", 60, names[1])
    assert served.ask("GET", names[1], container="runs", sas=log).body == b"hello"
    assert served.ask("GET", names[0], container="runs", sas=log).status == 403
    others = [
        "plan.json",
        "events.jsonl",
        "outputs/link/passwd",
        "outputs/../plan.json",
        "logs/passwd",
        "outputs",
        "",
    ]
    for name in others:
        assert served.ask("GET", run + name, container="runs").code == (404, "BlobNotFound")
    for name in (
        "ExperimentRun/dcid.none/a",
        "ExperimentRun/dcid.",
        "ExperimentRun/dcid.../jobs",
        "other",
        run[:-1],
    ):
        assert served.ask("GET", name, container="runs").code == (404, "BlobNotFound")
        assert served.list("runs", prefix=name).names() == []
    assert served.put(names[0], container="runs").code == (403, "AuthorizationPermissionMismatch")
    assert served.ask("DELETE", names[0], container="runs").code == (403, "AuthorizationPermissionMismatch")


def test_a_job_of_another_user_is_not_shown(served, monkeypatch):
    job = MadeJob("calm")
    (Path(job.folder.path) / "outputs" / "m").write_text("model")
    name = "ExperimentRun/dcid.calm/outputs/m"
    assert served.ask("GET", name, container="runs").status == 200
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert served.ask("GET", name, container="runs").code == (404, "BlobNotFound")
    assert served.list("runs", prefix="ExperimentRun/dcid.calm/").names() == []


def test_a_named_output_is_listed_below_its_own_prefix_alone(served):
    job = MadeJob("calm", outputs={"model": Output(type="uri_folder")})
    place = Path(job.plan.user_env["AZURE_ML_OUTPUT_model"])
    place.mkdir(parents=True)
    (place / "m").write_text("model")
    run = "ExperimentRun/dcid.calm/"
    name = f"{run}named-outputs/model/m"
    assert served.list("runs", prefix=name[:-1]).names() == []  # It may not be whole.
    job.add(e.JobEnded(1002.0, status.COMPLETED, 0, ""))
    assert served.list("runs", prefix=name[:-1]).names() == [name]
    assert served.ask("GET", name, container="runs").body == b"model"
    assert served.list("runs", prefix=run).names() == []
    for other in ("other", "artifacts", ""):
        assert served.list("runs", prefix=f"{run}named-outputs/{other}/").names() == []
    assert not Path(job.folder.path, "artifacts").exists()


def test_the_container_of_a_datastore_is_its_folder(drumline_home, tmp_path):
    found = open_datastore("workspaceblobstore", "")
    assert found.folder == str(drumline_home / "datastores" / "workspaceblobstore")
    assert found.is_ours
    datastore_verbs.create(LocalDatastore(name="mine", path=str(tmp_path)))
    assert open_datastore("mine", "") == Container(str(tmp_path))
    assert isinstance(open_datastore("workspaceartifactstore", ""), JobContainer)
    with pytest.raises(NotFoundError):
        open_datastore("other", "")
