"""Jobs as the folders of a home, which people may have changed."""

import errno
import json
import os
import sqlite3
import time

import pytest
import yaml

from drumline.contract import events as e
from drumline.contract import process_identity
from drumline.contract.folder import RunFolder
from drumline.contract.outcome import fold
from drumline.control.facts import description, parts
from drumline.control.facts.jobs import KnownJobs
from drumline.control.jobs import job_folders, job_outcome, lookup, recovery
from drumline.control.submission import rerun
from drumline.store import index as store
from drumline.store.index import Index
from drumline.supervisor import main
from drumline.supervisor.supervised_folder import SupervisedFolder


def test_links_that_lead_to_themselves_end_no_list(drumline_home, tmp_path):
    folder = drumline_home / "jobs"
    folder.mkdir(parents=True)
    (folder / "loop").symlink_to(folder / "pool")
    (folder / "pool").symlink_to(folder / "loop")
    (folder / "gone").symlink_to(tmp_path / "nowhere")
    (folder / "job").mkdir()
    assert lookup.all_names() == ["job"]
    assert job_folders.names() == []


def test_a_job_that_cannot_be_read_hides_no_other(drumline_home, monkeypatch):
    """The disk, or a file server, has an error in one place."""
    for name in ("one", "other"):
        folder = RunFolder.for_job(name)
        folder.create()
        folder.begin(e.JobSubmitted(1.0, "me"))
    read = RunFolder.read_events

    def fail(folder, *arguments):
        if os.path.basename(folder.path) == "one":
            raise OSError(errno.EIO, "Input/output error")
        return read(folder, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "read_events", fail)
        assert job_folders.names() == ["other"]
    assert job_folders.names() == ["one", "other"]


@pytest.mark.parametrize("fault", ["somebody else's folder", "no locks", "no room"])
def test_an_index_that_is_of_no_use_hides_no_job(drumline_home, tmp_path, monkeypatch, fault):
    for name in ("one", "other"):
        folder = RunFolder.for_job(name)
        folder.create()
        folder.begin(e.JobSubmitted(1.0, "me"))
        folder.append(e.JobEnded(2.0, "Failed", 1, "it failed"))

    def fail(*_, **__):
        number = errno.ENOLCK if fault == "no locks" else errno.ENOSPC
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        if fault == "somebody else's folder":
            patch.setattr(store, "is_network", lambda path: True)
            patch.setattr(store, "_local_folder", lambda: str(tmp_path))
            (tmp_path / f"drumline-index-{os.getuid()}").mkdir(mode=0o777)
        elif fault == "no locks":
            patch.setattr(store.fcntl, "flock", fail)
        else:
            patch.setattr(Index, "_begin", fail)
        assert job_folders.names() == ["one", "other"]
        assert job_folders.set_archived("one", archived=True)
        assert job_folders.names() == ["other"]
        jobs = KnownJobs()
        assert [job.name for job in jobs.overviews(["one", "other"])] == ["one", "other"]
        assert [job["name"] for job in KnownJobs().describe(["one", "other"])] == ["one", "other"]
        jobs.keep()
    assert job_folders.names() == ["other"]


def test_an_index_that_misses_a_change_for_want_of_room_is_made_anew(drumline_home, monkeypatch):
    for name in ("one", "other"):
        folder = RunFolder.for_job(name)
        folder.create()
        folder.begin(e.JobSubmitted(1.0, "me"))
    assert job_folders.names() == ["one", "other"]

    def fail(*_, **__):
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(Index, "_begin", fail)
        job_folders.set_archived("one", archived=True)
    assert job_folders.names() == ["other"]


def test_a_list_needs_no_room_to_write_down_the_end_of_a_lost_job(drumline_home, monkeypatch):
    folder = RunFolder.for_job("one")
    folder.create()
    folder.begin(e.JobSubmitted(1.0, "me"))
    folder.write(
        folder.supervisor, json.dumps({**process_identity.identify_process(os.getpid()), "started": 1})
    )

    def fail(folder, event):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), folder.events)

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "append", fail)
        assert description.show_job("one")["status"] == "Failed"
    assert not fold(folder.read_events()).is_final


