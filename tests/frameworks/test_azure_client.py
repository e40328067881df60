"""
A job that Microsoft's client sends, the one imported from it, and that of `drumline job create` have one plan.

The cases are the conformance cases that both accept, and those of ``azure_jobs``, which have every field that a body
has. ``azure_bodies.py`` makes the client send them; here the bodies become jobs as the server makes them.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from frameworks.conftest import CHOSEN, PYTHONS

from drumline.contract.errors import DrumlineError
from drumline.contract.plan import Plan
from drumline.control.assets import asset_verbs
from drumline.control.machine import computes
from drumline.control.submission import driven, planning
from drumline.plan.search.samplers import next_params
from drumline.plan.search.sweep_request import request_of, trial_job
from drumline.rest import asset_bodies, job_bodies
from drumline.spec.entity import plain
from drumline.spec.jobs.component import class_of
from drumline.spec.jobs.job import to_dict
from drumline.spec.jobs.sweep import resolve_trial
from drumline.spec.kinds.values import Report
from drumline.spec.load import load_component, load_job, load_job_values
from drumline.spec.parts import environment
from drumline.spec.reading.files import wrap_file
from drumline.spec.registered.assets import Data, Model
from drumline.spec.registered.compute import LocalCompute

ENVIRONMENT = "azure-ai-ml"
WORKSPACE = "/subscriptions/s/resourceGroups/r/providers/Microsoft.MachineLearningServices/workspaces/w"
ANONYMOUS = "CliV2AnonymousEnvironment"
HERE = Path(__file__).parent
OWN = HERE / "azure_jobs"
CONFORMANCE = HERE.parent / "conformance"
VERDICTS = json.loads((CONFORMANCE / "verdicts.json").read_text())
DIFFERENT = {
    "dup_keys.yml": "we refuse it",
    "env_name_only.yml": "the client sends no environment without a version",
    "in_asset_noversion.yml": "nor data without a version",
    "in_file_uri.yml": "nor a path with file:",
}
NOT_IMPORTED = {"parallel.yml": "Parallel is not supported"}
CASES = [CONFORMANCE / "cases" / name for name, good in VERDICTS.items() if good and name not in DIFFERENT]
CASES += sorted(OWN.glob("*.yml"))
by_case = pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])


def check_environment() -> None:
    """Skip the test where the client's environment is not there; in CI it must be."""
    if ENVIRONMENT not in CHOSEN:
        message = f"needs the environment {ENVIRONMENT}: scripts/test --frameworks {ENVIRONMENT}"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)


@pytest.fixture(scope="module")
def answers() -> dict[str, Any]:
    """What the client makes of every case, by file; and the folders of what it uploads."""
    return run_client("azure_bodies.py", *map(str, CASES))


def run_client(program: str, *arguments: str, stdin: str = "") -> dict[str, Any]:
    """Run a program of this folder in the client's environment, and return the JSON that it prints."""
    check_environment()
    command = [PYTHONS[ENVIRONMENT], str(HERE / program), *arguments]
    variables = {**os.environ, "PYTHONPATH": str(HERE.parents[1] / "src")}
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=240, env=variables)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture
def stored(drumline_home: Path, tmp_path: Path) -> None:
    """Store what the cases refer to."""
    folder = tmp_path / "stored"
    folder.mkdir()
    (folder / "MLTable").write_text("paths: []\n")
    for name in ("cpu", "cpu-cluster", "other"):
        computes.attach(LocalCompute(name=name, nodes=4))
    for name, kind in (("d", "uri_folder"), ("t", "mltable")):
        asset_verbs.create(Data(name=name, version="1", path=str(folder), type=kind))
    asset_verbs.create(Model(name="m", version="3", path=str(folder)))
    store_environment({"name": "e", "version": "1", "python": sys.executable})
    asset_verbs.create(load_component(OWN / "parts" / "comp.yml"))


def store_environment(values: dict[str, Any]) -> None:
    asset_verbs.create(environment.from_tree(wrap_file(values), Report("/")))


def receive(sent: list[Any], find_code: Callable[[str, str], str]) -> dict[str, Any]:
    """Store what the client sends before the job, as the server does, and return the file of the job."""
    kinds = {collection: kind for kind, collection in asset_bodies.COLLECTIONS.items()}
    for place, body in sent[:-1]:
        collection, name, _, version = place.split("/")[-4:]
        kind = kinds[collection]
        values = asset_bodies.read_asset(kind, name, version, body, find_code)
        if kind == "environment":
            store_environment(values)
        else:
            fields = {key: value for key, value in values.items() if key != "type"}
            asset_verbs.create(class_of(values)(**fields))
    place, body = sent[-1]
    return job_bodies.read_job(place.rpartition("/")[2], body, find_code)


