"""What differs between two jobs, in Python and as a page in a notebook."""

import json

import pytest
from html_pages import HOSTILE, Page

from drumline import MLClient
from drumline.contract.errors import NotFoundError
from drumline.contract.record import describe_record
from drumline.control.comparing import compare_jobs
from drumline.sdk.notebook.difference import JobDifferences, render_differences

SAME = {
    "spec": [],
    "environment": [],
    "variables": [],
    "inputs": [],
    "machine": [],
    "plan": [],
    "metrics": [],
    "phases": [],
}


def told(**sections):
    jobs = [
        {"name": "one", "type": "command", "status": "Completed", "exit_code": 0, "reason": "all is well"},
        {"name": "two", "type": "command", "status": "Failed", "exit_code": 1, "reason": "rank 3 failed"},
    ]
    code = {"files": [], "left_out": 0, "notes": []}
    times = [{"time": "run_s", "a": 1.5, "b": None}]
    return {"jobs": jobs, **SAME, "code": code, "times": times, **sections}


def shown(**sections):
    return Page(render_differences(told(**sections)))


def test_two_jobs_are_compared_in_python(cli, tmp_path):
    for name in ("one", "two"):
        assert cli("run", "--name", name, "--env", f"SIDE={name}ish", "--", "true").rc == 0
    jobs = MLClient().jobs
    differences = jobs.diff("one", "two")
    assert differences == describe_record(compare_jobs("one", "two"))
    assert {"variable": "SIDE", "a": "oneish", "b": "twoish"} in differences["variables"]
    assert json.loads(json.dumps(differences)) == differences
    page = Page(differences._repr_html_())
    assert {"one", "two", "SIDE", "oneish", "twoish"} <= set(page.texts)
    with pytest.raises(NotFoundError):
        jobs.diff("one", "three")


def test_a_page_has_both_jobs_what_differs_and_what_does_not():
    page = shown(
        spec=[{"field": "inputs.lr", "a": 0.1, "b": None}],
        metrics=[{"metric": "loss", "a": 0.25, "b": 0.125, "difference": -0.125}],
    )
    assert {"one", "two", "rank 3 failed", "inputs.lr", "0.1", "-0.125", "b - a", "1.5"} <= set(page.texts)
    assert "all is well" not in page.text
    assert "the same: code, environment, variables, inputs, machine, plan" in page.text


def test_a_diff_of_code_keeps_its_lines_and_colours():
    diff = "--- a/train.py\n+++ b/train.py\n@@ -1 +1 @@\n-print(1)\n+print(2)\n"
    files = [
        {"path": "train.py", "change": "modified", "diff": diff, "a": "1", "b": "2"},
        {"path": "x.bin", "change": "added", "diff": "", "a": None, "b": "f00"},
    ]
    page = shown(code={"files": files, "left_out": 2, "notes": ["the code of job x is not stored"]})
    assert diff.rstrip("\n") in "".join(page.texts)
    assert "x.bin: added, none -> f00" in page.text
    assert "and 2 more files" in page.text
    assert "the code of job x is not stored" in page.text
    assert [style for style in page.styles if style.startswith("color:")]


def test_a_page_of_very_different_jobs_stays_short():
    diff = "".join(f"+{'x' * 10_000}\n" for _ in range(5000))
    spec = [{"field": f"f{number}", "a": "y" * 100_000, "b": number} for number in range(1000)]
    files = [{"path": "a", "change": "modified", "diff": diff, "a": "1", "b": "2"}]
    markup = render_differences(told(spec=spec, code={"files": files, "left_out": 0, "notes": []}))
    assert len(markup) < 1_000_000
    page = Page(markup)
    assert "and 800 more fields" in page.text
    assert "and 4,600 more lines" in page.text


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_of_a_job_is_anything_but_text(text):
    jobs = told()["jobs"]
    jobs[1].update(name=text, reason=text)
    page = shown(
        jobs=jobs,
        spec=[{"field": text, "a": text, "b": [text, {text: text}]}],
        variables=[{"variable": text, "a": text, "b": None}],
        code={
            "files": [{"path": text, "change": "added", "diff": f"+{text}\n", "a": text, "b": None}],
            "left_out": 0,
            "notes": [text],
        },
        metrics=[{"metric": text, "a": text, "b": 1.0, "difference": None}],
    )
    assert not {"script", "img"} & set(page.tags)


def test_it_is_a_dictionary_for_programs():
    differences = JobDifferences(told())
    assert differences["times"] == [{"time": "run_s", "a": 1.5, "b": None}]
    assert "_repr_html_" in dir(differences)
