"""Two submissions that want one name, of which the first takes its time."""

import fcntl
import json
import os
import shutil
from types import SimpleNamespace

import pytest

from drumline.contract import events as e
from drumline.contract import process_identity
from drumline.contract.errors import PlanError
from drumline.contract.folder import RunFolder
from drumline.control.submission import run_folder
from drumline.control.submission.run_folder import create_folder

JOB = SimpleNamespace(name="wanted")


def test_a_submitter_that_sleeps_keeps_its_name(drumline_home):
    folder = create_folder(JOB, str(drumline_home))
    os.utime(folder.path, (0, 0))
    with pytest.raises(PlanError, match="there is a job 'wanted' already"):
        create_folder(JOB, str(drumline_home))
    run_folder.check_is_ours(folder)
    folder.begin(e.JobSubmitted(1.0, "ann"))
    assert folder.exists()


def test_the_name_of_a_submitter_that_was_killed_is_free_at_once(drumline_home):
    first = create_folder(JOB, str(drumline_home))
    first.write(first.maker, json.dumps({**process_identity.identify_process(os.getpid()), "started": 1}))
    second = create_folder(JOB, str(drumline_home))
    run_folder.check_is_ours(second)


def test_one_of_two_submissions_takes_the_name_of_a_submitter_that_was_killed(drumline_home, monkeypatch):
    killed = create_folder(JOB, str(drumline_home))
    killed.write(killed.maker, json.dumps({**process_identity.identify_process(os.getpid()), "started": 1}))
    others = []

    def be_late(*_):
        if not others:
            shutil.rmtree(killed.path)
            others.append(RunFolder.for_job("wanted"))
            others[0].create()

    monkeypatch.setattr(fcntl, "flock", be_late)
    with pytest.raises(PlanError, match="there is a job 'wanted' already"):
        create_folder(JOB, str(drumline_home))
    run_folder.check_is_ours(others[0])


def test_a_submitter_of_another_machine_that_comes_back_late_harms_nobody(drumline_home):
    first = create_folder(JOB, str(drumline_home))
    first._made_by = {**first._made_by, "space": "elsewhere"}
    first.write(first.maker, json.dumps(first._made_by))
    os.utime(first.path, (0, 0))
    second = create_folder(JOB, str(drumline_home))
    second.begin(e.JobSubmitted(1.0, "ann"))
    with pytest.raises(PlanError, match="another submission took the name 'wanted' meanwhile"):
        run_folder.check_is_ours(first)
    run_folder.remove_folder(first)
    assert second.exists()
