"""What of an output is written elsewhere: what has changed, plain files alone, and nothing from outside its folder."""

import json
import os
import socket
from pathlib import Path

import pytest
from shelf import Shelf

from drumline.contract.errors import NodeError
from drumline.contract.folder import RunFolder
from drumline.contract.plan import Upload
from drumline.contract.uris import parse_uri
from drumline.staging.transfer import outputs

URI = "wasbs://out@shelf.blob.core.windows.net/?sig=secret"


@pytest.fixture
def out(tmp_path):
    folder = tmp_path / "run" / "named-outputs" / "model"
    (folder / "sub").mkdir(parents=True)
    (folder / "a").write_text("a")
    (folder / "sub" / "b").write_text("b")
    return folder


@pytest.fixture
def send(tmp_path, capfd):
    """What was written, by relative path, and what was said of it."""

    def run(source, kind="folder", store=None, *, always=False):
        store = store or Shelf(tmp_path)
        one = Upload("outputs.model", str(source), URI, kind, always)
        outputs.upload_outputs(RunFolder(str(tmp_path / "run")), [one], lambda _: (parse_uri(URI), store))
        said = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
        return store.written, [one for one in said if one["type"] == "transferred"]

    return run


def test_all_files_and_then_those_that_changed(send, out):
    written, said = send(out)
    assert written == {"a": b"a", "sub/b": b"b"}
    assert (said[0]["uri"], said[0]["size_bytes"], said[0]["file_count"]) == (
        URI.replace("sig=secret", "..."),
        2,
        2,
    )
    (out / "a").write_text("aa")
    (out / "new").write_text("new")
    written, said = send(out)
    assert written == {"a": b"aa", "new": b"new"}
    assert said[0]["note"] == "1 unchanged"
    assert send(out)[0] == {}


def test_one_file_is_the_place_itself(send, out):
    assert send(out / "a", "file")[0] == {"": b"a"}


@pytest.mark.parametrize(
    ("source", "kind", "words"),
    [
        ("none", "file", "outputs.model: the job did not write it"),
        ("none", "folder", "outputs.model: the job did not write it"),
        ("a", "folder", "must be a folder, but .*/a is a file"),
        ("sub", "file", "must be a file, but .*/sub is a folder"),
    ],
)
def test_what_is_not_there_or_of_another_kind(send, out, source, kind, words):
    with pytest.raises(NodeError, match=words):
        send(out / source, kind)


def test_a_mount_that_nothing_was_written_to_is_no_error(send, out, capfd):
    assert send(out / "none", always=True) == ({}, [])


def test_plain_files_alone_and_links_within(tmp_path, out, capfd):
    (tmp_path / "secret").write_text("secret")
    os.mkfifo(out / "pipe")
    listening = socket.socket(socket.AF_UNIX)
    here = os.getcwd()
    os.chdir(out)
    listening.bind("socket")
    os.chdir(here)
    (out / "within").symlink_to("sub/b")
    (out / "folder").symlink_to("sub")
    (out / "outside").symlink_to(tmp_path / "secret")
    (out / "etc").symlink_to("/etc")
    (out / "nowhere").symlink_to("gone")
    (out / "sub" / "circle").symlink_to("..")
    store = Shelf(tmp_path)
    one = Upload("outputs.model", str(out), URI, "folder", always=False)
    outputs.upload_outputs(RunFolder(str(tmp_path / "run")), [one], lambda _: (parse_uri(URI), store))
    listening.close()
    assert sorted(store.written) == ["a", "folder/b", "sub/b", "within"]
    log = capfd.readouterr().err
    assert sorted(line.split("'")[1] for line in log.splitlines()) == [
        "etc", "folder/circle", "nowhere", "outside", "pipe", "socket", "sub/circle",
    ]  # fmt: skip
    assert "secret" not in log


def test_a_name_that_is_no_text_is_an_error_after_all_others(send, out):
    Path(os.fsdecode(os.fsencode(out) + b"/\xff")).write_text("x")
    store = Shelf(out)
    with pytest.raises(NodeError, match=r"not UTF-8 cannot be uploaded: '\\udcff'"):
        send(out, store=store)
    assert sorted(store.written) == ["a", "sub/b"]


def test_after_an_error_what_was_written_is_not_written_again(send, out):
    store = Shelf(out)
    honest = store.put

    def put(relative, file, on_bytes):
        if relative == "sub/b":
            raise NodeError("the line is cut")
        honest(relative, file, on_bytes)

    store.put = put
    (out / "sub" / "b").write_text("b" * 10)
    with pytest.raises(NodeError, match="the line is cut"):
        send(out, store=store)
    first = set(store.written)
    written, _ = send(out)
    assert set(written) | first == {"a", "sub/b"}
    assert not set(written) & first


@pytest.mark.parametrize("damage", ["", "[]", '{"outputs.model": 3}', '{"outputs.model": {"a": "x"}}'])
def test_a_damaged_note_is_none(send, out, tmp_path, damage):
    (tmp_path / "run" / "uploads.json").write_text(damage)
    assert set(send(out)[0]) == {"a", "sub/b"}
