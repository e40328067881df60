"""Inputs that are mounted: jobs that read from S3 on loopback what they need of it, whoever is killed meanwhile."""

import hashlib
import os
import signal
from pathlib import Path

import pytest
import services
from waiting import wait_until

from drumline.contract.folder import RunFolder
from drumline.linux import mounts
from drumline.staging.mount import choice
from drumline.staging.stores.store import CHUNK_BYTES

LARGE = os.urandom(2 * CHUNK_BYTES + 5)


@pytest.fixture(scope="module")
def s3(s3_server):
    pytest.importorskip("obstore")
    reason = choice.find_machine_obstacle()
    if reason:
        pytest.skip(reason)
    s3_server.make_bucket("mounted", {"digits/large": LARGE, "digits/sub/b c.txt": b"b", "one.txt": b"one"})
    return s3_server


@pytest.fixture
def submit(s3, cli, tmp_path, monkeypatch, drumline_home):
    for name in services.cloud_variables():
        monkeypatch.delenv(name)
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)

    def submitted(command, *options, settings="", wish="always"):
        (tmp_path / "job.yml").write_text(
            f"type: command\nname: it\ncommand: |-\n  {command}\n"
            "inputs:\n"
            "  digits: {type: uri_folder, path: s3://mounted/digits}\n"
            "  one: {type: uri_file, path: s3://mounted/one.txt}\n"
            + (f"drumline: {{mount: {wish}{settings}}}\n" if wish else "")
        )
        done = cli("job", "create", "-f", "job.yml", *options)
        assert done.rc in (0, 1), done.err
        return RunFolder.for_job("it")

    yield submitted
    assert wait_until(lambda: not mounts.list_mounts(str(tmp_path)))


def log(folder):
    return Path(folder.path, "user_logs", "std_log.txt").read_text()


def chunk_bytes(home):
    return sum(file.stat().st_size for file in (home / "cache/chunks").rglob("*") if file.is_file())


def processes_of(folder):
    """Those that serve, and those that unmount when they are gone."""
    serving, beside = [], []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = file.read_bytes().decode(errors="replace")
            comm = (file.parent / "comm").read_text()
        except OSError:
            continue
        if "drumline.staging.mount" in words and folder.path in words:
            (beside if "unmnt" in comm else serving).append(int(file.parent.name))
    return serving, beside


def test_what_is_read_comes_and_no_more(submit, drumline_home, monkeypatch):
    monkeypatch.setenv("DRUMLINE_MOUNT", "always")
    look = "cat ${{inputs.one}}; find ${{inputs.digits}}/ -printf '%P %y %s %m\\n' | sort"
    write = "touch ${{inputs.digits}}/large ${{inputs.digits}}/new 2>/dev/null || echo no"
    folder = submit(
        f"{look}; head -c 4 ${{{{inputs.digits}}}}/large | od -An -tx1; {write}", "--stream", wish=""
    )
    assert log(folder).split("\n") == [
        "one d 0 555",
        f"large f {len(LARGE)} 444",
        "sub d 0 555",
        "sub/b c.txt f 1 444",
        LARGE[:4].hex(" ").rjust(12),
        "no",
        "",
    ]
    assert chunk_bytes(drumline_home) == CHUNK_BYTES + len("one")
    notes = [event.note for event in folder.read_events() if type(event).__name__ == "Transferred"]
    assert notes == ["mounted: read as it is needed"] * 2


def test_an_attempt_that_is_started_again_reads_it_too(submit, tmp_path):
    failed = tmp_path / "failed"
    again = f"cmp {tmp_path}/large ${{{{inputs.digits}}}}/large && mkdir {failed} && exit 3; ls {failed}"
    (tmp_path / "large").write_bytes(LARGE)
    folder = submit(again, "--stream", settings=", max_restarts: 1")
    names = [type(event).__name__ for event in folder.read_events()]
    assert names.count("AttemptEnded") == 1
    assert names.count("Transferred") == 4
    assert list(folder.read_events())[-1].status == "Completed"


HOLDS = "exec 3<${{inputs.digits}}/large; head -c 1 <&3 >/dev/null; echo reads; sleep 1000"


def running(submit):
    folder = submit(HOLDS)
    wait_until(lambda: os.path.exists(folder.user_logs + "/std_log.txt") and "reads" in log(folder))
    assert len(mounts.list_mounts(folder.path)) == 2
    return folder


def test_who_reads_what_nobody_serves_any_more_gets_an_error(submit, cli, tmp_path):
    folder = submit(
        f"ls ${{{{inputs.digits}}}}/ >/dev/null; mkdir {tmp_path}/reads; "
        f"until [ -d {tmp_path}/killed ]; do sleep 0.01; done; ls ${{{{inputs.digits}}}}/; sleep 1000"
    )
    wait_until((tmp_path / "reads").exists)
    for pid in processes_of(folder)[0]:
        os.kill(pid, signal.SIGKILL)
    (tmp_path / "killed").mkdir()
    wait_until(lambda: "not connected" in log(folder) or "abort" in log(folder))
    assert cli("job", "cancel", "-n", "it").rc == 0
    wait_until(lambda: list(folder.read_events())[-1].__class__.__name__ == "JobEnded")
    assert not mounts.list_mounts(folder.path)


@pytest.mark.parametrize("all_of_it", [False, True])
def test_a_mount_goes_when_its_supervisor_is_killed(submit, cli, all_of_it):
    folder = running(submit)
    serving, beside = processes_of(folder)
    supervisor = folder.read_json(folder.supervisor)["pid"]
    for pid in [*beside, *serving, supervisor] if all_of_it else [supervisor]:
        os.kill(pid, signal.SIGKILL)
    if all_of_it:
        assert len(mounts.list_mounts(folder.path)) == 2
    else:
        wait_until(lambda: not mounts.list_mounts(folder.path))
    assert '"Failed"' in cli("job", "show", "-n", "it", "-o", "json").out
    assert not mounts.list_mounts(folder.path)


def test_what_is_more_than_the_cache_may_hold_is_mounted_by_itself(submit, drumline_home, monkeypatch):
    monkeypatch.setenv("DRUMLINE_CACHE_LIMIT", str(CHUNK_BYTES + 100))
    folder = submit("cat ${{inputs.digits}}/large ${{inputs.one}} | sha256sum", "--stream", wish="auto")
    assert log(folder).split()[0] == hashlib.sha256(LARGE + b"one").hexdigest()
    assert 0 < chunk_bytes(drumline_home) <= CHUNK_BYTES + 100
    notes = [event.note[:7] for event in folder.read_events() if type(event).__name__ == "Transferred"]
    assert sorted(notes) == ["mounted", "not mou"]
