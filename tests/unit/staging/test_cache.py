"""What is fetched is kept by its content, once, whole, and put where the ranks look."""

import errno
import hashlib
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import shelf
from shelf import Shelf, fetch
from waiting import wait_until

from drumline.contract.errors import NodeError
from drumline.staging.cache.cache_folder import Cache, is_safe
from drumline.staging.transfer import object_download

SHELF = Path(shelf.__file__)


@pytest.fixture
def cache(drumline_home):
    return Cache()


@pytest.fixture
def run(tmp_path):
    return str(tmp_path / "run")


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "data"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.txt").write_text("a")
    (folder / "sub" / "b.txt").write_text("b")
    (folder / "sub" / "same.txt").write_text("a")
    return folder


@pytest.fixture
def small_chunks(monkeypatch):
    """Of 1,000 bytes."""
    monkeypatch.setattr(object_download, "CHUNK_BYTES", 1000)


def content_of(cache):
    return [path for path in Path(cache.content).rglob("*") if path.is_file()]


def said(capfd):
    return [json.loads(line) for line in capfd.readouterr().out.splitlines()]


def files_in(folder):
    return {
        str(path.relative_to(folder)): path.read_text() for path in Path(folder).rglob("*") if path.is_file()
    }


def test_the_cache_is_in_the_base_home_and_its_owners_alone(cache, run, data, drumline_home):
    fetch(run, "d", Shelf(data))
    assert cache.path == str(drumline_home / "cache")
    for folder, _, names in os.walk(cache.path):
        assert stat.S_IMODE(os.stat(folder).st_mode) & 0o077 == 0, folder
        assert all(
            stat.S_IMODE(os.lstat(os.path.join(folder, name)).st_mode) & 0o077 == 0 for name in names
        ), names
    assert {stat.S_IMODE(path.stat().st_mode) for path in content_of(cache)} == {0o400}


def test_the_variable_names_another_place(monkeypatch, tmp_path, run, data):
    monkeypatch.setenv("DRUMLINE_CACHE", str(tmp_path / "elsewhere"))
    target = fetch(run, "d", Shelf(data))
    assert os.path.realpath(target).startswith(str(tmp_path / "elsewhere"))


def test_a_place_that_can_be_none_is_named(monkeypatch, tmp_path, run, data):
    (tmp_path / "file").touch()
    monkeypatch.setenv("DRUMLINE_CACHE", str(tmp_path / "file"))
    with pytest.raises(NodeError, match=f"could not make the cache in {tmp_path}/file: File exists"):
        fetch(run, "data", Shelf(data))


def test_equal_content_is_kept_once_and_a_tree_is_of_hard_links(cache, run, data):
    target = fetch(run, "d", Shelf(data))
    assert files_in(os.path.realpath(target)) == files_in(data)
    assert len(content_of(cache)) == 2
    assert {path.stat().st_nlink for path in content_of(cache)} == {2, 3}


def test_what_cannot_be_linked_is_copied(run, tmp_path, data, monkeypatch):
    """As a content that too many files are already, or on a file system without hard links."""

    def link(*_):
        raise OSError(errno.EMLINK, os.strerror(errno.EMLINK))

    monkeypatch.setattr(os, "link", link)
    target = fetch(run, "d", Shelf(data))
    assert files_in(target + "/") == files_in(data)
    again = Shelf(data)
    fetch(str(tmp_path / "run2"), "d", again)
    assert again.reads == []


def test_a_second_run_reads_nothing_and_shares_the_tree(run, tmp_path, data, capfd):
    first = fetch(run, "d", Shelf(data))
    again = Shelf(data)
    second = fetch(str(tmp_path / "run2"), "d", again)
    assert again.reads == []
    assert os.path.realpath(first) == os.path.realpath(second)
    assert [one["cached_bytes"] for one in said(capfd) if one["type"] == "transferred"] == [0, 3]


def test_of_a_folder_that_changed_only_that_is_read(run, tmp_path, data):
    fetch(run, "d", Shelf(data))
    (data / "a.txt").write_text("new")
    (data / "more.txt").write_text("more")
    again = Shelf(data)
    target = fetch(str(tmp_path / "run2"), "d", again)
    assert sorted(path for path, *_ in again.reads) == ["a.txt", "more.txt"]
    assert files_in(os.path.realpath(target)) == files_in(data)
    assert files_in(os.path.join(run, "inputs", "d"))["a.txt"] == "a"