@pytest.fixture
def begun(drumline_home):
    """The run folder of a job that was not handed over, by a maker whose number another process has by now."""
    folder = RunFolder.for_job("job")
    folder.create()
    folder.write(folder.maker, json.dumps({**process_identity.identify_process(os.getpid()), "started": 1}))
    folder.begin(e.JobSubmitted(time.time(), "ann"))
    return folder


def test_a_supervisor_that_comes_after_the_end_of_its_job_leaves_it(begun):
    assert recovery.recover(begun).status == "Failed"
    assert not main._take_job(SupervisedFolder(begun.path), batch=False)
    assert fold(begun.read_events()).status == "Failed"


def test_a_job_whose_supervisor_comes_just_before_its_end_is_written_goes_on(begun, monkeypatch):
    examined = job_outcome.examine(begun)
    assert examined.end is not None
    assert main._take_job(SupervisedFolder(begun.path), batch=False)
    monkeypatch.setattr(recovery, "examine", lambda *_, **__: examined)
    assert not recovery.recover(begun).is_final


def test_a_job_that_is_handed_over_while_it_is_looked_at_is_not_over(begun, monkeypatch):
    """Its maker does that last thing after its file was read."""

    def hand_over_and_end(_):
        monkeypatch.undo()
        begun.hand_over(os.getpid())
        return False

    monkeypatch.setattr(process_identity, "is_alive", hand_over_and_end)
    assert job_outcome.examine(begun).end is None


def test_a_maker_on_another_machine_has_time_to_start_a_supervisor(begun, monkeypatch):
    begun.write(
        begun.maker, json.dumps({**process_identity.identify_process(os.getpid()), "space": "elsewhere"})
    )
    assert job_outcome.read_outcome(begun).status == "NotStarted"
    monkeypatch.setattr(job_outcome, "_SUPERVISOR_START_S", 0.0)
    assert job_outcome.read_outcome(begun).status == "Failed"


def test_a_step_whose_job_is_not_there_yet_does_not_run(drumline_home):
    folder = RunFolder.for_job("p")
    folder.create()
    folder.write(folder.job, json.dumps({"type": "pipeline"}))
    folder.write(folder.graph, json.dumps({"steps": [{"name": "a"}]}))
    folder.begin(e.JobSubmitted(1.0, "me", "local", "pipeline"))
    folder.append(e.StepStarted(2.0, "a", "p-a"))
    # Else the look at it starts a driver.
    folder.write(folder.supervisor, json.dumps(process_identity.identify_process(os.getpid())))
    # Not by show_job: whoever looks starts a driver where there is none.
    (step,) = parts.list_steps(folder, fold(folder.read_events()))
    assert (step.job, step.status) == ("p-a", "NotStarted")


def test_half_of_a_character_in_a_job_file_is_no_harm_to_the_index(drumline_home, monkeypatch):
    """YAML is read without libyaml where PyYAML was built without it; SQLite takes no such text."""
    monkeypatch.delattr(yaml, "CSafeLoader")
    folder = RunFolder.for_job("odd")
    folder.create()
    folder.write(folder.job, json.dumps({"experiment_name": "digits\udcff"}))
    folder.begin(e.JobSubmitted(1.0, "me"))
    assert lookup.read_spec(folder)["experiment_name"] == "digits\udcff"
    assert job_folders.names() == ["odd"]
    assert job_folders.experiments() == ["digits?"]


@pytest.mark.parametrize(
    ("command", "argv", "words"),
    [
        ("python 'my train.py'", ["mpirun", "python", "my train.py"], ("python", "my train.py")),
        ("'\\udcff'", ["\udcff"], ("\udcff",)),
        ("echo it's", ["/bin/bash", "-c", "echo it's"], ()),
        ("echo $HOME", ["/bin/bash", "-c", "echo $HOME"], ()),
        ("", ["/bin/bash", "-c", ""], ()),
        (None, None, ()),
    ],
)
def test_a_rerun_has_the_words_that_were_typed_and_else_a_shell(command, argv, words):
    assert rerun._find_words({"command": command}, {"argv": argv}) == words
