"""
What docs/reference/azure-ml.md says of fields, references and flags happens: a file with each one is made and
submitted, or
refused.
"""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from surface import HONOURED, REFUSED, TABLES, WARNED, flags_of, nouns, sample, verdicts, with_field

from drumline.contract.errors import DrumlineError, SpecError
from drumline.spec.jobs.command import COMMAND_JOB
from drumline.spec.load import load_job
from drumline.spec.parts.environment import INLINE as ENVIRONMENT

# fields

COMMAND = {"command": "true"}
SEARCH = {
    "type": "sweep",
    "trial": {"command": "echo ${{search_space.lr}}"},
    "search_space": {"lr": {"type": "choice", "values": [1, 2]}},
    "objective": {"goal": "maximize", "primary_metric": "accuracy"},
    "limits": {"max_total_trials": 2},
}
PARALLEL = {
    "type": "parallel",
    "inputs": {"one": {"type": "uri_folder", "path": "data"}},
    "input_data": "${{inputs.one}}",
    "task": {"type": "run_function", "entry_script": "score.py"},
}
VALUES = {
    "services": {"one": {"type": "ssh"}},
    "services.*.nodes": "all",
    "code": "data",
    "type": "command",
    "distribution": {"type": "pytorch"},
    "resources": {},
    "limits": {},
    "inputs": {},
    "outputs": {},
    "inputs.*.path_on_compute": "data",
    "settings.default_datastore": "azureml:text",
    "conda_file": {"dependencies": ["pip"]},
    "build": {"path": "data"},
    "build.path": "data",
}
"""Where ``sample`` makes nothing that is taken."""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The working folder, with data in it."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "file").write_text("x")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _said(job_file):
    """The warnings of a job, when it is submitted."""
    from drumline.control.submission import driven, planning

    Path("job.yml").write_text(yaml.safe_dump(job_file))
    job = load_job("job.yml")
    if job.type in ("command", "parallel"):
        return [*job._warnings, *planning.plan(job).warnings]
    return [*job._warnings, *driven.prepare(job)[1]]


def _of_job(base):
    return lambda fields: _said(_merged(base, fields))


def _of_node(fields):
    return _said({"type": "pipeline", "jobs": {"a": _merged(COMMAND, fields)}})


def _of_input(fields):
    fields.setdefault("inputs", {}).setdefault("one", {}).setdefault("path", "data")
    fields["inputs"]["one"]["type"] = "uri_folder"
    return _said(_merged(COMMAND, fields))


def _of_environment(fields):
    if not fields:
        return _said(COMMAND)
    if "inference_config" in fields:
        fields = {"inference_config": sample(ENVIRONMENT.fields["inference_config"])}
    return _said({**COMMAND, "environment": fields if "build" in fields else {"image": "text", **fields}})


def _of_pipeline_component(fields):
    component = {"type": "pipeline", "name": "inner", "jobs": {"b": COMMAND}}
    return _said(
        {"type": "pipeline", "jobs": {"a": {"type": "pipeline", "component": _merged(component, fields)}}}
    )


def _of_compute(fields):
    from drumline.control.machine import computes
    from drumline.spec.registered.compute import from_dict

    return computes.attach(from_dict(_merged({"name": "text", "type": "amlcompute"}, fields)), check=False)


def _of_asset(kind):
    def said(fields):
        from drumline.control.assets import asset_verbs
        from drumline.spec.load import load_data, load_model

        Path("asset.yml").write_text(yaml.safe_dump(_merged({"name": "text", "path": "data"}, fields)))
        return asset_verbs.create({"data": load_data, "model": load_model}[kind]("asset.yml"))._warnings

    return said


def _of_workspace(fields):
    from drumline.spec.registered.workspace import load_workspace

    Path("workspace.yml").write_text(yaml.safe_dump(_merged({"name": "text"}, fields)))
    return load_workspace("workspace.yml")._warnings


