"""What goes when the cache is full: what was used least recently, and nothing that a job uses."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from shelf import Shelf, fetch

from drumline.contract import events as e
from drumline.contract import process_identity, words
from drumline.contract.errors import NodeError, UsageError
from drumline.contract.folder import RunFolder
from drumline.staging.cache import cache_pruning
from drumline.staging.cache.cache_folder import STAMP_NS, Cache

KB = 1000


@pytest.fixture
def cache(drumline_home):
    return Cache()


@pytest.fixture
def get(tmp_path, cache, monkeypatch):
    """Fetch a file of so many bytes as the job of that name, and say that this was so many minutes ago."""
    monkeypatch.setenv("DRUMLINE_CACHE_LIMIT", "100kB")

    def run(name, size=30 * KB, minutes=0, job="job", **fields):
        file = tmp_path / name
        if not file.exists():
            file.write_bytes(os.urandom(size))
        fetch(str(tmp_path / "jobs" / job), name, Shelf(file), kind="file", **{"writable": True, **fields})
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        when = time.time() - 60 * minutes
        os.utime(cache.content_path(digest), ns=(int(when * 10**9), STAMP_NS))
        for source in cache.list_sources():
            if source.items[0].digest == digest:
                os.utime(os.path.join(cache.sources, source.key), (when, when))
        return file

    return run


def names(cache):
    return sorted(source.key for source in cache.list_sources())


def size_of(cache):
    return sum(one.size for one in cache_pruning.list_contents(cache))


def end(job):
    """Its supervisor has written the end."""
    RunFolder(str(job)).append(e.JobEnded(time.time(), "Completed", 0, ""))


def other_process():
    return subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)


@pytest.fixture
def supervisor():
    """A process that lives as long as the test, unless that ends it."""
    process = other_process()
    yield process
    process.kill()
    process.communicate()


def begin(tmp_path, supervisor, job):
    folder = RunFolder(str(tmp_path / "jobs" / job))
    os.makedirs(folder.path)
    folder.begin(e.JobSubmitted(time.time(), "somebody"))
    folder.write(folder.supervisor, json.dumps(process_identity.identify_process(supervisor.pid)))
    return folder


def test_what_was_used_least_recently_goes_first(get, cache, tmp_path):
    get("old", minutes=3)
    get("older", minutes=9)
    get("newer", minutes=1)
    assert size_of(cache) == 90 * KB
    get("new")
    assert size_of(cache) == 90 * KB
    store = Shelf(tmp_path / "older")
    fetch(str(tmp_path / "again"), "x", store, kind="file")
    assert len(store.reads) == 1


def test_using_it_again_is_using_it(get, cache, tmp_path):
    get("a", minutes=9)
    get("b", minutes=3)
    get("a", job="other")
    get("c")
    get("d")
    store = Shelf(tmp_path / "a")
    fetch(str(tmp_path / "again"), "x", store, kind="file", writable=True)
    assert store.reads == []


@pytest.mark.parametrize("why", ["it runs", "its supervisor is dead", "it has ended", "its folder is gone"])
def test_what_a_running_job_reads_stays(get, cache, tmp_path, supervisor, why):
    folder = begin(tmp_path, supervisor, "reader")
    get("read", minutes=90, job="reader", writable=False)
    if why == "its supervisor is dead":
        supervisor.kill()
        supervisor.wait()
    elif why == "it has ended":
        end(folder.path)
    elif why == "its folder is gone":
        shutil.rmtree(folder.path)
    runs = [os.path.basename(one.run) for one in cache_pruning.list_active_leases(cache)]
    removal = cache_pruning.prune(cache, 0)
    if why == "it runs":
        assert runs == ["reader"]
        assert removal == cache_pruning.Removal((), 0, 0, 30 * KB)
        assert len(Path(folder.inputs, "read").read_bytes()) == 30 * KB
    else:
        assert runs == []
        assert (removal.files, removal.left) == (1, 0)
        assert os.listdir(cache.trees) == os.listdir(cache.leases) == names(cache) == []
        assert not any(Path(cache.index).rglob("?" * 64))


def test_what_a_job_reads_stays_when_another_supervisor_takes_over(get, cache, tmp_path, supervisor):
    folder = begin(tmp_path, supervisor, "reader")
    get("read", minutes=90, job="reader", writable=False)
    supervisor.kill()
    supervisor.wait()
    assert cache_pruning.list_active_leases(cache) == []
    folder.write(folder.supervisor, json.dumps(process_identity.identify_process(os.getpid())))
    assert cache_pruning.prune(cache, 0).left == 30 * KB


def test_a_copy_is_the_jobs_own_and_holds_nothing(get, cache, tmp_path, supervisor):
    begin(tmp_path, supervisor, "copier")
    get("copied", job="copier", writable=True)
    assert cache_pruning.prune(cache, 0).left == 0


def test_what_is_being_fetched_for_stays_until_it_is_in_place(get, cache, tmp_path):
    get("before", minutes=5)
    lease = cache_pruning.CacheLease(cache, str(tmp_path))
    lease.begin()
    get("now")
    assert cache_pruning.prune(cache, 0).left == 30 * KB
    lease.close()


def test_a_job_that_needs_more_than_the_limit_is_let_through(get, cache, capfd, tmp_path, supervisor):
    begin(tmp_path, supervisor, "large")
    get("large", size=150 * KB, minutes=5, job="large", writable=False)
    assert "the cache grows to 146 KiB, and its limit is 97.7 KiB" in capfd.readouterr().err
    get("more", minutes=3)
    assert size_of(cache) == 180 * KB
    end(tmp_path / "jobs" / "large")
    get("last")
    assert size_of(cache) <= 100 * KB


def test_what_was_not_used_for_long_goes_whatever_the_limit(get, cache):
    get("old", minutes=90)
    get("new")
    would = cache_pruning.prune(cache, 1 << 40, unused_since=time.time() - 3600, dry_run=True)
    assert (would.files, would.left, size_of(cache)) == (1, 30 * KB, 60 * KB)
    assert cache_pruning.prune(cache, 1 << 40, unused_since=time.time() - 3600) == would
    assert size_of(cache) == 30 * KB


def test_what_fetches_that_were_cut_short_left_goes_after_a_week(get, cache):
    get("a")
    old, young, tree = (Path(cache.partial, name) for name in ("a" * 64, "b" * 64, "c.1-2.tree"))
    old.write_text("old")
    os.utime(old, (0, 0))
    young.write_text("young")
    tree.mkdir()
    cache_pruning.prune(cache, 1 << 40)
    assert os.listdir(cache.partial) == [young.name]
    lock = cache.try_lock(young.name)
    cache_pruning.prune(cache, 0, cut_off_since=time.time() + 99)
    assert young.exists()
    lock.release()
    cache_pruning.prune(cache, 0, cut_off_since=time.time() + 99)
    assert os.listdir(cache.partial) == []


@pytest.mark.parametrize(("days", "counts"), [(1, True), (30, False)])
def test_a_lease_of_another_machine_counts_for_a_while(get, cache, days, counts):
    get("a", minutes=5, writable=False)
    path = next(Path(cache.leases).iterdir())
    lease = json.loads(path.read_text())
    lease.update(run="/elsewhere/jobs/far", who={**lease["who"], "space": "other/1"})
    path.write_text(json.dumps({**lease, "written": time.time() - days * 86400}))
    assert (cache_pruning.prune(cache, 0).left > 0) == counts


def test_a_damaged_lease_is_none(get, cache):
    get("a", writable=False)
    for text in ("", "[]", "{}", '{"run": 1, "who": 2, "since": "x", "trees": 3}'):
        Path(cache.leases, "d" * 64).write_text(text)
        assert [os.path.basename(one.run) for one in cache_pruning.list_active_leases(cache)] == ["job"]


def test_the_limit_is_the_variable_or_the_setting_or_a_quarter_of_the_disk(cache, monkeypatch, tmp_path):
    disk = os.statvfs(tmp_path)
    assert cache_pruning.read_limit(cache) == (disk.f_blocks * disk.f_frsize // 4, "default")
    cache_pruning.set_limit(cache, 5)
    assert cache_pruning.read_limit(cache) == (5, "settings")
    monkeypatch.setenv("DRUMLINE_CACHE_LIMIT", "1.5GiB")
    assert cache_pruning.read_limit(cache) == (3 << 29, "DRUMLINE_CACHE_LIMIT")
    monkeypatch.setenv("DRUMLINE_CACHE_LIMIT", "much")
    with pytest.raises(UsageError, match="DRUMLINE_CACHE_LIMIT: 'much' is not a size"):
        cache_pruning.read_limit(cache)


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "1 2", "1e9", "9" * 16, "1GBB", "0x10", "1iB"])
def test_what_is_no_size(text):
    with pytest.raises(UsageError, match="is not a size"):
        words.parse_size(text, "--to")


# a full disk


@pytest.fixture
def small_disk(tmp_path, monkeypatch):
    """The cache is on a disk of 2 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", folder], capture_output=True)
    if mounted.returncode:
        pytest.skip("no disk can be mounted here")
    monkeypatch.setenv("DRUMLINE_CACHE", str(folder / "cache"))
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_what_does_not_fit_is_said_before_anything_is_fetched(small_disk, tmp_path):
    (tmp_path / "large").write_bytes(bytes(3 << 20))
    store = Shelf(tmp_path / "large")
    with pytest.raises(
        NodeError, match=r"s3://shelf/data: the disk of the cache is full \(.*\): 3 MiB still to download"
    ):
        fetch(str(tmp_path / "run"), "d", store, kind="file")
    assert store.reads == []