def test_without_versions_nothing_is_taken_from_the_index(run, tmp_path, data):
    fetch(run, "d", Shelf(data, versions=False))
    again = Shelf(data, versions=False)
    fetch(str(tmp_path / "run2"), "d", again)
    assert len(again.reads) == 3


def test_a_copy_may_be_changed_and_is_not_made_again(run, data):
    target = fetch(run, "d", Shelf(data), writable=True)
    Path(target, "a.txt").write_text("changed")
    assert fetch(run, "d", Shelf(data), writable=True) == target
    assert Path(target, "a.txt").read_text() == "changed"
    other = fetch(run, "other", Shelf(data), writable=True)
    assert files_in(other) == files_in(data)
    assert not os.path.islink(other)


def test_what_a_killed_copy_left_is_made_anew(run, data):
    os.makedirs(os.path.join(run, "inputs", "d.partial"))
    Path(run, "inputs", "d.partial", "half").write_text("half")
    os.makedirs(os.path.join(run, "inputs", "d"))
    target = fetch(run, "d", Shelf(data), writable=True)
    assert files_in(target) == files_in(data)
    assert os.listdir(os.path.join(run, "inputs")) == ["d"]


@pytest.mark.parametrize("writable", [True, False])
def test_one_file_keeps_its_name_where_it_is_linked(run, data, writable):
    target = fetch(run, "d", Shelf(data / "a.txt"), kind="file", writable=writable)
    assert Path(target).read_text() == "a"
    assert os.path.basename(os.path.realpath(target)) == ("d" if writable else "data")


@pytest.mark.parametrize(
    ("path", "kind", "words"),
    [
        ("", "file", "s3://shelf/data is a folder, and its type is uri_file"),
        ("a.txt", "folder", "s3://shelf/data is a file, and its type is uri_folder"),
        ("none", "file", "there is nothing at s3://shelf/data"),
        ("none", "folder", "there is nothing at s3://shelf/data"),
    ],
)
def test_what_is_of_another_kind_or_not_there_is_an_error(run, data, path, kind, words):
    with pytest.raises(NodeError, match=words):
        fetch(run, "d", Shelf(data / path), kind=kind)


def test_what_may_be_missing_may_be(run, data, capfd):
    target = fetch(run, "d", Shelf(data / "none"), may_be_missing=True)
    assert not os.path.lexists(target)
    assert said(capfd)[-1]["file_count"] == 0


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a//b", "a/../b", "a/./b", "a\0b", "a/", "n" * 256])
def test_names_that_lead_elsewhere_are_refused(run, data, cache, name):
    store = Shelf(data)
    store.list = lambda: iter([shelf.Object("a.txt", 1, "1"), shelf.Object(name, 1, "1")])
    with pytest.raises(NodeError, match="is not valid here"):
        fetch(run, "d", store)
    assert store.reads == []
    assert is_safe(name) == (name == "n" * 256)


def test_a_file_that_is_a_folder_too_is_refused(run, data):
    store = Shelf(data)
    store.list = lambda: iter([shelf.Object("a.txt", 1, "1"), shelf.Object("a.txt/b", 1, "1")])
    with pytest.raises(NodeError, match="a folder that is also a file"):
        fetch(run, "d", store)


# damage


def change(path):
    os.chmod(path, 0o600)
    path.write_text("!")
    os.chmod(path, 0o400)


def test_content_that_somebody_wrote_to_is_fetched_again(cache, run, tmp_path, data):
    target = fetch(run, "d", Shelf(data))
    change(Path(os.path.realpath(target), "sub", "b.txt"))
    again = Shelf(data)
    fetch(str(tmp_path / "run2"), "d", again)
    assert [path for path, *_ in again.reads] == ["sub/b.txt"]
    # The job that runs reads it as it was, under the same path.
    assert files_in(target + "/") == files_in(data)