SAID_BY = {
    "Command job": _of_job(COMMAND),
    "Inputs and outputs": _of_input,
    "Sweep job": _of_job(SEARCH),
    "Pipeline job": _of_job({"type": "pipeline", "jobs": {"a": COMMAND}}),
    "Pipeline nodes": _of_node,
    "Parallel job": _of_job(PARALLEL),
    "Pipeline component": _of_pipeline_component,
    "`amlcompute`": _of_compute,
    "Environment": _of_environment,
    "Data": _of_asset("data"),
    "Model": _of_asset("model"),
    "Workspace": _of_workspace,
}


def _merged(base, fields):
    found = dict(base)
    for key, value in fields.items():
        both = isinstance(value, dict) and isinstance(found.get(key), dict)
        found[key] = _merged(found[key], value) if both else value
    return found


def _speaks_of(warning, key):
    """Of the field or of one that it is in, by its path."""
    path = key.replace("*", "one").split(".")
    paths = [".".join(path[:length]) for length in range(1, len(path) + 1)]
    return any(re.search(rf"(^|: |\.){re.escape(path)}(\.\w+)?: ", warning) for path in paths)


WITH_A_WARNING = [
    (heading, key) for heading in TABLES for key, verdict in verdicts(heading).items() if verdict == WARNED
]


@pytest.mark.parametrize(("heading", "key"), WITH_A_WARNING)
def test_a_field_with_no_effect_is_answered_with_a_warning(heading, key):
    said = SAID_BY[heading](with_field(heading, key, VALUES.get(key)))
    name = "environment" if heading == "Environment" else key
    assert [warning for warning in said if _speaks_of(warning, name)], said
    assert not [warning for warning in SAID_BY[heading]({}) if _speaks_of(warning, name)]


HONOURED_IN_JOBS = [
    key
    for key, verdict in verdicts("Command job").items()
    if verdict == HONOURED and not key.startswith("services.")
]


@pytest.mark.parametrize("key", HONOURED_IN_JOBS)
def test_a_field_that_is_honoured_is_answered_with_none(key):
    is_read_only = key in COMMAND_JOB.ignored
    fields = {key: "text"} if is_read_only else with_field("Command job", key, VALUES.get(key))
    assert [warning for warning in _of_job(COMMAND)(fields) if "not used" in warning] == []


@pytest.mark.parametrize("is_deterministic", [True, False])
def test_a_pipeline_component_that_is_not_deterministic_runs_again(is_deterministic):
    from drumline.control.submission import driven

    component = {"name": "inner", "is_deterministic": is_deterministic, "jobs": {"b": COMMAND}}
    job_file = {"type": "pipeline", "jobs": {"a": {"type": "pipeline", "component": component}}}
    Path("job.yml").write_text(yaml.safe_dump(job_file))
    (step,) = driven.prepare(load_job("job.yml"))[0]["steps"]
    assert step["job"].get("settings", {}).get("force_rerun") == (None if is_deterministic else True)


# refused


@pytest.mark.parametrize(
    "kind", [name for name, verdict in verdicts("Job types").items() if verdict == REFUSED]
)
def test_a_type_of_job_that_is_refused(kind):
    with pytest.raises(SpecError, match=kind):
        _said({"type": kind, **COMMAND})


@pytest.mark.parametrize(
    "kind", [name for name, verdict in verdicts("Types of nodes").items() if verdict == REFUSED]
)
def test_a_type_of_node_that_is_refused(kind):
    with pytest.raises(SpecError, match=kind):
        _of_node({"type": kind, **COMMAND})


@pytest.mark.parametrize(
    "kind", [name for name, verdict in verdicts("Compute types").items() if verdict == REFUSED]
)
def test_a_type_of_compute_that_is_refused(kind):
    with pytest.raises(SpecError, match=kind):
        _of_compute({"type": kind})


