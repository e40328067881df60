"""Files of a run: whole or not there, private, and appended to by several at once."""

import errno
import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from drumline.contract import events as e
from drumline.contract import process_identity
from drumline.contract.folder import RunFolder, home, write_whole


@pytest.fixture
def folder(drumline_home):
    made = RunFolder.for_job("calm_drum")
    made.create()
    return made


def test_the_home_is_the_variable_else_xdg_else_the_users(monkeypatch):
    monkeypatch.setenv("DRUMLINE_HOME", "/a/b/../c")
    assert home() == "/a/c"
    monkeypatch.delenv("DRUMLINE_HOME")
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert home() == "/data/drumline"
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", "/home/ann")
    assert home() == "/home/ann/.local/share/drumline"


def test_exactly_one_of_many_gets_a_name(drumline_home):
    def create(_):
        try:
            RunFolder.for_job("wanted").create()
        except FileExistsError:
            return 0
        return 1

    with ThreadPoolExecutor(16) as pool:
        assert sum(pool.map(create, range(64))) == 1


def test_events_of_several_writers_are_whole_lines(folder):
    long = "x" * 2000
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda index: folder.append(e.JobWaiting(float(index), long)), range(400)))
    read = list(folder.read_events())
    assert sorted(event.time for event in read) == [float(index) for index in range(400)]


def test_a_line_cut_short_is_left_out_and_those_before_it_stay(folder):
    folder.append(e.JobRunning(1.0))
    with open(folder.events, "ab") as file:
        file.write(b'{"type": "JobEn')
    assert list(folder.read_events()) == [e.JobRunning(1.0)]


def test_a_file_is_written_whole_or_not_at_all(folder):
    folder.write(folder.plan, "old")
    with pytest.raises(UnicodeEncodeError):
        folder.write(folder.plan, "new \ud800")
    with open(folder.plan) as file:
        assert file.read() == "old"


def test_everything_is_for_its_owner_alone(folder, drumline_home):
    os.umask(0)
    try:
        folder.append(e.JobRunning(1.0))
        folder.write(folder.plan, "{}")
    finally:
        os.umask(0o022)
    for parent, _, names in os.walk(drumline_home):
        for path in [parent, *(os.path.join(parent, name) for name in names)]:
            assert os.stat(path).st_mode & 0o077 == 0, path


def test_a_process_is_known_by_more_than_its_number():
    mine = process_identity.identify_process(os.getpid())
    assert process_identity.is_alive(mine)
    assert not process_identity.is_alive({**mine, "started": mine["started"] - 1})
    assert not process_identity.is_alive({**mine, "boot": "another"})
    assert process_identity.open_pidfd({**mine, "started": 0}) is None
    assert process_identity.identify_process(2**22 + 1) is None


def test_a_process_of_another_machine_or_container_is_not_judged_from_here():
    """Its number means nothing here; to take it for dead would end somebody's job."""
    mine = process_identity.identify_process(os.getpid())
    elsewhere = {**mine, "space": "another/1", "started": 0, "boot": "x"}
    assert process_identity.is_alive(elsewhere)
    assert process_identity.open_pidfd(elsewhere) is None
    assert not process_identity.is_alive({**mine, "started": 0})


def test_a_torn_line_does_not_swallow_the_next_event(folder, monkeypatch):
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:5]))
    with pytest.raises(OSError, match="No space left"):
        folder.append(e.JobRunning(1.0))
    monkeypatch.undo()
    folder.append(e.JobFinalizing(2.0))
    assert list(folder.read_events()) == [e.JobFinalizing(2.0)]


