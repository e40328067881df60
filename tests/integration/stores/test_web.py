"""Files of web servers: good ones, and what servers and networks do wrong."""

import base64
import hashlib
import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest
from http_server import HttpServer, http_server
from store_reading import whole

from drumline.contract.errors import NodeError
from drumline.staging.stores import connection
from drumline.staging.stores import web as web_store
from drumline.staging.stores.store import ObjectChangedError

CONTENT = os.urandom(1_000_000)


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"head": False},
        {"etag": None},
        {"etag": 'W/"weak"'},
        {"cuts": [300_000, 200_000, 1]},
        {"always_cut": 100_000},
        {"failures": [500, 503, 429]},
        {"ranges": False},
        {"ranges": False, "cuts": [300_000, 200_000, 1]},
    ],
)
def test_is_read_in_parts_and_as_a_whole(web, open_uri, how):
    for part in (1 << 20, 333_333):
        web.serve(
            "/data/a.bin", CONTENT, **{key: list(v) if isinstance(v, list) else v for key, v in how.items()}
        )
        store = open_uri(web.url("/data/a.bin"))
        found = store.stat()
        assert (found.path, found.size, store.can_list) == ("", len(CONTENT), False)
        assert store.ranges == how.get("ranges", True)
        assert whole(store, found, part) == CONTENT


def test_without_ranges_one_request_is_enough_for_all_parts(web, open_uri):
    served = web.serve("/a", CONTENT, ranges=False)
    store = open_uri(web.url("/a"))
    found = store.stat()
    assert whole(store, found, 100_000) == CONTENT
    assert len(served.requests) == 2
    assert store.read(found, 500, 600) == CONTENT[500:600]


def test_only_what_is_missing_is_asked_for_again(web, open_uri):
    served = web.serve("/a", CONTENT, cuts=[400_000])
    store = open_uri(web.url("/a"))
    whole(store, store.stat())
    first, second, third = [asked["range"] for asked in served.requests]
    assert (first, second) == ("bytes=0-0", "bytes=0-999999")
    # What is on its way when a connection is reset does not arrive.
    assert 0 < int(third.removeprefix("bytes=").removesuffix("-999999")) <= 400_000
    assert {asked["accept-encoding"] for asked in served.requests} == {"identity"}


def test_a_length_that_nobody_tells(web, open_uri):
    web.serve("/a", CONTENT, ranges=False, is_chunked=True)
    store = open_uri(web.url("/a"))
    found = store.stat()
    assert found.size == -1
    assert store.read(found, 0, 600_000) + store.read(found, 600_000, 1 << 30) == CONTENT


@pytest.mark.parametrize("told", ["*", "\u00b2", "9" * 5000])
def test_a_size_that_is_none(web, open_uri, told):
    web.serve("/a", CONTENT, told_total=told)
    store = open_uri(web.url("/a"))
    found = store.stat()
    assert (found.size, store.ranges) == (-1, False)
    assert store.read(found, 0, len(CONTENT) + 1) == CONTENT


def test_an_empty_file(web, open_uri):
    web.serve("/a", b"")
    found = open_uri(web.url("/a")).stat()
    assert found.size == 0


def test_lengths_that_are_wrong(web, open_uri):
    web.serve("/longer", CONTENT, ranges=False, told=len(CONTENT) + 10)
    web.serve("/shorter", CONTENT, ranges=False, told=len(CONTENT) - 10)
    longer, shorter = open_uri(web.url("/longer")), open_uri(web.url("/shorter"))
    with pytest.raises(NodeError, match="cut off after 1000000 bytes of 1000010"):
        whole(longer, longer.stat())
    with pytest.raises(NodeError, match="more bytes than the 999990"):
        whole(shorter, shorter.stat())


@pytest.mark.parametrize("length", [str(1 << 60), "-5", "1e6", "", "0x10", "10, 11", "9" * 5000])
def test_a_length_that_no_file_has(web, open_uri, length):
    """It counted as unknown, and so every file as whole, wherever it broke off."""
    web.serve("/a", CONTENT, ranges=False, told=length)
    with pytest.raises(NodeError, match=r"the server announced '.*' as its length"):
        open_uri(web.url("/a")).stat()


def test_a_length_may_be_repeated(web, open_uri):
    web.serve("/a", CONTENT, ranges=False, told=f"{len(CONTENT)}, {len(CONTENT)}")
    store = open_uri(web.url("/a"))
    assert whole(store, store.stat()) == CONTENT


def test_a_size_that_only_the_whole_file_tells(web, open_uri):
    """A part names no size, and the whole file breaks off before its length."""
    web.serve("/a", CONTENT, told_total="*", told=len(CONTENT) + 10)
    store = open_uri(web.url("/a"))
    with pytest.raises(NodeError, match="cut off after 1000000 bytes"):
        store.read(store.stat(), 0, 1 << 30)
    web.serve("/b", CONTENT, told_total="*")
    store = open_uri(web.url("/b"))
    found = store.stat()
    assert store.read(found, 0, len(CONTENT)) == CONTENT
    assert store.read(found, len(CONTENT), 1 << 30) == b""


