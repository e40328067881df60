"""The run folder as its supervisor has it: when it is gone."""

import errno
import json
import os
import shutil
from pathlib import Path

import pytest

from drumline.contract import events as e
from drumline.contract import process_identity
from drumline.supervisor.supervised_folder import SupervisedFolder


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "job"
    path.mkdir()
    made = SupervisedFolder(str(path))
    made.write(made.supervisor, json.dumps(process_identity.identify_process(os.getpid())))
    return made


def test_one_that_was_removed_is_gone(folder):
    assert not folder.is_gone()
    shutil.rmtree(folder.path)
    assert folder.is_gone()


def test_another_of_its_name_is_not_it(folder):
    os.rename(folder.path, folder.path + "-before")
    os.mkdir(folder.path)
    assert folder.is_gone()
    with open(folder.supervisor, "w") as file:
        json.dump({**process_identity.identify_process(os.getpid()), "pid": os.getpid() + 1}, file)
    assert folder.is_gone()


def test_one_that_its_file_system_gives_another_number_is_still_there(folder):
    os.rename(folder.path, folder.path + "-before")
    shutil.copytree(folder.path + "-before", folder.path)
    assert [folder.is_gone(), folder.is_gone()] == [False, False]


def test_only_the_end_must_find_room(folder, capsys):
    """A full disk, here a folder in the place of the events: a job goes on without what it says meanwhile."""
    os.mkdir(folder.events)
    folder.append(e.JobRunning(1.0))
    assert "could not record JobRunning" in capsys.readouterr().err
    for end in (e.AttemptEnded(1.0, 0, 1, "", None, None, "", ""), e.JobEnded(1.0, "Failed", 1, "")):
        with pytest.raises(IsADirectoryError):
            folder.append(end)
    shutil.rmtree(folder.path)
    with pytest.raises(FileNotFoundError, match="removed"):
        folder.append(e.JobRunning(1.0))


@pytest.mark.parametrize("room", [0, 5, 5.5])
def test_what_found_no_room_comes_with_the_next_event(folder, monkeypatch, room):
    """``room``: the bytes that fit, so that a line is torn; half a byte more: and so that its end fits."""
    write = os.write
    before, lost = e.JobRunning(1.0), [e.JobRunning(2.0), e.JobRunning(3.0)]

    def write_little(descriptor, data):
        left = int(room) if len(data) > 1 else room - int(room)
        if not left:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, data[: max(1, int(left))])

    folder.append(before)
    for event in lost:
        with monkeypatch.context() as full:
            full.setattr(os, "write", write_little)
            folder.append(event)
    with monkeypatch.context() as full:
        full.setattr(os, "write", write_little)
        with pytest.raises(OSError, match="No space left"):
            folder.append(e.AttemptEnded(4.0, 0, 1, "", None, None, "", ""))
    assert list(folder.read_events()) == [before]
    folder.append(e.JobRunning(5.0))
    assert list(folder.read_events()) == [before, *lost, e.JobRunning(5.0)]
    assert "\n\n" not in Path(folder.events).read_text()


def test_the_end_of_a_job_does_not_wait_for_what_found_no_room(folder, monkeypatch):
    write = os.write
    with monkeypatch.context() as full:
        full.setattr(os, "write", lambda *_: write(os.open("/dev/full", os.O_WRONLY), b"x"))
        folder.append(e.JobRunning(1.0))
        with pytest.raises(OSError, match="No space left"):
            folder.append_lost()
    end = e.JobEnded(2.0, "Failed", 1, "")
    folder.append(end)
    assert list(folder.read_events()) == [end]
    folder.append_lost()
    assert list(folder.read_events()) == [end, e.JobRunning(1.0)]


def test_what_found_no_room_comes_into_no_other_folder_of_that_name(folder):
    os.mkdir(folder.events)
    folder.append(e.JobRunning(1.0))
    os.rename(folder.path, folder.path + "-before")
    os.mkdir(folder.path)
    with pytest.raises(FileNotFoundError, match="removed"):
        folder.append_lost()
    assert os.listdir(folder.path) == []
