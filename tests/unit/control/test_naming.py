"""Words that stand for a job on the command line."""

import json
import os
import time

import pytest

from drumline.cli.arguments import find_job
from drumline.cli.main import main
from drumline.contract import events as e
from drumline.contract.errors import NotFoundError, UsageError
from drumline.contract.folder import MARKER, RunFolder
from drumline.control.jobs import job_folders, naming


@pytest.fixture
def make(drumline_home):
    """Make the run folder of a job that was submitted so many seconds after the one before."""
    at = [time.time() - 1000]

    def make_job(name, parent="", kind="command"):
        at[0] += 1
        folder = RunFolder.for_job(name)
        folder.create()
        folder.write(folder.job, json.dumps({"command": "true", "parent_job_name": parent}))
        folder.begin(e.JobSubmitted(at[0], "me", "local", kind))
        return folder

    return make_job


def test_a_name_and_what_is_none_stay_as_they_are(make):
    make("calm_drum")
    make("calm_drum_2")
    assert naming.find_name("calm_drum") == "calm_drum"
    for word in ("other", "", ".", "..", "../calm", "/", "other/step"):
        assert naming.find_name(word) == word


def test_a_unique_beginning_is_completed(make):
    make("calm_drum")
    make("lr-sweep", kind="sweep")
    make("lr-sweep_0", parent="lr-sweep")
    make("lr-sweep_1", parent="lr-sweep")
    assert naming.find_name("ca") == "calm_drum"
    assert naming.find_name("lr") == "lr-sweep", "trials count only where no other job's name begins so"
    assert naming.find_name("lr-sweep_1") == "lr-sweep_1"


def test_the_beginning_of_several_names_is_an_error_that_lists_them(make):
    for number in range(10):
        make(f"calm_{number}")
    with pytest.raises(
        UsageError, match=r"'calm' is the beginning of 10 names of jobs: calm_9, calm_8.* and 2 more"
    ):
        naming.find_name("calm")


def test_a_name_of_another_workspace_is_not_completed_here(make, monkeypatch):
    make("exp-1")
    monkeypatch.setenv("DRUMLINE_WORKSPACE", "other")
    make("exp-10")
    assert naming.find_name("exp-1") == "exp-1"


def test_last_is_the_newest_job_that_lists_show(make):
    with pytest.raises(NotFoundError, match="no jobs yet"):
        naming.find_name("@last")
    make("first")
    make("pipe", kind="pipeline")
    make("pipe-step", parent="pipe")
    make("hidden")
    job_folders.set_archived("hidden", archived=True)
    assert naming.find_name("@last") == "pipe"


def test_a_minus_is_the_job_of_the_last_command(make, drumline_home, monkeypatch):
    with pytest.raises(NotFoundError, match="no jobs yet"):
        naming.find_name("-")
    make("first")
    make("second")
    assert naming.find_name("-") == "second", "it was submitted last"
    naming.remember("first")
    assert naming.find_name("-") == "first"
    assert os.stat(drumline_home / "last-job").st_mode & 0o777 == 0o600
    monkeypatch.setenv(MARKER, "/a/run/folder")
    naming.remember("second")
    assert naming.find_name("-") == "first", "a rank's command is not the user's"
    monkeypatch.delenv(MARKER)
    naming.remember("no-job")
    assert naming.find_name("-") == "first"
    os.utime(drumline_home / "last-job", (0, 0))
    assert naming.find_name("-") == "second", "a newer job was submitted since"


def test_a_minus_whose_job_is_gone_is_an_error(make):
    folder = make("first")
    make("second")
    naming.remember("first")
    os.unlink(folder.events)
    with pytest.raises(NotFoundError, match="'first', which your last command was about, is gone"):
        naming.find_name("-")


def test_a_step_is_named_by_its_pipeline(make):
    pipe = make("pipe", kind="pipeline")
    pipe.write(pipe.graph, json.dumps({"steps": [{"name": "prep"}, {"name": "train"}]}))
    pipe.append(e.StepStarted(time.time(), "prep", "pipe-prep-2"))
    make("pipe-prep-2", parent="pipe")
    sweep = make("sweep", kind="sweep")
    sweep.append(e.StepStarted(time.time(), "trial_3", "sweep_3"))
    make("sweep_3", parent="sweep")
    assert naming.find_name("pipe/prep") == "pipe-prep-2"
    assert naming.find_name("@last/3") == naming.find_name("sweep/trial_3") == "sweep_3"
    with pytest.raises(NotFoundError, match="'train' of job pipe has no job yet"):
        naming.find_name("pipe/train")
    with pytest.raises(NotFoundError) as raised:
        naming.find_name("pipe/tarin")
    assert raised.value.hint == "its steps: prep, train"


@pytest.mark.parametrize("verb", ["delete", "cancel", "preempt"])
def test_a_script_that_runs_twice_takes_no_other_job(make, cli, verb):
    make("run_10")
    make("run_2")
    done = cli("job", verb, "run_1", *(["--yes"] if verb == "delete" else []))
    assert (done.rc, "did you mean 'run_10'?" in done.err) == (3, True)
    assert naming.find_name("run_1") == "run_10", "it is still there"


@pytest.mark.parametrize("word", ["run_1", "run_1/prep"])
def test_who_is_not_asked_gives_the_whole_name(make, monkeypatch, word):
    """On a terminal too: ``--yes`` in the history of a shell would take another job the second time."""
    pipe = make("run_10", kind="pipeline")
    pipe.write(pipe.graph, json.dumps({"steps": [{"name": "prep"}]}))
    pipe.append(e.StepStarted(time.time(), "prep", "run_10-prep"))
    make("run_10-prep", parent="run_10")
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    assert find_job(word, is_final=True).startswith("run_10")
    with pytest.raises(NotFoundError, match="there is no job 'run_1'") as raised:
        find_job(word, is_final=True, is_asked=False)
    assert "did you mean 'run_10'?" in raised.value.hint
    assert main(["job", "delete", word, "--yes"]) == 3
    whole = word.replace("run_1", "run_10")
    assert find_job(whole, is_final=True, is_asked=False).startswith("run_10")
    assert find_job("@last", is_final=True, is_asked=False) == "run_10"