@pytest.mark.parametrize("ranges", [True, False])
def test_a_disk_that_fills_up_meanwhile_is_one_sentence_and_leaves_nothing(
    small_disk, tmp_path, ranges, monkeypatch
):
    monkeypatch.setattr("drumline.staging.transfer.object_download.CHUNK_BYTES", 200_000)
    (tmp_path / "large").write_bytes(os.urandom(1_500_000))
    store = Shelf(tmp_path / "large", ranges=ranges)
    store.before_read = (
        lambda number: (small_disk / "other").write_bytes(bytes(1_500_000)) if number == 1 else None
    )
    with pytest.raises(NodeError, match="s3://shelf/data: the disk of the cache is full") as caught:
        fetch(str(tmp_path / "run"), "d", store, kind="file")
    assert "drumline cache prune" in caught.value.hint
    assert os.listdir(Cache().partial) == os.listdir(Cache().locks) == []
    (small_disk / "other").unlink()
    target = fetch(str(tmp_path / "run"), "d", Shelf(tmp_path / "large"), kind="file")
    assert Path(target).read_bytes() == (tmp_path / "large").read_bytes()


def test_what_no_job_uses_gives_way_on_a_full_disk(small_disk, tmp_path):
    for name in ("first", "second"):
        (tmp_path / name).write_bytes(os.urandom(1_200_000))
        target = fetch(
            str(tmp_path / f"run-{name}"),
            "d",
            Shelf(tmp_path / name),
            kind="file",
            writable=True,
        )
        assert Path(target).stat().st_size == 1_200_000
        for one in cache_pruning.list_contents(Cache()):
            os.utime(Cache().content_path(one.digest), ns=(0, STAMP_NS))
        for source in Cache().list_sources():
            os.utime(os.path.join(Cache().sources, source.key), (0, 0))
    assert size_of(Cache()) == 1_200_000
