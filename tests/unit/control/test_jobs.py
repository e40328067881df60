"""Jobs as the folders of a home, which people may have changed."""

import json

from drumline.contract import events as e
from drumline.contract.folder import RunFolder
from drumline.control.jobs import listing, lookup
from drumline.control.observing import description


def test_links_that_lead_to_themselves_end_no_list(drumline_home, tmp_path):
    folder = drumline_home / "jobs"
    folder.mkdir(parents=True)
    (folder / "loop").symlink_to(folder / "pool")
    (folder / "pool").symlink_to(folder / "loop")
    (folder / "gone").symlink_to(tmp_path / "nowhere")
    (folder / "job").mkdir()
    assert lookup.all_names() == ["job"]
    assert listing.names() == []


def test_a_step_whose_job_is_not_there_yet_does_not_run(drumline_home):
    folder = RunFolder.for_job("p")
    folder.create()
    folder.write(folder.job, json.dumps({"type": "pipeline"}))
    folder.write(folder.graph, json.dumps({"steps": [{"name": "a"}]}))
    folder.begin(e.JobSubmitted(1.0, "me", "local", "pipeline"))
    folder.append(e.StepStarted(2.0, "a", "p-a"))
    (step,) = description.show_job("p")["steps"]
    assert (step["job"], step["status"]) == ("p-a", "NotStarted")
