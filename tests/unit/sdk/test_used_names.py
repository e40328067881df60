"""Submission under the name of a job that is there, and of a job with a mistaken attribute."""

import pytest

from drumline import MLClient, command
from drumline.contract.errors import PlanError, SpecError


@pytest.fixture
def jobs(drumline_home):
    return MLClient().jobs


@pytest.fixture
def twice(jobs):
    job = command(name="twice", command="exit 4", distribution={"type": "pytorch"}, inputs={"lr": 0.1})
    jobs.create_or_update(job)
    with pytest.raises(Exception, match="failed"):
        jobs.stream("twice")
    return job


def test_another_job_of_that_name_is_refused(jobs, twice):
    with pytest.raises(PlanError, match="name: there is a job 'twice' already") as raised:
        jobs.create_or_update(command(name="twice", command="echo repaired"))
    assert "leave the name out for a new one" in str(raised.value.hint)


def test_the_same_object_with_another_command_is_refused(jobs, twice):
    twice.command = "echo repaired"
    with pytest.raises(PlanError, match="there is a job 'twice' already"):
        jobs.create_or_update(twice)


@pytest.mark.parametrize(
    ("field", "value"),
    [("command", "echo x"), ("inputs", {"lr": 0.2}), ("distribution", None), ("compute", "other")],
)
def test_a_fetched_job_whose_specification_changed_is_refused(jobs, twice, field, value):
    fetched = jobs.get("twice")
    setattr(fetched, field, value)
    with pytest.raises(PlanError, match="there is a job 'twice' already"):
        jobs.create_or_update(fetched)


def test_a_fetched_or_submitted_job_is_edited(jobs, twice):
    fetched = jobs.get("twice")
    fetched.tags["a"] = "1"
    assert jobs.create_or_update(fetched, description="why").tags == {"a": "1"}
    twice.display_name = "renamed"
    edited = jobs.create_or_update(twice)
    assert (edited.display_name, edited.description, edited.tags) == ("renamed", "why", {"a": "1"})


def test_a_function_that_was_not_called_is_refused(jobs):
    with pytest.raises(SpecError, match=r"a function is not a job\n.*call it, and pass what it returns"):
        jobs.create_or_update(lambda: None)


def test_an_unknown_attribute_is_named_at_submission(jobs, capsys):
    job = command(name="odd", command="true")
    job.enviroment = "x"
    jobs.create_or_update(job)
    jobs.stream("odd")
    assert (
        "warning: enviroment: not an attribute of the job, not used; did you mean" in capsys.readouterr().err
    )
    jobs.create_or_update(jobs.get("odd"))
    assert capsys.readouterr().err == ""