@pytest.mark.parametrize("content_range", ["bytes 0-/1000000", "bytes 5-9/1000000", "bytes 0-0/-5"])
def test_a_part_that_was_not_asked_for(web, open_uri, content_range):
    """An empty part was asked for again without end; a part of a file passed as all of it."""
    store = open_uri(web.url("/a"))
    web.serve("/a", CONTENT, always_part=content_range)
    with pytest.raises(NodeError, match=r"the server sent (another range|a part)"):
        store.read(store.stat(), 0, 1 << 20)


@pytest.mark.parametrize("how", [{}, {"cuts": [300_000]}, {"ranges": False}, {"etag": None, "ranges": False}])
def test_what_changes_in_the_middle_is_not_mixed(web, open_uri, how):
    web.serve("/a", CONTENT, **how, changes={2 if "cuts" in how else 1: bytes(1_000_000) + b"longer"})
    store = open_uri(web.url("/a"))
    with pytest.raises((ObjectChangedError, NodeError)):
        whole(store, store.stat())


def test_nothing_is_there(web, open_uri):
    assert open_uri(web.url("/a")).stat() is None


@pytest.mark.parametrize(("status", "asked"), [(403, 1), (401, 1), (400, 1), (500, 5)])
def test_what_the_server_does_not_give(web, open_uri, status, asked):
    served = web.serve("/a", failures=[status] * 9)
    with pytest.raises(NodeError, match=str(status)):
        open_uri(web.url("/a?token=secret")).stat()
    assert len(served.requests) == asked


def test_a_signature_is_in_no_message(web, open_uri):
    web.serve("/a", failures=[403])
    with pytest.raises(NodeError) as caught:
        open_uri(web.url("/a?sig=secret").replace("//", "//user:word@")).stat()
    assert "secret" not in str(caught.value)
    assert "word" not in str(caught.value)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"Repr-Digest": "sha-256=:{sha256}:"}, "sha256"),
        ({"Digest": "MD5={md5},SHA-256={sha256}"}, "sha256"),
        ({"Content-MD5": "{md5}"}, "md5"),
        ({"x-goog-hash": "crc32c=AAAAAA==, md5={md5}"}, "md5"),
        ({"x-ms-blob-content-md5": "{md5}"}, "md5"),
        ({"Digest": "sha-256=tooshort"}, None),
        ({}, None),
    ],
)
def test_the_digest_that_the_server_gives(web, open_uri, headers, expected):
    digests = {"md5": hashlib.md5(CONTENT), "sha256": hashlib.sha256(CONTENT)}
    texts = {name: base64.b64encode(digest.digest()).decode() for name, digest in digests.items()}
    web.serve("/a", CONTENT, headers={name: text.format(**texts) for name, text in headers.items()})
    store = open_uri(web.url("/a"))
    found = store.stat()
    assert store.digest(found) == ((expected, digests[expected].hexdigest()) if expected else None)


class TestRedirects:
    def test_are_followed_without_the_password(self, web, open_uri):
        with http_server() as other:
            target = other.serve("/b", CONTENT)
            first = web.serve("/a", redirect=other.url("/b"))
            store = open_uri(web.url("/a").replace("//", "//user:pass%40word@"))
            assert whole(store, store.stat()) == CONTENT
        assert first.requests[0]["authorization"] == "Basic " + base64.b64encode(b"user:pass@word").decode()
        assert all("authorization" not in asked for asked in target.requests)

    def test_on_one_host_it_goes_along(self, web, open_uri):
        web.serve("/a", redirect="b")
        served = web.serve("/b", CONTENT)
        open_uri(web.url("/a").replace("//", "//user:word@")).stat()
        assert "authorization" in served.requests[0]

    def test_not_for_ever(self, web, open_uri):
        served = web.serve("/a", redirect="/a")
        with pytest.raises(NodeError, match="more than 5 times"):
            open_uri(web.url("/a")).stat()
        assert len(served.requests) == 6

    @pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://127.0.0.1/a", "http://["])
    def test_not_to_what_is_no_http(self, web, open_uri, target):
        web.serve("/a", redirect=target)
        with pytest.raises(NodeError, match="that is not HTTP"):
            open_uri(web.url("/a")).stat()

    @pytest.mark.parametrize(
        "host",
        [
            "169.254.169.254",
            "2852039166",
            "0xa9.0xfe.0xa9fe",
            "[::ffff:169.254.169.254]",
            "[fe80::1]",
            "168.63.129.16",
            "[fd00:ec2::254]",
        ],
    )
    @pytest.mark.parametrize("proxy", ["", "http://127.0.0.1:9"])
    def test_not_to_where_a_machine_gets_its_credentials(self, web, open_uri, monkeypatch, host, proxy):
        monkeypatch.setenv("http_proxy", proxy)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        web.serve("/a", redirect=f"http://{host}/latest/meta-data/")
        with pytest.raises(NodeError, match=r"redirects to \S+( \(\S+\))?, which is not followed"):
            open_uri(web.url("/a")).stat()

    def test_nor_to_a_name_of_such_an_address(self, web, open_uri, monkeypatch):
        known = socket.getaddrinfo
        of_metadata = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("169.254.169.254", 0))]
        monkeypatch.setattr(
            socket,
            "getaddrinfo",
            lambda host, *rest, **how: of_metadata if host == "far.test" else known(host, *rest, **how),
        )
        web.serve("/a", redirect="http://far.test/")
        with pytest.raises(NodeError, match=r"redirects to far.test \(169.254.169.254\)"):
            open_uri(web.url("/a")).stat()


