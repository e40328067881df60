"""Google's storage: what can be seen of it on a plain web server, which its files are like."""

import hashlib
import os

import pytest
from http_server import HttpServer
from store_reading import whole

from drumline.contract.errors import NodeError

CONTENT = os.urandom(1_000_000)


@pytest.fixture(autouse=True)
def known(web: HttpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", web.address.removeprefix("http://"))


def test_a_file_is_read(web, open_uri):
    web.serve("/lab/digits/a.bin", CONTENT, cuts=[300_000])
    store = open_uri("gs://lab/digits/a.bin")
    found = store.stat()
    assert whole(store, found) == CONTENT
    assert store.digest(found) == ("md5", hashlib.md5(CONTENT).hexdigest())
    assert open_uri("gs://lab/digits/b.bin").stat() is None


def test_who_has_no_key_is_told_what_to_set(web, open_uri):
    web.serve("/lab/a", failures=[403])
    with pytest.raises(NodeError, match="403") as caught:
        open_uri("gs://lab/a").stat()
    assert "GOOGLE_APPLICATION_CREDENTIALS" in caught.value.hint
