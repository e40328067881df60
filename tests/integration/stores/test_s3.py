"""S3, on moto's server, and on one that breaks off."""

import hashlib
import os
from pathlib import Path

import pytest
from http_server import HttpServer
from services import S3Server
from store_reading import found_in, whole

from drumline.contract.errors import NodeError
from drumline.staging.stores.store import ObjectChangedError

FILES = {
    "v1/a.bin": b"zero" * 1000,
    "v1/sub/b # %20 ü.txt": b"b",
    "v1/empty/": b"",
    "v1/none": b"",
    "v10/c": b"no",
}


@pytest.fixture(autouse=True)
def known(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="module")
def bucket(s3_server: S3Server) -> str:
    s3_server.make_bucket("reading", FILES)
    return "reading"


def test_a_folder_is_listed_and_read(bucket, open_uri):
    store = open_uri(f"s3://{bucket}/v1/")
    found = found_in(store)
    assert set(found) == {"a.bin", "sub/b # %20 ü.txt", "none"}
    assert store.stat() is None
    for path, one in found.items():
        assert whole(store, one, 999) == FILES[f"v1/{path}"]
        assert store.digest(one) == ("md5", hashlib.md5(FILES[f"v1/{path}"]).hexdigest())


def test_a_file_is_one_object(bucket, open_uri):
    store = open_uri(f"s3://{bucket}/v1/a.bin")
    assert store.read(store.stat(), 2, 6) == b"roze"
    assert open_uri(f"s3://{bucket}/v1/b.bin").stat() is None


def test_what_was_written_or_removed_meanwhile_is_not_read(bucket, open_uri, s3_server):
    s3_server.put(bucket, "changing", b"old")
    store = open_uri(f"s3://{bucket}/changing")
    found = store.stat()
    s3_server.put(bucket, "changing", b"new")
    with pytest.raises(ObjectChangedError):
        store.read(found, 0, 3)


def test_files_are_written_and_large_ones_have_no_md5(bucket, open_uri, s3_server, tmp_path: Path):
    store = open_uri(f"s3://{bucket}/written")
    (tmp_path / "large").write_bytes(large := os.urandom(20 << 20))
    (tmp_path / "small").write_bytes(b"few")
    told: list[int] = []
    store.put("large", str(tmp_path / "large"), told.append)
    store.put("sub/small", str(tmp_path / "small"), told.append)
    assert sum(told) == len(large) + 3
    assert s3_server.get(bucket, "written/large") == large
    assert store.digest(found_in(store)["large"]) is None
    assert store.digest(found_in(store)["sub/small"]) is not None


@pytest.mark.parametrize("bad", ["../up", "a//b", "/root", "a/./b", "file/and-folder"])
def test_names_that_are_none_here_are_refused(open_uri, s3_server, bad):
    name = "bad" + hashlib.md5(bad.encode()).hexdigest()
    s3_server.make_bucket(name, {f"x/{bad}": b"1", "x/file": b"1"})
    with pytest.raises(NodeError, match="holds a file whose name") as caught:
        found_in(open_uri(f"s3://{name}/x"))
    assert (bad if bad.startswith(("a", "..")) else "") in caught.value.message


def test_a_bucket_that_is_not_there(open_uri):
    with pytest.raises(NodeError, match=r"NoSuchBucket"):
        found_in(open_uri("s3://nothing-here/x"))


def test_a_profile_is_asked(bucket, open_uri, s3_server, monkeypatch, tmp_path: Path):
    pytest.importorskip("botocore")
    for name in s3_server.environment:
        monkeypatch.delenv(name)
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws/config").write_text(
        f"[profile lab]\nregion = eu-west-1\nendpoint_url = {s3_server.endpoint}\n"
        "aws_access_key_id = a\naws_secret_access_key = b\n"
    )
    monkeypatch.setenv("AWS_PROFILE", "lab")
    assert open_uri(f"s3://{bucket}/v1/a.bin").stat().size == 4000
    monkeypatch.setenv("AWS_PROFILE", "other")
    with pytest.raises(NodeError, match="'other'"):
        open_uri(f"s3://{bucket}/v1/a.bin")


def test_who_has_no_key_is_told_what_to_set(bucket, open_uri, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    with pytest.raises(NodeError, match="403") as caught:
        open_uri(f"s3://{bucket}/v1/a.bin").stat()
    assert "without any credentials" in caught.value.hint
    assert "AWS_PROFILE" in caught.value.hint


class TestABadNetwork:
    CONTENT = os.urandom(1_000_000)

    @pytest.fixture(autouse=True)
    def bad(self, web: HttpServer, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AWS_ENDPOINT_URL", web.address)

    @pytest.mark.parametrize(
        "how",
        [
            {"cuts": [300_000, 100_000, 1]},
            {"failures": [503, 500, 429]},
            {"always_cut": 300_000},
        ],
    )
    def test_what_is_cut_off_is_asked_for_again(self, web, open_uri, how):
        web.serve("/b12/a", self.CONTENT, **how)
        store = open_uri("s3://b12/a")
        assert whole(store, store.stat()) == self.CONTENT

    def test_not_for_ever(self, web, open_uri):
        served = web.serve("/b12/a", self.CONTENT, always_cut=0)
        store = open_uri("s3://b12/a")
        with pytest.raises(NodeError, match="cut off"):
            whole(store, store.stat())
        assert len(served.requests) < 10

    def test_what_changes_in_the_middle_is_not_mixed(self, web, open_uri):
        web.serve("/b12/a", self.CONTENT, cuts=[300_000], changes={2: bytes(1_000_000)})
        store = open_uri("s3://b12/a")
        with pytest.raises(NodeError):
            whole(store, store.stat())

    @pytest.mark.parametrize("status", [401, 403, 400])
    def test_what_is_final_is_asked_once(self, web, open_uri, status):
        served = web.serve("/b12/a", self.CONTENT, failures=[status] * 9)
        with pytest.raises(NodeError, match=str(status)):
            open_uri("s3://b12/a").stat()
        assert len(served.requests) == 1
