"""Whether ranks start warm: what the job says, else its variable, else that of whoever submits."""

import pytest
import yaml
from planning import plan

from drumline.contract.errors import PlanError, SpecError, UsageError
from drumline.control.submission import planning
from drumline.spec.jobs.command import command
from drumline.spec.jobs.job import to_yaml
from drumline.spec.load import load_job


def loaded(tmp_path, written):
    path = tmp_path / "job.yml"
    path.write_text(f"command: python train.py\ndrumline: {{warm: {written}}}\n")
    return load_job(path)


@pytest.mark.parametrize(
    ("written", "means"),
    [
        ("auto", "auto"),
        ("Auto", "auto"),
        *((text, "on") for text in ("on", '"on"', "ON", "true", '"true"', "yes", "1")),
        *((text, "off") for text in ("off", '"off"', "Off", "false", "'False'", "no", "0")),
    ],
)
def test_as_yaml_has_it(tmp_path, written, means):
    """YAML 1.1 reads ``on`` as true where nobody quotes it."""
    job = loaded(tmp_path, written)
    assert job._warnings == []
    assert planning.plan(job).warm == means
    again = yaml.safe_load(to_yaml(job))
    assert again["drumline"] == {"warm": means}


@pytest.mark.parametrize("written", ["maybe", "2", "null", "[on]", "1.0e3"])
def test_another_word_is_refused_with_its_place(tmp_path, written):
    with pytest.raises(SpecError, match=r"job.yml:2:18: drumline.warm") as caught:
        loaded(tmp_path, written)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(("given", "means"), [(True, "on"), (False, "off"), ("ON", "on"), ("auto", "auto")])
def test_as_python_has_it(given, means):
    assert plan(drumline={"warm": given}).warm == means
    assert planning.plan(command(command="true", drumline={"warm": given})).warm == means


def test_nothing_said_is_auto():
    assert plan().warm == "auto"


def test_who_is_heard_first():
    """The job's setting, its variable, that of whoever submits."""
    of_job, of_variable, of_site = {"warm": "on"}, {"DRUMLINE_WARM": "off"}, {"warm": "auto"}
    both = {"drumline": of_job, "environment_variables": of_variable}
    assert plan(at=of_site, **both).warm == "on"
    assert plan(at=of_site, environment_variables=of_variable).warm == "off"
    assert plan(at={"warm": "off"}).warm == "off"
    assert plan(at={"warm": "off"}, environment_variables={"DRUMLINE_WARM": None}).warm == "off"


@pytest.mark.parametrize(
    ("job", "path"),
    [
        ({"drumline": {"warm": "maybe"}}, "drumline.warm"),
        ({"environment_variables": {"DRUMLINE_WARM": "maybe"}}, "environment_variables.DRUMLINE_WARM"),
    ],
)
def test_another_word_is_no_plan(job, path):
    with pytest.raises(PlanError, match=rf"{path}: must be one of auto, on, off; got 'maybe'") as caught:
        plan(**job)
    assert caught.value.problems[0].path == path


@pytest.mark.parametrize(("said", "means"), [("off", "off"), ("0", "off"), ("On", "on"), ("", "auto")])
def test_the_variable_of_whoever_submits(monkeypatch, said, means):
    monkeypatch.setenv("DRUMLINE_WARM", said)
    assert planning.plan(command(command="true")).warm == means
    assert planning.plan(command(command="true", drumline={"warm": "auto"})).warm == "auto"


def test_a_variable_with_another_word(monkeypatch):
    monkeypatch.setenv("DRUMLINE_WARM", "sure")
    with pytest.raises(UsageError, match="DRUMLINE_WARM: must be one of auto, on, off; got 'sure'") as caught:
        planning.plan(command(command="true"))
    assert caught.value.exit_code == 2