class TestEncrypted:
    @pytest.fixture
    def certificate(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        """Of 127.0.0.1, which nobody trusts, in one file with its key."""
        if not shutil.which("openssl"):
            pytest.skip("no openssl here, which makes certificates")
        made = tmp_path / "certificate.pem"
        options = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=127.0.0.1"]
        options += [
            "-addext",
            "subjectAltName=IP:127.0.0.1",
            "-keyout",
            made,
            "-out",
            tmp_path / "public.pem",
        ]
        subprocess.run(["openssl", "req", "-x509", *options], check=True, capture_output=True)
        made.write_text(made.read_text() + (tmp_path / "public.pem").read_text())
        connection._context.cache_clear()
        yield str(made)
        connection._context.cache_clear()

    def test_who_is_not_trusted_is_asked_nothing(self, open_uri, certificate):
        with http_server(certificate) as server:
            served = server.serve("/a", CONTENT)
            with pytest.raises(NodeError, match="certificate is not trusted"):
                open_uri(server.url("/a")).stat()
        assert not served.requests

    def test_it_does_not_lead_to_what_is_not(self, web, open_uri, certificate, monkeypatch):
        monkeypatch.setenv("SSL_CERT_FILE", certificate)
        plain = web.serve("/a", CONTENT)
        with http_server(certificate) as server:
            server.serve("/a", CONTENT)
            server.serve("/b", redirect=web.url("/a"))
            store = open_uri(server.url("/a"))
            assert whole(store, store.stat()) == CONTENT
            with pytest.raises(NodeError, match="from https to http"):
                open_uri(server.url("/b")).stat()
        assert not plain.requests


@pytest.mark.parametrize("user", ["me:word", "token", "me:"])
@pytest.mark.parametrize("scheme", ["http://", "https://", ""])
def test_a_proxy_is_asked_in_plain_http(
    web: HttpServer, open_uri, monkeypatch: pytest.MonkeyPatch, user, scheme
):
    served = web.serve("http://nowhere.invalid/a", CONTENT)
    proxy = f"{user}@{web.address.removeprefix('http://')}"
    monkeypatch.setenv("http_proxy", scheme + proxy + "/")
    store = open_uri("http://nowhere.invalid:80/a#part")
    assert whole(store, store.stat()) == CONTENT
    expected = base64.b64encode(f"{user}{'' if ':' in user else ':'}".encode()).decode()
    assert served.requests[0]["proxy-authorization"] == f"Basic {expected}"
    assert served.requests[0]["host"] == "nowhere.invalid"


def test_a_name_in_another_alphabet_is_sent_in_ascii(
    web: HttpServer, open_uri, monkeypatch: pytest.MonkeyPatch
):
    served = web.serve("http://xn--bcher-kva.invalid/a", CONTENT)
    monkeypatch.setenv("http_proxy", web.address)
    store = open_uri("http://bücher.invalid/a")
    assert whole(store, store.stat()) == CONTENT
    assert served.requests[0]["host"] == "xn--bcher-kva.invalid"


@pytest.mark.parametrize(("scheme", "variables"), [("http", "HTTP_PROXY"), ("https", "HTTPS_PROXY")])
@pytest.mark.parametrize("is_lower", [False, True])
def test_nobody_answers(open_uri, monkeypatch, scheme, variables, is_lower):
    """The hint names the variable that is set, or that could be."""
    name = variables.lower() if is_lower else variables
    if is_lower:
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for host, why in (("127.0.0.1:9", "connection refused"), ("nowhere.invalid", "cannot be resolved")):
        monkeypatch.setenv("no_proxy", host.partition(":")[0])
        with pytest.raises(NodeError, match=why) as caught:
            open_uri(f"{scheme}://{host}/a").stat()
        assert caught.value.hint.endswith(f", and {name}")


@pytest.mark.parametrize("url", ["http://me:pa/canary@h/x", "http://me:canary@h:99999/x"])
def test_an_address_with_a_bad_port_does_not_redirect(url):
    with pytest.raises(NodeError, match=r"^http://\.\.\.@h\S* has a host or port that is not valid$"):
        connection.send_request("GET", url, {})


def test_it_is_one_file_that_is_not_written(web, open_uri, tmp_path: Path):
    store = open_uri(web.url("/a"))
    with pytest.raises(NodeError, match="one file"):
        store.list()
    with pytest.raises(NodeError, match="cannot write to"):
        store.put("a", str(tmp_path), len)
    assert isinstance(store, web_store.WebStore)
