"""Files in the words of Azure's other products."""

import pytest

from drumline import load_component, load_job
from drumline.exceptions import SpecError
from drumline.spec.jobs.job import to_dict

TRAINING_JOB = """
$schema: https://azuremlschemas.azureedge.net/latest/commandJob.schema.json
type: command
command: echo ${{inputs.epochs}} > ${{outputs.m}}/f
environment: lab.azurecr.io/team/torch:2.4
timeout: P1DT1H30M
instance_count: 2
priority: High
identity: /subscriptions/s/resourceGroups/g/providers/Microsoft.ManagedIdentity/userAssignedIdentities/u
inputs: {epochs: {value: "10"}, seed: {type: literal, value: "3"}}
outputs: {m: {type: uri_folder, asset_name: digits, asset_version: "3"}}
distribution: {type: pytorch, process_count_per_instance: 2}
"""


def read(tmp_path, text):
    path = tmp_path / "job.yml"
    path.write_text(text)
    return load_job(path)


def test_a_training_job_of_foundry(tmp_path):
    job = read(tmp_path, TRAINING_JOB)
    values = to_dict(job)
    assert values["environment"] == {"image": "lab.azurecr.io/team/torch:2.4"}
    assert values["limits"] == {"timeout": 25 * 3600 + 30 * 60}
    assert values["resources"] == {"instance_count": 2}
    assert values["queue_settings"] == {"priority": "high"}
    assert values["identity"]["msi_resource_id"].endswith("userAssignedIdentities/u")
    assert values["inputs"] == {"epochs": "10", "seed": "3"}
    assert values["outputs"] == {"m": {"type": "uri_folder", "name": "digits", "version": "3"}}


def test_its_keys_beside_those_of_azure_ml(tmp_path):
    """What stands under `resources` already is added to; a second place for one thing is refused."""
    job = read(tmp_path, "command: x\ninstance_count: 3\nresources: {instance_type: s}\n")
    assert to_dict(job)["resources"] == {"instance_count": 3, "instance_type": "s"}
    with pytest.raises(SpecError, match="unknown key 'timeout'"):
        read(tmp_path, "command: x\ntimeout: PT1H\nlimits: {timeout: 5}\n")


@pytest.mark.parametrize(
    ("text", "what", "hint"),
    [
        ("gpu_count: 1", "1: gpu_count has no counterpart", "instance_type"),
        ("storage_connection_name: s", "1: storage_connection_name has no counterpart", "remove it"),
        ("environment: my.env/environment.yml", "is not a reference to an environment", "azureml:"),
        ("timeout: a day", "unknown key 'timeout'", "belongs under `limits`"),
        (
            "distribution: {type: pytorch, process_per_node: 2}",
            "process_per_node",
            "process_count_per_instance",
        ),
        ("code: {local_path: ./src}", "code.local_path is the syntax of the preview", "write `code: ./src`"),
        (
            "compute: {target: azureml:c}",
            "compute.target is the syntax of the preview",
            "write `compute: azureml:c`",
        ),
        (
            "inputs: {x: {data: azureml:d:1}}",
            "inputs.x.data is the syntax of the preview",
            "write `path: azureml:d:1`",
        ),
        (
            "type: DistributedComponent",
            "DistributedComponent is a component of SDK v1.5",
            "Component.from_yaml",
        ),
        ("type: spark", "jobs of type 'spark' are not supported", "a command can call spark-submit"),
        ("type: flow", "jobs of type 'flow' are not supported", "a command can call pf"),
        ("type: sweep_job", "type 'sweep_job' is the syntax of the preview", "write `type: sweep`"),
        (
            "type: pipeline\njobs: {s: {type: component_job, component: ./c.yml}}",
            "type 'component_job' is the syntax of the preview",
            "write `type: command`",
        ),
        (
            "type: pipeline\njobs: {s: {command: x, compute: {target: c}}}",
            "jobs.s.compute.target is the syntax of the preview",
            "write `compute: c`",
        ),
        (
            "inputs: {x: {type: uri_folder, path: 'azureai://a/data'}}",
            "inputs.x.path: data of Foundry is not reached",
            "azureml:NAME:VERSION",
        ),
        ("environment: python:3.11", "not a reference to an environment", "`image: python:3.11`"),
        (
            "type: pipeline\njobs: {s: {type: flow}}",
            "nodes of type 'flow' are not supported",
            "a command can call pf",
        ),
    ],
)
def test_what_has_no_counterpart_is_told_with_what_to_write(tmp_path, text, what, hint):
    command = "" if text.startswith("type:") else "command: x\n"
    with pytest.raises(SpecError) as raised:
        read(tmp_path, f"{text}\n{command}")
    (problem,) = raised.value.problems
    assert what in str(problem)
    assert hint in problem.hint


@pytest.mark.parametrize(("kind", "hint"), [("spark", "spark-submit"), ("flow", "pf"), ("import", "address")])
def test_a_component_that_is_not_run_here_is_told_in_one_sentence(tmp_path, kind, hint):
    (tmp_path / "c.yml").write_text(f"name: a\ntype: {kind}\nentry: x.py\n")
    with pytest.raises(SpecError, match=f"components of type '{kind}' are not supported") as raised:
        load_component(tmp_path / "c.yml")
    assert hint in raised.value.problems[0].hint
