"""Outputs of a job that has completed, as assets; what cannot be one is said, and tried again where that can help."""

import time

import pytest

from drumline.contract import events as e
from drumline.contract.folder import RunFolder
from drumline.contract.plan import Registration
from drumline.control.assets import asset_verbs
from drumline.supervisor.job.preparing import register


@pytest.fixture
def folder(tmp_path, drumline_home):
    made = RunFolder.for_job("job")
    made.create()
    made.begin(e.JobSubmitted(time.time(), "ann"))
    (tmp_path / "set").mkdir()
    return made


@pytest.fixture
def wanted(tmp_path, drumline_home):
    return Registration("o", "data", "digits", "", "uri_folder", str(tmp_path / "set"), str(drumline_home))


def said(folder):
    events = [event for event in folder.read_events() if isinstance(event, e.OutputRegistered)]
    return [(event.output, event.version, event.error, event.away) for event in events]


def test_an_output_is_an_asset_with_its_job(folder, wanted):
    register(folder, [wanted])
    register(folder, [wanted])
    assert said(folder) == [("o", "1", "", False)]
    found = asset_verbs.get("data", "digits")
    assert (found.path, found.properties["drumline.job"]) == (wanted.path, "job")


def test_a_version_that_came_first_is_told(folder, wanted):
    register(folder, [wanted._replace(version="7")])
    register(folder, [wanted._replace(output="p", version="7")])
    assert said(folder)[1:] == [("p", "7", "there is version 7 of digits already", False)]


def test_a_model_is_a_model(folder, wanted):
    register(folder, [wanted._replace(kind="model", type="mlflow_model")])
    assert asset_verbs.get("model", "digits").type == "mlflow_model"


def test_what_was_not_written_is_told(folder, wanted):
    register(folder, [wanted._replace(path="/nowhere/at/all")])
    assert said(folder) == [("o", "", "the job did not write it", False)]


def test_a_home_that_is_not_seen_is_left_to_whoever_sees_it(folder, wanted, drumline_home):
    for _ in range(2):
        register(folder, [wanted._replace(home="/nowhere")])
    assert said(folder) == [("o", "", "this machine does not see /nowhere", True)]
    register(folder, [wanted])
    assert said(folder)[1:] == [("o", "1", "", False)]


@pytest.mark.parametrize("version", ["", "7"])
def test_one_that_was_killed_before_it_could_say_so_made_the_only_version(folder, wanted, version):
    wanted = wanted._replace(version=version)
    register(folder, [wanted])
    folder.begin(e.JobSubmitted(time.time(), "ann"))  # Without the event.
    register(folder, [wanted])
    assert said(folder) == [("o", version or "1", "", False)]
    assert len(asset_verbs.all("data", "digits")) == 1