def test_a_job_is_there_with_all_of_its_first_event_or_not_at_all(tmp_path, monkeypatch):
    """Whoever looks between would take it for one whose supervisor never came."""
    run = RunFolder(str(tmp_path / "job"))
    run.create()
    seen = []
    replace = os.replace

    def look_and_replace(partial, path):
        seen.append((run.exists(), Path(partial).read_bytes().count(b"\n")))
        replace(partial, path)

    monkeypatch.setattr(os, "replace", look_and_replace)
    run.begin(e.JobSubmitted(1.0, "ann"))
    assert seen == [(False, 1)]
    run.append(e.JobPreparing(2.0))
    assert [type(event).__name__ for event in run.read_events()] == ["JobSubmitted", "JobPreparing"]


def test_of_a_file_that_could_not_be_written_nothing_is_left(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="full") as raised:
        write_whole(str(tmp_path / "f"), "text")
    assert os.listdir(tmp_path) == []
    assert raised.value.filename == str(tmp_path / "f")


def test_an_event_that_finds_no_room_names_its_file(tmp_path):
    run = RunFolder(str(tmp_path))
    os.symlink("/dev/full", run.events)
    with pytest.raises(OSError, match=r"No space left on device: .*events"):
        run.append(e.JobPreparing(2.0))


def make_long_ago(folder):
    os.utime(folder.path, (0, 0))


def test_a_folder_whose_maker_lives_is_not_abandoned_however_long_it_sleeps(folder):
    make_long_ago(folder)
    assert not RunFolder.for_job("calm_drum").is_abandoned(60.0)
    folder.begin(e.JobSubmitted(1.0, "ann"))
    make_long_ago(folder)
    assert not RunFolder.for_job("calm_drum").is_abandoned(60.0), "it is a job"


def test_a_job_is_handed_over_once(folder):
    folder.begin(e.JobSubmitted(1.0, "ann"))
    assert folder.has_lost_maker() is False
    folder.hand_over(os.getpid())
    folder.hand_over(1)
    assert folder.read_json(folder.supervisor) == process_identity.identify_process(os.getpid())
    assert not os.path.exists(folder.maker)
    assert folder.has_lost_maker() is None


def test_a_job_of_other_machines_has_no_maker(folder):
    folder.begin(e.JobSubmitted(1.0, "ann", "slurm"))
    assert not os.path.exists(folder.maker)


def test_a_folder_whose_maker_was_killed_is_abandoned_at_once(folder):
    dead = {**process_identity.identify_process(os.getpid()), "started": 1}
    folder.write(folder.maker, json.dumps(dead))
    assert RunFolder.for_job("calm_drum").is_abandoned(60.0)


@pytest.mark.parametrize("maker", ["dead", "elsewhere"])
def test_a_job_that_begins_while_its_maker_is_looked_at_is_not_abandoned(folder, monkeypatch, maker):
    """Its maker begins the job and ends just then: the folder is that of a job, which a removal would destroy."""
    looked = RunFolder.for_job("calm_drum")

    def begin_and_end(*_):
        folder.begin(e.JobSubmitted(1.0, "ann"))
        return False

    make_long_ago(folder)
    monkeypatch.setattr(
        process_identity, "is_alive" if maker == "dead" else "is_ours_to_judge", begin_and_end
    )
    assert not looked.is_abandoned(60.0)


def test_a_maker_of_another_machine_has_some_time(folder):
    folder.write(
        folder.maker, json.dumps({**process_identity.identify_process(os.getpid()), "space": "elsewhere"})
    )
    assert not RunFolder.for_job("calm_drum").is_abandoned(60.0)
    make_long_ago(folder)
    assert RunFolder.for_job("calm_drum").is_abandoned(60.0)


def test_whoever_comes_back_too_late_sees_that_its_name_was_taken(folder):
    assert not folder.was_taken_over()
    shutil.rmtree(folder.path)
    assert folder.was_taken_over()
    RunFolder.for_job("calm_drum").create()
    other = {**process_identity.identify_process(os.getpid()), "pid": os.getpid() + 1}
    folder.write(folder.maker, json.dumps(other))
    assert folder.was_taken_over()
    assert not RunFolder.for_job("calm_drum").was_taken_over(), "it has made none"
