"""The run folder as its supervisor has it: when it is gone."""

import json
import os
import shutil

import pytest

from drumline.contract import events as e
from drumline.contract import identity
from drumline.supervisor.supervised_folder import SupervisedFolder


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "job"
    path.mkdir()
    made = SupervisedFolder(str(path))
    made.write(made.supervisor, json.dumps(identity.identify_process(os.getpid())))
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
        json.dump({**identity.identify_process(os.getpid()), "pid": os.getpid() + 1}, file)
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
