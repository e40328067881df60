import errno
import os
import threading

import pytest
from planning import plan
from shelf import Shelf

from drumline.contract.errors import NodeError
from drumline.contract.folder import RunFolder
from drumline.contract.plan import Fetch
from drumline.contract.uris import parse_uri
from drumline.staging.cache import cache_pruning
from drumline.staging.cache.cache_folder import Cache
from drumline.staging.cache.chunk_files import ChunkFiles
from drumline.staging.mount import choice
from drumline.staging.mount.filesystem import FileSystem, MountedInput, MountReader, read_record, write_record
from drumline.staging.stores.store import Object

CHUNK = 1000


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr("drumline.staging.mount.filesystem.CHUNK_BYTES", CHUNK)


@pytest.fixture
def shelf(tmp_path):
    folder = tmp_path / "shelf"
    (folder / "sub").mkdir(parents=True)
    (folder / "large").write_bytes(os.urandom(10 * CHUNK + 7))
    (folder / "sub" / "small").write_bytes(b"small")
    (folder / "empty").write_bytes(b"")
    return Shelf(folder)


@pytest.fixture
def cache():
    made = Cache()
    made.make()
    return made


def reader(shelf, cache):
    return MountReader(shelf, "identity", ChunkFiles(cache))


def file(shelf, path):
    return next(one for one in shelf.list() if one.path == path)


def content(shelf, path):
    with open(os.path.join(shelf.root, path), "rb") as opened:
        return opened.read()


def test_any_part_is_right(shelf, cache):
    reads, large, whole = reader(shelf, cache), file(shelf, "large"), content(shelf, "large")
    for start, size in (
        (0, 1),
        (999, 2),
        (3500, 4000),
        (9999, 5000),
        (10_006, 1),
        (10_007, 1),
        (20_000, 9),
        (0, 99_999),
    ):
        assert reads.read(large, start, size) == whole[start : start + size]
    assert reads.read(file(shelf, "empty"), 0, 10) == b""


def test_only_what_is_read_is_asked_for_and_that_once(shelf, cache):
    reads, large = reader(shelf, cache), file(shelf, "large")
    reads.read(large, 7100, 10)
    reads.read(large, 7900, 10)
    assert shelf.reads == [("large", 7000, 8000)]
    assert reader(shelf, cache).read(large, 7000, CHUNK) == content(shelf, "large")[7000:8000]
    assert len(shelf.reads) == 1


def test_who_reads_in_order_finds_it_there(shelf, cache):
    reads, large = reader(shelf, cache), file(shelf, "large")
    whole = b"".join(reads.read(large, start, 100) for start in range(0, large.size, 100))
    assert whole == content(shelf, "large")
    assert sorted(shelf.reads) == [
        ("large", start, min(start + CHUNK, large.size)) for start in range(0, large.size, CHUNK)
    ]


