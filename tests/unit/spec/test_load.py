"""A job file as users write it, and every mistake of it at once."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from drumline.contract.errors import SpecError
from drumline.spec.jobs.command import Command
from drumline.spec.load import load_environment, load_job
from drumline.spec.parts.io import Input, Output
from drumline.spec.parts.resources import PyTorchDistribution
from drumline.spec.paths import resolve

JOB = """
$schema: https://azuremlschemas.azureedge.net/latest/commandJob.schema.json
code: src
command: python train.py --epochs ${{inputs.epochs}} --data ${{inputs.digits}}
inputs:
  epochs: 3
  digits: {type: uri_folder, path: data}
outputs:
  model:
environment: {conda_file: env.yml, image: ubuntu}
compute: azureml:local
distribution: {type: PyTorch, process_count_per_instance: "2"}
resources: {instance_count: 2.0, docker_args: [--ipc=host]}
limits: {timeout: "60"}
queue_settings: {job_tier: Spot}
drumline: {grace: 5}
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "env.yml").write_text("dependencies: [python]\n")
    (tmp_path / "job.yml").write_text(JOB)
    return tmp_path


def write(folder, text, name="job.yml"):
    path = folder / name
    path.write_text(text)
    return path


def problems_of(path, **kwargs):
    with pytest.raises(SpecError) as caught:
        load_job(path, **kwargs)
    return caught.value.problems


def only_problem(folder, line):
    (problem,) = problems_of(write(folder, f"command: x\n{line}\n"))
    return problem


def test_a_full_job_has_the_attributes_of_azure_ai_ml(folder):
    job = load_job(folder / "job.yml")
    assert isinstance(job, Command)
    assert job.inputs.epochs == 3
    assert job.inputs["digits"] == Input(type="uri_folder", path="data")
    assert job.outputs.model == Output()
    assert job.distribution == PyTorchDistribution(process_count_per_instance=2)
    assert job.resources.instance_count == 2
    assert job.limits.timeout == 60
    assert job.queue_settings.job_tier == "spot"
    assert job.drumline == {"grace": 5}
    assert job.environment.image == "ubuntu"


def test_paths_stay_as_written_and_resolve_against_the_folder_of_the_file(folder, monkeypatch):
    monkeypatch.chdir("/")
    job: Any = load_job(folder / "job.yml")
    assert (job.code, resolve(job, job.code)) == ("src", str(folder / "src"))


def test_a_stream_is_read_against_the_working_folder(folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert load_job(io.BytesIO(JOB.encode())).base_path == str(folder)
    assert load_job(io.StringIO(JOB)).base_path == str(folder)


def test_relative_origin_wins_over_the_folder_of_the_file(folder, tmp_path_factory):
    elsewhere = write(tmp_path_factory.mktemp("elsewhere"), JOB)
    assert load_job(elsewhere, relative_origin=folder).base_path == str(folder)


def test_a_missing_file_is_named(tmp_path):
    missing = str(tmp_path / "nope.yml")
    with pytest.raises(SpecError, match="no such file") as caught:
        load_job(missing)
    assert (missing in str(caught.value), caught.value.exit_code) == (True, 2)


def test_a_folder_is_not_a_job_file(folder):
    assert "is a folder" in problems_of(folder)[0].what


def test_every_mistake_is_reported_in_the_order_of_the_file(folder):
    text = "command: 5\nresources: {gpus: 4}\ndistribution: {type: horovod}\nfoo: 1\n"
    problems = problems_of(write(folder, text))
    assert [(problem.path, problem.line) for problem in problems] == [
        ("command", 1),
        ("resources.gpus", 2),
        ("distribution.type", 3),
        ("foo", 4),
    ]


def test_the_caret_underlines_the_key(folder):
    text = "command: x\ndistribution:\n  type: pytorch\n  procces_count_per_instance: 2\n"
    (problem,) = problems_of(write(folder, text))
    assert problem.what == "unknown key 'procces_count_per_instance' in distribution"
    assert problem.hint == "did you mean 'process_count_per_instance'?"
    assert (problem.line, problem.column, problem.width) == (4, 3, 26)


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("instance_type: s", "'instance_type' belongs under `resources`"),
        ("timeout: 60", "'timeout' belongs under `limits`"),
        (
            "process_count_per_instance: 2",
            "'process_count_per_instance' belongs under `distribution`",
        ),
        ("node_count: 2", "'instance_count' belongs under `resources`"),
        ("displayName: x", "did you mean 'display_name'?"),
        ("enviroment: azureml:e", "did you mean 'environment'?"),
        ("resources: {instanceCount: 2}", "did you mean 'instance_count'?"),
        ("resources: {node_count: 2}", "did you mean 'instance_count'?"),
        ("resources: {compute: x}", "'compute' belongs at the top level of the job"),
        (
            "distribution: {type: mpi, process_count_per_node: 8}",
            "did you mean 'process_count_per_instance'?",
        ),
        ("distribution: {type: torch}", "use 'type: pytorch'"),
        ("distribution: pytorch", "write `type: pytorch` on a line below `distribution:`"),
        (
            "environment: ubuntu",
            "write 'azureml:ubuntu', or `image: ubuntu` below `environment:` for an image",
        ),
        ("environment: env.yml", "write 'file:env.yml'"),
        (
            "environment: {dependencies: [x]}",
            "put them under `environment.conda_file`, next to an `image`",
        ),
        ("code: azureml:c", "a registered snapshot needs its version: 'azureml:c:1'"),
        ("tags: {a: 1}", 'quote it: "1"'),
        ("tags: {a: yes}", "unquoted 'yes' is a boolean in YAML 1.1; quote it"),
        ("inputs: {lr: {type: number}}", "give the value itself: `lr: ...`"),
        (
            "inputs: {w: {type: uri_file, optional: true}}",
            "inputs of components have it: leave the input out, or make the job a component",
        ),
        ("drumline: {grce: 1}", "did you mean 'grace'?"),
        ("queue_settings: {priority: hihg}", "did you mean 'high'?"),
    ],
)
def test_a_hint_says_what_to_try(folder, line, hint):
    assert only_problem(folder, line).hint == hint


