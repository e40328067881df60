"""Repositories of the Hugging Face hub, on a server that gives the answers which are needed."""

import hashlib
import os
from pathlib import Path

import pytest
from store_reading import found_in, whole

from drumline.contract.errors import NodeError

pytest.importorskip("huggingface_hub")

LARGE = os.urandom(5000)


@pytest.fixture(autouse=True)
def known(hub, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    hub.files = {
        "datasets/lab/digits/train/0.bin": LARGE,
        "datasets/lab/digits/README.md": b"# Digits",
        "models/lab/net/model.bin": LARGE,
    }
    monkeypatch.setattr(constants, "ENDPOINT", hub.address)  # HF_ENDPOINT, which is read at the import
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", "/nonexistent")


def test_a_dataset_is_listed_and_read(open_uri):
    store = open_uri("hf://datasets/lab/digits")
    found = found_in(store)
    assert {path: one.size for path, one in found.items()} == {"train/0.bin": 5000, "README.md": 8}
    assert whole(store, found["train/0.bin"], 999) == LARGE
    assert whole(store, found["README.md"]) == b"# Digits"
    assert store.digest(found["train/0.bin"]) == ("sha256", hashlib.sha256(LARGE).hexdigest())
    assert store.digest(found["README.md"]) is None


def test_a_folder_and_a_file_of_a_revision(open_uri):
    assert list(found_in(open_uri("hf://datasets/lab/digits@v2/train"))) == ["0.bin"]
    store = open_uri("hf://lab/net@main/model.bin")
    assert (store.stat().path, whole(store, store.stat())) == ("", LARGE)
    assert open_uri("hf://lab/net/other.bin").stat() is None
    assert found_in(open_uri("hf://lab/net/other")) == {}


def test_the_token_goes_to_the_hub_alone(open_uri, hub, monkeypatch: pytest.MonkeyPatch):
    hub.token = "hf_secret"
    with pytest.raises(NodeError, match="not for everybody") as caught:
        open_uri("hf://lab/net")
    assert "HF_TOKEN" in caught.value.hint
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    store = open_uri("hf://lab/net")
    assert whole(store, found_in(store)["model.bin"]) == LARGE
    assert hub.carried == [""]


@pytest.mark.parametrize("uri", ["hf://lab/nothing", "hf://lab/net@v3", "hf://la--b/n..et"])
def test_what_is_not_there(open_uri, uri):
    with pytest.raises(NodeError):
        open_uri(uri)


def test_a_name_that_is_none_here(open_uri, hub):
    hub.files["models/lab/net/../up"] = b""
    with pytest.raises(NodeError, match="whose name leads out"):
        found_in(open_uri("hf://lab/net"))


def test_nothing_is_written(open_uri, tmp_path: Path):
    with pytest.raises(NodeError, match="only reads the hub"):
        open_uri("hf://lab/net").put("a", str(tmp_path), len)