def test_many_threads_ask_once(shelf, cache):
    reads, large, whole = reader(shelf, cache), file(shelf, "large"), content(shelf, "large")
    wrong = []

    def read_all(turn):
        for step in range(0, large.size, 50):
            start = (step + turn * 3000) % large.size
            if reads.read(large, start, 50) != whole[start : start + 50]:
                wrong.append(start)

    threads = [threading.Thread(target=read_all, args=(turn,)) for turn in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(shelf.reads) == len(set(shelf.reads)) == 11


def test_what_was_read_counts_and_goes_and_comes_again(shelf, cache):
    large = file(shelf, "large")
    reads = reader(shelf, cache)
    reads.read(large, 0, 10)
    assert sum(one.size for one in cache_pruning.list_contents(cache)) == CHUNK
    assert cache_pruning.prune(cache, 0).size == CHUNK
    assert not list(cache_pruning.list_contents(cache))
    assert reads.read(large, 0, 10) == content(shelf, "large")[:10]
    reader(shelf, cache).read(large, 0, 10)
    assert len(shelf.reads) == 2


def test_the_limit_holds_while_it_reads(shelf, cache, monkeypatch):
    monkeypatch.setenv(cache_pruning.LIMIT, str(3 * CHUNK))
    reads, large = reader(shelf, cache), file(shelf, "large")
    for start in range(0, large.size, 500):
        assert reads.read(large, start, 500) == content(shelf, "large")[start : start + 500]
        assert sum(one.size for one in cache_pruning.list_contents(cache)) <= 3 * CHUNK
    assert any(cache_pruning.list_contents(cache))


def test_where_there_is_no_room_it_is_read_all_the_same(shelf, cache, monkeypatch):
    monkeypatch.setenv(cache_pruning.LIMIT, "10")
    reads, large = reader(shelf, cache), file(shelf, "large")
    assert reads.read(large, 0, 99_999) == content(shelf, "large")
    assert not list(cache_pruning.list_contents(cache))


def test_a_part_that_somebody_wrote_to_is_read_again(shelf, cache):
    large = file(shelf, "large")
    reader(shelf, cache).read(large, 0, 10)
    path = next(cache_pruning.list_contents(cache)).path
    os.chmod(path, 0o600)
    with open(path, "r+b") as damaged:
        damaged.write(b"other")
    assert reader(shelf, cache).read(large, 0, 10) == content(shelf, "large")[:10]


def system(shelf, cache, file="", objects=None):
    objects = tuple(sorted(shelf.list())) if objects is None else objects
    return FileSystem(MountedInput("inputs.x", "identity", file, objects), reader(shelf, cache), lambda: None)


def names(found):
    return [name for name, _, _ in found]


def test_the_tree(shelf, cache):
    served = system(shelf, cache)
    assert names(served.readdir("/", 0)) == [".", "..", "empty", "large", "sub"]
    assert names(served.readdir("/sub", 0)) == [".", "..", "small"]
    assert oct(served.getattr("/sub")["st_mode"]) == "0o40555"
    assert oct(served.getattr("/sub/small")["st_mode"]) == "0o100444"
    assert served.read("/sub/small", 100, 0, 0) == b"small"
    with pytest.raises(FileNotFoundError):
        served.getattr("/sub/other")
    assert names(system(shelf, cache, "one", (Object("", 5, "1"),)).readdir("/", 0)) == [".", "..", "one"]


def test_one_that_has_changed_or_is_gone_is_an_error_and_a_line(shelf, cache, capfd):
    served = system(shelf, cache)
    os.utime(os.path.join(shelf.root, "large"), ns=(1, 1))
    with pytest.raises(OSError, match="tale") as caught:
        served.read("/large", 10, 0, 0)
    assert caught.value.errno == errno.ESTALE
    os.unlink(os.path.join(shelf.root, "sub", "small"))
    with pytest.raises(OSError, match="nput") as caught:
        served.read("/sub/small", 10, 0, 0)
    assert caught.value.errno == errno.EIO
    said = capfd.readouterr().err.splitlines()
    assert [line.split(":")[1].strip() for line in said] == ["/large", "/sub/small"]


FETCH = Fetch("inputs.x", "s3://shelf/data", "folder", "/target", writable=False, mode="ro_mount")


def test_whose_wish_it_is(monkeypatch):
    assert choice.choose_mode(FETCH) == "auto"
    monkeypatch.setenv("DRUMLINE_MOUNT", "always")
    assert choice.choose_mode(FETCH) == "always"
    assert choice.choose_mode(FETCH._replace(mount="never")) == "never"
    monkeypatch.setenv("DRUMLINE_MOUNT", "sometimes")
    with pytest.raises(NodeError, match="must be one of auto, always, never; got 'sometimes'"):
        choice.choose_mode(FETCH)
    assert not choice.asks_for_mount(FETCH._replace(mode="download"))


def test_what_cannot_be_mounted_says_why(shelf, tmp_path):
    run = RunFolder(str(tmp_path))
    place, files = parse_uri("s3://shelf/data"), list(shelf.list())
    several = plan(nodes=2)._replace(engine="slurm")
    assert "several nodes" in choice.find_obstacle(run, several, place, shelf, files)
    contained = plan(nodes=1)._replace(container={"kind": "podman"})
    assert "container" in choice.find_obstacle(run, contained, place, shelf, files)
    assert "hub" in choice.find_obstacle(run, plan(nodes=1), parse_uri("hf://datasets/a/b"), shelf, files)
    without = [files[0]._replace(version="")]
    assert "versions" in choice.find_obstacle(run, plan(nodes=1), place, shelf, without)


def test_names_lead_nowhere_else(tmp_path):
    folder = RunFolder(str(tmp_path))
    for name in ("../x", "a/b", ".."):
        with pytest.raises(NodeError):
            write_record(folder, MountedInput(name, "identity", "", ()))
    write_record(folder, MountedInput("inputs.x", "identity", "", (Object("../x", 1, "1"),)))
    with pytest.raises(NodeError, match="damaged"):
        read_record(folder, "inputs.x")