@pytest.mark.parametrize(
    "line",
    [
        "limits: {timeout: PT1H}",
        "resources: {instance_count: true}",
        "resources: {instance_count: null}",
        "resources: {instance_count: four}",
        "resources: {instance_count: .inf}",
        "resources: {instance_type: [a]}",
        "resources: {docker_args: 1}",
        "inputs: {x: [1]}",
        "inputs: {x: .nan}",
        "inputs: {x: 2024-01-01}",
        "inputs: {x: {path: a, mode: rw_mount}}",
        "inputs: {x: {path: a, type: uri_file, mode: eval_mount}}",
        "inputs: {x: {value: null}}",
        "inputs: {x: {value: 1, mode: direct}}",
        "inputs: {x: {path: a, path_on_compute: nope}}",
        "outputs: {x: path}",
        "outputs: {x: {mode: download}}",
        "outputs: {x: {type: folder}}",
        "tags: [a]",
        "tags: {1: a}",
        "properties: {a: 1.5}",
        "name: 5",
        "code: ./nope",
        "code: https://nohost/x.zip",
        "code: file:./src",
        "compute: 5",
        "compute: null",
        "identity: {client_id: x}",
        "identity: {type: aml_token, client_id: x}",
        "services: {s: {type: ssh, log_dir: x}}",
        "services: {s: {type: custom, ssh_public_keys: x}}",
        "services: {s: null}",
        "services: {s: {port: x}}",
        "environment: azureml:a/b:1",
        "environment: null",
        "environment: file:nope.yml",
        "environment: {image: a, conda_file: nope.yml}",
        "environment: {build: {path: nope}}",
        "environment: {image: a, os_type: mac}",
        "environment_variables: x",
        "queue_settings: {job_tier: null}",
        "drumline: {grace: -1}",
        "drumline: {grace: x}",
    ],
)
def test_what_azure_ai_ml_rejects_is_rejected_with_its_line(folder, line):
    problem = only_problem(folder, line)
    assert (problem.line, bool(problem.path)) == (2, True)


@pytest.mark.parametrize(
    "line",
    [
        "resources: {instance_count: '4', max_instance_count: 1.5}",
        "resources: {instance_count: -1, shm_size: 16GB}",
        "inputs: {a: 1, b: x, c: true, d: 0.5, e: {value: 3}, f: {path: x, mode: RO_MOUNT}, g: {}}",
        "inputs: {x: {path: nope, mode: eval_mount}}",
        "inputs: {x: {type: MLTable, path: azureml:t:1, mode: eval_download}}",
        "outputs: {a: null, b: {}, c: {type: mltable, mode: RW_MOUNT}, d: {name: n, version: 3}}",
        "tags: {a: null, b: x}",
        "code: azureml:c:1",
        "code: azureml:c@latest",
        "code: azureml://registries/r/codes/c/versions/1",
        "code: git+https://example.com/a.git",
        "code: http://localhost:80/x.zip",
        "environment: azureml:e@latest",
        "environment: azureml:/subscriptions/s/e/versions/1",
        "environment: {image: a, name: n, version: 1.5, conda_file: env.yml, tags: {a: 1}}",
        "environment: {build: {path: https://example.com/x.git, dockerfile_path: D}}",
        "environment_variables: {A: 1, B: null, C: true}",
        "identity: {type: ManagedIdentity, client_id: x}",
        "identity: {type: AMLToken}",
        "services: {s: {type: SSH, ssh_public_keys: k}, t: {log_dir: x}, u: {type: mine, nodes: all}}",
        "queue_settings: {job_tier: 'null', priority: HIGH}",
        "distribution: {type: Ray, include_dashboard: yes, port: '1'}",
        "name: my job!",
        "id: x\nstatus: Completed\nlog_files: {a: b}\nparameters: {a: 1}\ncreation_context: {}",
        "compute: azureml:/subscriptions/s/computes/c",
    ],
)
def test_what_azure_ai_ml_accepts_is_accepted(folder, line):
    load_job(write(folder, f"command: x\n{line}\n"))


