"""Without the packages of the extras."""

import sys

import pytest

from drumline.contract.errors import NodeError, PlanError
from drumline.contract.extras import install_line
from drumline.control.submission.submit import submit
from drumline.spec.jobs.command import command


@pytest.mark.parametrize(
    ("uri", "package", "extra"),
    [
        ("abfss://c@lab.dfs.core.windows.net/a", "obstore", "azure"),
        ("s3://lab/a", "obstore", "s3"),
        ("gs://lab/a", "obstore", "gs"),
        ("hf://lab/net/a", "huggingface_hub", "hf"),
    ],
)
def test_what_is_missing_is_named(open_uri, monkeypatch, uri, package, extra):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setitem(sys.modules, f"{package}.store", None)
    with pytest.raises(NodeError, match=f"{package}, which is not installed") as caught:
        open_uri(uri)
    assert caught.value.hint == install_line(extra)


@pytest.mark.parametrize("of_what", ["inputs", "outputs"])
def test_what_is_missing_is_told_before_a_job_is_made(monkeypatch, drumline_home, of_what):
    monkeypatch.setitem(sys.modules, "obstore", None)
    job = command(command="true", **{of_what: {"d": {"type": "uri_folder", "path": "s3://lab/a"}}})
    with pytest.raises(PlanError, match=f"{of_what}.d: s3://lab/a needs the package obstore") as caught:
        submit(job)
    assert caught.value.hint == install_line("s3")
    assert not (drumline_home / "jobs").exists()