def test_a_tree_that_somebody_changed_is_mended(run, tmp_path, data):
    tree = Path(os.path.realpath(fetch(run, "d", Shelf(data))))
    for folder in (tree, tree / "sub"):
        os.chmod(folder, 0o700)
    (tree / "a.txt").unlink()
    (tree / "labels.cache").write_text("left behind")
    (tree / "sub" / "b.txt").unlink()
    (tree / "sub" / "same.txt").unlink()
    (tree / "sub").rmdir()
    (tree / "sub").symlink_to("/etc")
    again = Shelf(data)
    assert Path(os.path.realpath(fetch(str(tmp_path / "run2"), "d", again))) == tree
    assert again.reads == []
    assert files_in(tree) == files_in(data)
    assert not (tree / "sub").is_symlink()


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"digest": "../../x"}', '{"items": [["../x", "a", 1]]}'])
def test_records_that_are_no_records_are_not_there(cache, run, tmp_path, data, damage):
    fetch(run, "d", Shelf(data))
    for folder in (cache.index, cache.sources):
        for path in Path(folder).rglob("*"):
            if path.is_file():
                path.write_text(damage)
    again = Shelf(data)
    target = fetch(str(tmp_path / "run2"), "d", again)
    assert files_in(target + "/") == files_in(data)
    assert len(again.reads) == 3


def test_nobody_waits_for_a_pipe_that_a_job_left(cache, run, data):
    fetch(run, "d", Shelf(data))
    os.mkfifo(os.path.join(cache.sources, "a" * 64))
    assert len(list(cache.list_sources())) == 1


# chunks and digests


@pytest.fixture
def big(tmp_path):
    path = tmp_path / "big"
    path.write_bytes(os.urandom(10_500))
    return path


def test_a_large_file_comes_in_chunks(run, big, small_chunks, cache):
    store = Shelf(big)
    target = fetch(run, "d", store, kind="file")
    assert Path(target).read_bytes() == big.read_bytes()
    assert len(store.reads) == 11
    assert os.listdir(cache.partial) == os.listdir(cache.locks) == []


def test_a_file_that_changes_between_chunks_is_read_from_the_beginning(run, big, small_chunks):
    store = Shelf(big)

    def change_once(number):
        if number == 5:
            # All at once: a file that is written anew is empty for a moment, in which another thread may read it.
            fresh = big.with_name("fresh")
            fresh.write_bytes(os.urandom(9_000))
            fresh.replace(big)

    store.before_read = change_once
    target = fetch(run, "d", store, kind="file")
    assert Path(target).read_bytes() == big.read_bytes()


def test_a_file_that_always_changes_is_an_error(run, big, small_chunks, cache):
    store = Shelf(big)
    store.before_read = lambda *_: os.utime(big)
    with pytest.raises(NodeError, match="keeps changing"):
        fetch(run, "d", store, kind="file")
    assert os.listdir(cache.locks) == []


def test_a_service_without_ranges_or_sizes_is_read_in_order(run, big, small_chunks):
    store = Shelf(big, ranges=False, versions=False)
    store.stat = lambda: shelf.Object("", -1, "")
    target = fetch(run, "d", store, kind="file")
    assert Path(target).read_bytes() == big.read_bytes()
    assert [start for _, start, _ in store.reads] == list(range(0, 11_000, 1000))


@pytest.mark.parametrize("chunk", [1000, 1 << 20])
def test_a_digest_of_the_service_is_compared(run, big, capfd, monkeypatch, chunk):
    monkeypatch.setattr(object_download, "CHUNK_BYTES", chunk)
    fetch(run, "d", Shelf(big, digest=shelf.md5_of(big)), kind="file")
    assert said(capfd)[-1]["verified"] == 1


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("size", [900, 10_500])
def test_what_was_damaged_on_its_way_is_read_once_more(run, big, size, capfd):
    big.write_bytes(os.urandom(size))
    right = big.read_bytes()
    store = Shelf(big, digest=lambda _: ("sha256", hashlib.sha256(right).hexdigest()))
    honest = store.read

    def lie(found, start, end):
        data = honest(found, start, end)
        begins = [one for one in store.reads if one[1] == 0]
        return b"\0" * len(data) if start == 0 and len(begins) == 1 else data

    store.read = lie
    target = fetch(run, "d", store, kind="file")
    assert Path(target).read_bytes() == right
    assert store.bytes_read == 2 * size
    last = said(capfd)[-1]
    assert (last["verified"], last["size_bytes"]) == (1, size)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("size", [900, 10_500])