@pytest.mark.parametrize(
    ("kind", "hint"),
    [("Command", "did you mean 'command'?"), ("cmd", "one of 'command', 'parallel', 'sweep', 'pipeline'")],
)
def test_an_unknown_type_of_job_is_refused(folder, kind, hint):
    assert only_problem(folder, f"type: {kind}").hint == hint


def test_a_type_that_only_azure_runs_is_said_not_to_be_supported(folder):
    assert only_problem(folder, "type: automl").what == "jobs of type 'automl' are not supported"


def test_a_mistake_in_a_referenced_file_names_that_file(folder):
    write(folder, "image: a\npyhton: 3\n", "bad.yml")
    problem = only_problem(folder, "environment: file:./bad.yml")
    assert (problem.file.endswith("bad.yml"), problem.line) == (True, 2)


def test_paths_of_a_referenced_environment_resolve_against_its_own_file(folder):
    (folder / "envs").mkdir()
    write(folder / "envs", "image: a\nconda_file: conda.yml\n", "e.yml")
    write(folder / "envs", "dependencies: []\n", "conda.yml")
    job: Any = load_job(write(folder, "command: x\nenvironment: file:envs/e.yml\n"))
    assert job.environment.conda_file == str(folder / "envs" / "conda.yml")


def test_unquoted_text_that_yaml_reads_as_something_else_warns(folder):
    path = write(folder, "command: x\ninputs:\n  flag: no\n  mode: 012\n  ok: 'yes'\n")
    assert [warning.partition("job.yml:")[2] for warning in load_job(path)._warnings] == [
        "3:9: unquoted 'no' is a boolean in YAML 1.1; quote it",
        "4:9: unquoted '012' is an octal number in YAML 1.1; quote it",
    ]


def test_a_boolean_where_one_is_meant_does_not_warn(folder):
    path = write(folder, "command: x\ndistribution: {type: ray, include_dashboard: yes}\n")
    assert load_job(path)._warnings == []


def test_overrides_are_applied_before_anything_is_checked(folder):
    job: Any = load_job(
        folder / "job.yml",
        params_override=[
            {"resources.instance_count": "4"},
            {"inputs.epochs": 9, "environment_variables.A": "b"},
            {"resources.docker_args.0": "--privileged", "resources.docker_args[1]": "-v"},
        ],
    )
    assert (job.resources.instance_count, job.inputs.epochs) == (4, 9)
    assert job.environment_variables == {"A": "b"}
    assert job.resources.docker_args == ["--privileged", "-v"]


@pytest.mark.parametrize(
    ("before", "text", "value"),
    [
        (0.1, "0.01", 0.01),
        (0.1, "1e-3", 0.001),
        (0.1, "1", 1),
        (3, "5", 5),
        (3, "0.5", 0.5),
        (3, "many", "many"),
        (3, "nan", "nan"),
        (3, "1_000", "1_000"),
        (True, "false", False),
        (True, "1", "1"),
        ("3", "5", "5"),
    ],
)
def test_an_override_of_an_input_that_is_a_number_is_one_too(folder, before, text, value):
    path = write(folder, json.dumps({"command": "echo ${{inputs.x}}", "inputs": {"x": before}}))
    got = load_job(path, params_override=[{"inputs.x": text}]).inputs["x"]
    assert (type(got), got) == (type(value), value)


@pytest.mark.parametrize(
    "path", ["a..b", "", "command.x", "resources.docker_args.x", "resources.docker_args.9"]
)
def test_a_path_of_an_override_that_leads_nowhere_is_named(folder, path):
    (problem,) = problems_of(folder / "job.yml", params_override=[{path: 1}])
    assert problem.what.startswith(f"override {path!r}:")


def test_an_environment_is_loaded_from_a_file_of_its_own(folder):
    environment = load_environment(write(folder, "name: e\nversion: 3\nimage: a\n", "e.yml"))
    assert (environment.name, environment.version, environment.image) == ("e", "3", "a")


def test_an_environment_needs_an_image_or_a_build_context(folder):
    with pytest.raises(SpecError, match="needs 'image' or 'build'"):
        load_environment(write(folder, "name: e\nconda_file: env.yml\n", "e.yml"))