def plan_of(job: Any) -> Any:
    """Return all that would run, or why nothing does."""
    try:
        if job.type == "sweep":
            return plan_sweep(job)
        if job.type == "pipeline":
            steps, warnings = driven.check_pipeline(job)
            return [plan_step(step) for step in steps], warnings
        return forget_names(planning.plan(job))
    except DrumlineError as error:
        return f"{type(error).__name__}: {error}"


def plan_sweep(job: Any) -> Any:
    job.name = "NAME"
    job.trial = resolve_trial(job, planning.find_component)
    request = request_of(job)
    first = trial_job(job, job.trial, next_params(request.search, []) or {}, 0)
    search = request.search._replace(space=plain(request.search.space))
    return request._replace(search=search), forget_names(planning.plan(first, check=False))


def plan_step(planned: driven.PlannedStep) -> Any:
    step = planned.step
    swept = plan_sweep(step.job) if step.job.type == "sweep" else None
    single = forget_names(planned.plan) if planned.plan else None
    return step.name, sorted(step.needs), single, [plan_step(inner) for inner in planned.steps], swept


def forget_names(plan: Plan) -> Plan:
    """Return the plan without the name of an environment that was written out in the file."""
    if ANONYMOUS not in plan.resolved.get("environment", ""):
        return plan
    resolved = {name: asset for name, asset in plan.resolved.items() if name != "environment"}
    return plan._replace(resolved=resolved, build=plan.build and plan.build._replace(name=""))


@by_case
def test_a_job_that_the_client_sends_has_the_plan_of_its_file(case, answers, stored):
    answer = answers["files"][str(case)]
    assert "error" not in answer, answer["error"]
    text = json.dumps(answer["sent"])
    for place, folder in answers["uploads"].items():
        text = text.replace(f'{place}"', f'{folder}"').replace(f'{place}/"', f'{folder}"')
    ours = load_job(case)
    values = receive(json.loads(text), lambda name, version: answers["uploads"][name])
    for name in ("name", "display_name", "experiment_name"):
        if getattr(ours, name) is None:
            del values[name]  # The client makes one up.
    assert plan_of(load_job_values(values, "/")) == plan_of(ours)


@by_case
def test_a_job_that_is_imported_has_the_plan_of_its_file(case, answers, stored):
    values = answers["files"][str(case)]["imported"]
    if case.name in NOT_IMPORTED:
        assert NOT_IMPORTED[case.name] in values
        return
    assert plan_of(load_job_values(values, "/")) == plan_of(load_job(case))


def test_a_job_that_we_answer_is_to_the_client_what_it_was():
    written = {case.stem: write(case) for case in sorted(OWN.glob("*.yml"))}
    answers = run_client("azure_readings.py", stdin=json.dumps(written))
    errors = {name: answer for name, answer in answers.items() if isinstance(answer, str)}
    assert errors == {}
    for name, body in written.items():
        assert (answers[name]["status"], answers[name]["studio"]) == ("Running", "https://host/studio")
        answers[name]["properties"].get("identity", {}).pop("objectId", None)  # Its copy of clientId.
        assert read_values(name, answers[name]) == read_values(name, body)


def write(case: Path) -> dict[str, Any]:
    """Return the body of a job as if it ran. The client keeps no environment without a name."""
    values = {"type": "command", **to_dict(load_job(case), absolute=True)}
    if isinstance(values.get("environment"), dict):
        values["environment"] = "azureml:e:1"
    if values["type"] == "sweep":
        values.pop("queue_settings", None)  # The client cannot send again what it has read of them.
        values["resources"] = values["trial"]["resources"]  # As it does itself.
    described = {
        "display_name": "d",
        "experiment_name": "e",
        **values,
        "name": case.stem,
        "status": "Running",
    }
    return job_bodies.write_job(described, WORKSPACE, {"Studio": "https://host/studio"})


def read_values(name: str, body: dict[str, Any]) -> dict[str, Any]:
    return to_dict(load_job_values(job_bodies.read_job(name, body, lambda *_: "/"), "/"))


@pytest.mark.parametrize("case", sorted(OWN.glob("*.yml")), ids=lambda case: case.name)
def test_the_cases_here_can_run(case, stored):
    assert not isinstance(plan_of(load_job(case)), str)