@pytest.mark.parametrize("algorithm", ["sha256", "md5"])
def test_a_digest_that_is_wrong_twice(run, big, size, algorithm, cache):
    """Of an MD5 of S3 that is no MD5 after all; every other one is believed."""
    big.write_bytes(os.urandom(size))
    store = Shelf(big, digest=lambda _: (algorithm, "00" * 16))
    if algorithm == "md5":
        assert Path(fetch(run, "d", store, kind="file")).read_bytes() == big.read_bytes()
    else:
        with pytest.raises(NodeError, match=r"its SHA256 is [0-9a-f]{64}, and the service says 0000"):
            fetch(run, "d", store, kind="file")
        assert content_of(cache) == []
    assert store.bytes_read == 2 * size
    assert os.listdir(cache.partial) == os.listdir(cache.locks) == []


def test_content_that_the_service_names_by_its_digest_is_not_read_again(run, tmp_path, big):
    digest = hashlib.sha256(big.read_bytes()).hexdigest()
    fetch(run, "d", Shelf(big), kind="file")
    os.utime(big)  # another version
    again = Shelf(big, digest=lambda _: ("sha256", digest))
    fetch(str(tmp_path / "run2"), "d", again, kind="file")
    assert again.reads == []


# several processes


def start(data, run, *arguments):
    command = [sys.executable, str(SHELF), str(data), str(run), "d", *map(str, arguments)]
    environment = {
        **os.environ,
        "PYTHONPATH": f"{SHELF.parent}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
    }
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def lines_of(log):
    return log.read_text().splitlines() if log.exists() else []


def test_eight_processes_fetch_one_object_once(tmp_path, data):
    log, gate = tmp_path / "log", tmp_path / "gate"
    processes = [start(data, tmp_path / f"run{number}", log, gate) for number in range(8)]
    wait_until(lambda: len(lines_of(log)) == 3, 20)
    gate.touch()
    assert [process.communicate()[1] for process in processes] == [b""] * 8
    assert len(lines_of(log)) == 3
    trees = {os.path.realpath(tmp_path / f"run{number}" / "inputs" / "d") for number in range(8)}
    assert len(trees) == 1


def test_a_fetch_that_was_killed_goes_on_where_it_was(tmp_path, cache):
    big = tmp_path / "big"
    big.write_bytes(os.urandom(50 * shelf.CHUNK - 1))
    log, gate = tmp_path / "log", tmp_path / "gate"
    killed = start(big, tmp_path / "run", log, gate, 20)
    partial = Path(cache.partial)
    try:
        lists = wait_until(lambda: [one for one in partial.glob("*.chunks") if len(lines_of(one)) == 21], 20)
    finally:
        killed.kill()
        killed.communicate()
    with lists[0].open("a") as file:
        file.write("4")  # as a line that was cut short
    log.unlink()
    assert start(big, tmp_path / "run", log).communicate()[1] == b""
    assert len(lines_of(log)) == 50 - 20
    assert (tmp_path / "run" / "inputs" / "d").read_bytes() == big.read_bytes()
    assert os.listdir(cache.partial) == os.listdir(cache.locks) == []


def test_what_is_left_of_another_version_is_of_no_use(tmp_path, run, big, small_chunks, cache):
    store = Shelf(big)

    def fail(number):
        if number > 5:
            raise NodeError("the line is cut")

    store.before_read = fail
    with pytest.raises(NodeError, match="the line is cut"):
        fetch(run, "d", store, kind="file")
    assert len(os.listdir(cache.partial)) == 2
    big.write_bytes(os.urandom(10_500))
    again = Shelf(big)
    assert Path(fetch(run, "d", again, kind="file")).read_bytes() == big.read_bytes()
    assert len(again.reads) == 11


def test_two_thousand_small_files(tmp_path, run, drumline_home):
    folder = tmp_path / "many"
    folder.mkdir()
    for number in range(2000):
        (folder / f"{number}").write_text(str(number % 1500))
    store = Shelf(folder)
    target = fetch(run, "d", store)
    assert len(os.listdir(target)) == len(store.reads) == 2000
    again = Shelf(folder)
    assert len(os.listdir(fetch(str(tmp_path / "run2"), "d", again))) == 2000
    assert again.reads == []
