"""Which folders of jobs TensorBoard is shown."""

import json
import os
import sys
from typing import Any

import pytest
from planning import plan

from drumline.contract import events as e
from drumline.contract.errors import DrumlineError, NotFoundError, UsageError
from drumline.contract.folder import RunFolder
from drumline.control.access import boards

EVENTS = "events.out.tfevents.1"


def make_job(name, *places):
    """A job with its code in its run folder, and an event file in each of these places of that."""
    folder: Any = RunFolder.for_job(name)
    folder.create()
    folder.write(folder.plan, plan(nodes=1)._replace(cwd=folder.code).to_json())
    folder.begin(e.JobSubmitted(0.0, "ann", "local"))
    for place in places:
        path = os.path.join(folder.path, place)
        os.makedirs(path, exist_ok=True)
        open(os.path.join(path, EVENTS), "w").close()
    return folder


def make_pipeline(name, *jobs):
    folder: Any = RunFolder.for_job(name)
    folder.create()
    folder.write(folder.graph, json.dumps({"steps": []}))
    folder.begin(e.JobSubmitted(0.0, "ann", "local"))
    for number, job in enumerate(jobs):
        folder.append(e.StepStarted(1.0, f"step{number}", job))


def find(*names):
    return {one.label: one.path for one in boards.find_event_folders(names)}


def test_a_place_is_shown_once_and_by_the_name_of_the_job(drumline_home):
    jobs = drumline_home / "jobs"
    make_job("one", "outputs/board")
    many = make_job("many", "outputs", "logs/board", "code/runs/a", "code")
    os.symlink(many.outputs, os.path.join(many.code, "outputs"))
    os.symlink(jobs / "one", os.path.join(many.code, "data"))
    make_job("none")
    assert find("one", "many", "one") == {
        "one": str(jobs / "one" / "outputs"),
        "many/outputs": str(jobs / "many" / "outputs"),
        "many/logs": str(jobs / "many" / "logs"),
        "many/code/runs": str(jobs / "many" / "code" / "runs"),
        f"many/code/{EVENTS}": str(jobs / "many" / "code" / EVENTS),
    }
    with pytest.raises(NotFoundError, match="job none has no event files"):
        find("one", "none")


def test_a_pipeline_shows_its_steps_even_one_that_names_itself(drumline_home):
    make_job("prep")
    make_job("train", "outputs")
    make_job("other", "outputs")
    make_pipeline("sweep", "train", "pipe", "..", "other/../other", "missing")
    make_pipeline("pipe", "prep", "sweep", "pipe")
    assert list(find("pipe")) == ["train"]
    assert sorted(find("pipe", "other", "train")) == ["other", "train"]


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_number_that_is_no_port_is_refused(port, drumline_home):
    with pytest.raises(UsageError, match="is no port"), boards.serve_tensorboard([], port):
        pass
    with pytest.raises(UsageError, match="is no port"), boards.serve_mlflow(port):
        pass


def test_a_package_that_is_missing_is_named_with_the_python(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(UsageError) as raised, boards.serve_tensorboard([], 0):
        pass
    assert raised.value.message == "tensorboard is not installed for /bin/false"
    assert raised.value.hint == "/bin/false -m pip install tensorboard, or --python PATH"
    with (
        pytest.raises(UsageError, match="cannot be started: No such file"),
        boards.serve_tensorboard([], 0, "x/y"),
    ):
        pass


def test_what_ends_by_itself_is_an_error(monkeypatch):
    def no_child():
        raise ChildProcessError

    monkeypatch.setattr(os, "wait", no_child)
    with pytest.raises(DrumlineError, match="TensorBoard has ended by itself"):
        boards.wait_for_interrupt("TensorBoard")