def test_a_field_that_is_refused():
    refused = [
        (heading, key)
        for heading in TABLES
        for key, verdict in verdicts(heading).items()
        if verdict == REFUSED
    ]
    assert refused == [
        ("Command job", "distribution.address"),
        ("Parallel job", "partition_keys"),
        ("Parallel component", "partition_keys"),
    ]
    with pytest.raises(DrumlineError, match="partition_keys: tables are not split here"):
        _said({**PARALLEL, "partition_keys": ["store"]})
    with pytest.raises(DrumlineError, match=r"distribution\.address"):
        _said({**COMMAND, "distribution": {"type": "ray", "address": "text"}})


# references


@pytest.fixture
def assets(folder):
    """Data, a datastore and a labelled version, under the names that the page uses."""
    from drumline.control.assets import asset_verbs, datastore_verbs
    from drumline.spec.registered.assets import Data
    from drumline.spec.registered.datastores import LocalDatastore

    asset_verbs.create(Data(name="NAME", path="data", version="VERSION"), labels=["LABEL"])
    asset_verbs.create(Data(name="NAME", path="data", version="1"))
    datastore_verbs.create(LocalDatastore(name="NAME", path=folder / "data"))
    (folder / "data" / "PATH").mkdir()
    (folder / "folder").mkdir()


REFERENCES = verdicts("Asset references")


@pytest.mark.usefixtures("assets")
@pytest.mark.parametrize("text", REFERENCES)
def test_a_reference_is_found_or_refused(text):
    if text.startswith("hf:"):
        pytest.importorskip("huggingface_hub")
    kind = "uri_file" if text.endswith(".csv") else "uri_folder"
    job = {**COMMAND, "inputs": {"x": {"type": kind, "path": text}}}
    if REFERENCES[text] == REFUSED:
        with pytest.raises(DrumlineError, match=r"inputs\.x") as caught:
            _said(job)
        error: Any = caught.value
        assert error.hint or error.problems[0].hint
        if not text.startswith("azureml:"):
            job["inputs"]["x"]["mode"] = "direct"
            assert _said(job) == []
    elif text == "azureml:NAME":
        with pytest.raises(DrumlineError, match="names no version"):
            _said(job)
    elif "data/file.csv" in text:
        with pytest.raises(DrumlineError, match=r"there is no /data/file\.csv"):
            _said(job)
    elif "JOB" in text:
        with pytest.raises(DrumlineError, match="there is no job 'JOB'"):
            _said(job)
    else:
        assert _said(job) == []


# flags

NOUNS = nouns()
REFUSED_FLAGS = [
    (noun, verb, flag)
    for noun in NOUNS
    for (flag, verb), verdict in flags_of(noun).items()
    if verdict == REFUSED
]


@pytest.mark.parametrize(("noun", "verb", "flag"), REFUSED_FLAGS)
def test_a_flag_that_is_refused(noun, verb, flag, capsys):
    from drumline.cli.main import main

    assert main([noun, verb, "text", flag, "text", "text"][: 6 if flag == "--add" else 5]) == 2
    assert flag in capsys.readouterr().err


CREATES = {
    "compute": ["create", "--name", "text", "--type", "local", "--no-check"],
    "workspace": ["create", "--name", "text"],
    "data": ["create", "--name", "text", "--path", "data"],
    "model": ["create", "--name", "text", "--path", "data"],
    "environment": ["create", "--name", "text", "--image", "text"],
    "component": ["create", "--file", "component.yml"],
}
WARNED_FLAGS = [
    (noun, flag)
    for noun in NOUNS
    for (flag, verb), verdict in flags_of(noun).items()
    if verdict == WARNED and verb == "create"
]


@pytest.mark.parametrize(("noun", "flag"), WARNED_FLAGS)
def test_a_flag_with_no_effect_is_answered_with_a_warning(noun, flag, capsys):
    from drumline.cli.main import main

    Path("component.yml").write_text("name: text\ncommand: 'true'\n")
    assert main([noun, *CREATES[noun], flag, "text"]) == 0
    said = capsys.readouterr().err
    if flag.startswith("--"):
        word = flag.removeprefix("--")
        assert re.search(rf"warning: (--)?({word}|{word.replace('-', '_')}): ", said), said
    else:
        assert "warning: " in said
