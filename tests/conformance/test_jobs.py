"""
Job files that differ from a good one in one thing each, with azure-ai-ml's verdict on every one.

``verdicts.json`` says which ones it accepts.
Where Drumline decides otherwise, it is on purpose and listed here.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from drumline.contract.errors import SpecError
from drumline.spec.jobs.job import to_dict
from drumline.spec.jobs.validate import validate
from drumline.spec.load import load_job

HERE = Path(__file__).parent
CASES = HERE / "cases"
VERDICTS = json.loads((HERE / "verdicts.json").read_text())
DIFFERENT_ON_PURPOSE = {
    "dup_keys.yml": "the second of two equal keys would win in silence",
}
COMMAND_JOBS = sorted(
    name
    for name, accepted in VERDICTS.items()
    if accepted and name not in DIFFERENT_ON_PURPOSE and not name.startswith(("pipe_", "sweep_"))
)


def is_accepted(path: Path) -> bool:
    try:
        return validate(load_job(path)).passed
    except SpecError:
        return False


@pytest.mark.parametrize("name", sorted(VERDICTS.keys() - DIFFERENT_ON_PURPOSE.keys()))
def test_the_verdict_is_that_of_azure_ai_ml(name):
    assert VERDICTS[name] == is_accepted(CASES / name)


@pytest.mark.parametrize("name", sorted(DIFFERENT_ON_PURPOSE))
def test_the_verdict_differs_where_we_mean_it_to(name):
    assert VERDICTS[name] != is_accepted(CASES / name)


@pytest.mark.parametrize("name", COMMAND_JOBS)
def test_a_dumped_job_loads_back_to_the_same_job(name, tmp_path):
    job = load_job(CASES / name)
    job.dump(tmp_path / "job.yml")
    again = load_job(tmp_path / "job.yml")
    assert to_dict(job, absolute=True) == to_dict(again, absolute=True)


@pytest.mark.parametrize("name", COMMAND_JOBS)
def test_the_text_of_a_job_is_a_job_file(name, tmp_path):
    job = load_job(CASES / name)
    (tmp_path / "job.yml").write_text(str(job))
    again = load_job(tmp_path / "job.yml", relative_origin=CASES)
    assert to_dict(job) == to_dict(again)


@pytest.mark.parametrize("name", sorted(n for n, ok in VERDICTS.items() if not ok))
def test_a_rejection_says_where(name):
    try:
        problems = validate(load_job(CASES / name)).problems
    except SpecError as error:
        problems = list(error.problems)
    assert problems
    assert all(problem.file for problem in problems)
