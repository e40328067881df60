"""Bodies of jobs as Microsoft's client sends them, as job files; and jobs of ours as that client reads them."""

from typing import Any

import pytest

from drumline.contract.errors import SpecError
from drumline.rest.job_bodies import read_job, write_job
from drumline.spec.jobs.job import to_dict
from drumline.spec.load import load_job_values

WORKSPACE = "/subscriptions/s/resourceGroups/r/providers/Microsoft.MachineLearningServices/workspaces/w"
PAGES = {"Tracking": "https://h/mlflow", "Studio": "https://h/jobs/j"}
COMMAND = {
    "jobType": "Command",
    "isArchived": False,
    "displayName": "Job",
    "description": None,
    "command": "python train.py --lr ${{inputs.lr}}",
    "codeId": f"{WORKSPACE}/codes/0f/versions/1",
    "environmentId": f"azureml:azureml:{WORKSPACE}/environments/azureml%3Atorch/labels/latest",
    "computeId": f"{WORKSPACE}/computes/gpu",
    "distribution": {"distributionType": "PyTorch", "processCountPerInstance": 2},
    "resources": {"instanceCount": 2, "shmSize": "2g", "dockerArgsList": ["--ipc=host"], "properties": {}},
    "limits": {"jobLimitsType": "Command", "timeout": "PT1H1M1S"},
    "queueSettings": {"jobTier": "Spot", "priority": 3},
    "identity": {"identityType": "Managed", "clientId": "c"},
    "environmentVariables": {"FOO_BAR": "1"},
    "tags": {"someTag": "x"},
    "inputs": {
        "lr": {"jobInputType": "literal", "value": "0.1"},
        "dataSet": {
            "jobInputType": "uri_folder",
            "uri": f"{WORKSPACE}/data/d/versions/3",
            "mode": "ReadOnlyMount",
        },
        "web": {"jobInputType": "uri_file", "uri": "https://h/x.csv", "mode": "Download"},
    },
    "outputs": {
        "model": {
            "jobOutputType": "mlflow_model",
            "assetName": "net",
            "assetVersion": "2",
            "mode": "ReadWriteMount",
            "uri": "azureml://datastores/blob/paths/x",
        }
    },
    "services": {
        "board": {"jobServiceType": "TensorBoard", "properties": {"logDir": "logs"}},
        "shell": {
            "jobServiceType": "SSH",
            "nodes": {"nodesValueType": "All"},
            "properties": {"sshPublicKeys": "k"},
        },
        "Studio": {"jobServiceType": "Studio", "endpoint": "https://h"},
    },
}
FILE = {
    "name": "j",
    "type": "command",
    "display_name": "Job",
    "command": "python train.py --lr ${{inputs.lr}}",
    "code": "/",
    "environment": "azureml:torch@latest",
    "compute": "azureml:gpu",
    "distribution": {"type": "pytorch", "process_count_per_instance": 2},
    "resources": {"instance_count": 2, "shm_size": "2g", "docker_args": ["--ipc=host"]},
    "limits": {"timeout": 3661},
    "queue_settings": {"job_tier": "spot", "priority": "high"},
    "identity": {"type": "managed", "client_id": "c"},
    "environment_variables": {"FOO_BAR": "1"},
    "tags": {"someTag": "x"},
    "inputs": {
        "lr": "0.1",
        "dataSet": {"type": "uri_folder", "path": "azureml:d:3", "mode": "ro_mount"},
        "web": {"type": "uri_file", "path": "https://h/x.csv", "mode": "download"},
    },
    "outputs": {
        "model": {
            "type": "mlflow_model",
            "path": "azureml://datastores/blob/paths/x",
            "name": "net",
            "version": "2",
            "mode": "rw_mount",
        }
    },
    "services": {
        "board": {"type": "tensor_board", "log_dir": "logs"},
        "shell": {"type": "ssh", "nodes": "all", "ssh_public_keys": "k"},
    },
}
SWEEP = {
    "jobType": "Sweep",
    "trial": {
        "command": "echo ${{search_space.lr}}",
        "codeId": f"{WORKSPACE}/codes/0f/versions/1",
        "environmentId": f"{WORKSPACE}/environments/e/versions/1",
        "resources": {"instanceCount": 2},
    },
    "searchSpace": {
        "lr": ["uniform", [0.00001, 1]],
        "net": ["choice", [[1, {"kind": "deep", "depth": ["randint", [4]]}]]],
    },
    "objective": {"goal": "maximize", "primaryMetric": "acc"},
    "samplingAlgorithm": {"samplingAlgorithmType": "Random", "seed": 5},
    "earlyTermination": {"policyType": "TruncationSelection", "truncationPercentage": 20},
    "limits": {
        "jobLimitsType": "Sweep",
        "maxTotalTrials": 4,
        "maxConcurrentTrials": 2,
        "timeout": "PT2H",
        "trialTimeout": "PT0.5H",
    },
}
PIPELINE = {
    "jobType": "Pipeline",
    "inputs": {"n": {"jobInputType": "literal", "value": "2"}},
    "outputs": {"res": {"jobOutputType": "uri_folder", "mode": "Upload"}},
    "settings": {"default_compute": f"{WORKSPACE}/computes/gpu", "force_rerun": True, "_source": "YAML.JOB"},
    "jobs": {
        "a": {
            "name": "a",
            "type": "command",
            "_source": "YAML.JOB",
            "componentId": f"{WORKSPACE}/components/azureml_anonymous/versions/0-1",
            "computeId": f"{WORKSPACE}/computes/cpu",
            "distribution": {"distribution_type": "PyTorch", "process_count_per_instance": 2},
            "limits": {"timeout": "PT1M", "job_limits_type": "Command"},
            "inputs": {
                "n": {"value": "${{parent.inputs.n}}", "job_input_type": "literal"},
                "d": {"value": "${{parent.inputs.d}}", "job_input_type": "literal", "mode": "Download"},
            },
            "outputs": {
                "o": {"value": "${{parent.outputs.res}}", "type": "literal"},
                "p": {"mode": "Upload", "job_output_type": "uri_folder"},
            },
        },
        "tune": {
            "type": "sweep",
            "trial": {"componentId": f"{WORKSPACE}/components/greet/versions/2"},
            "search_space": {"lr": {"type": "choice", "values": [1, 2]}},
            "objective": {"goal": "minimize", "primary_metric": "loss"},
            "sampling_algorithm": "random",
            "early_termination": {"policy_type": "MedianStopping", "evaluation_interval": 2},
            "limits": {"max_total_trials": 4, "trial_timeout": 60},
        },
    },
}


def find_code(name, version):
    return {("0f", "1"): "/", ("job.j", "1"): "/"}[name, version]


def load(values) -> Any:
    return load_job_values(values, "/")


def read(properties):
    return read_job("j", {"properties": properties}, find_code)


def test_a_command_becomes_a_job_file():
    assert read(COMMAND) == FILE
    load(FILE)


def test_a_sweep_becomes_a_job_file():
    values = read(SWEEP)
    assert values["search_space"] == {
        "lr": {"type": "uniform", "min_value": 0.00001, "max_value": 1},
        "net": {"type": "choice", "values": [1, {"kind": "deep", "depth": {"type": "randint", "upper": 4}}]},
    }
    assert values["trial"] == {
        "command": "echo ${{search_space.lr}}",
        "code": "/",
        "environment": "azureml:e:1",
        "resources": {"instance_count": 2},
    }
    assert values["limits"] == {
        "max_total_trials": 4,
        "max_concurrent_trials": 2,
        "timeout": 7200,
        "trial_timeout": 1800,
    }
    assert values["early_termination"] == {"type": "truncation_selection", "truncation_percentage": 20}
    assert load(values).search_space["lr"].min_value == 0.00001


def test_a_pipeline_becomes_a_job_file():
    values = read(PIPELINE)
    assert values["settings"] == {"default_compute": "azureml:gpu", "force_rerun": True}
    assert values["jobs"]["a"] == {
        "type": "command",
        "component": "azureml:azureml_anonymous:0-1",
        "compute": "azureml:cpu",
        "distribution": {"type": "pytorch", "process_count_per_instance": 2},
        "limits": {"timeout": 60},
        "inputs": {"n": "${{parent.inputs.n}}", "d": {"path": "${{parent.inputs.d}}", "mode": "download"}},
        "outputs": {"o": "${{parent.outputs.res}}", "p": {"mode": "upload", "type": "uri_folder"}},
    }
    tune = values["jobs"]["tune"]
    assert tune["trial"] == "azureml:greet:2"
    assert tune["early_termination"] == {"type": "median_stopping", "evaluation_interval": 2}
    assert tune["limits"] == {"max_total_trials": 4, "trial_timeout": 60}
    assert load(values).jobs["tune"].trial == "azureml:greet:2"


def test_a_job_for_the_local_machine_has_no_marks_of_the_client():
    values = read(
        {
            "jobType": "Command",
            "command": "true",
            "resources": {"properties": {"IsLocal": {"IsLocal": True}}},
            "environmentVariables": {"AZUREML_COMPUTE_USE_COMMON_RUNTIME": "true", "A": "1"},
        }
    )
    assert values == {
        "name": "j",
        "type": "command",
        "command": "true",
        "compute": "local",
        "environment_variables": {"A": "1"},
    }


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"jobType": "AutoML", "taskDetails": {}}, "jobs of type 'automl' are not supported"),
        ({"jobType": "Command", "command": "true", "notificationSetting": {}}, "notification_setting"),
        ({"jobType": "Command", "command": "true", "resources": {"gpuCount": 2}}, "gpu_count"),
        (
            {"jobType": "Command", "command": "true", "distribution": {"distributionType": "Foo"}},
            "'foo' is not a type",
        ),
        ({"jobType": "Command", "command": "true", "limits": {"timeout": "P1Y"}}, "limits.timeout: 'P1Y'"),
        ({"jobType": "Command", "command": 3}, "command"),
        ({"jobType": "Command", "command": "true", "codeId": 3}, "code must be text"),
        ({"jobType": "Command", "command": "true", "inputs": [1]}, "inputs must be an object"),
        ({"jobType": "Command", "command": "true", "environmentId": "azureml:/x"}, "azureml:/x"),
        ({**SWEEP, "searchSpace": {"lr": ["uniform", [1]]}}, "search_space.lr"),
        ({**SWEEP, "searchSpace": {"lr": ["other", [1]]}}, "search_space.lr"),
        ({"command": "true"}, "jobType must be text"),
        (
            {"jobType": "Pipeline", "jobs": {"a": {"type": "data_transfer", "task": "import_data"}}},
            "jobs.a: type 'data_transfer': Drumline moves no data between databases",
        ),
    ],
)
def test_what_cannot_be_kept_is_refused_with_a_sentence(properties, message):
    with pytest.raises(SpecError) as caught:
        load(read(properties))
    assert message in str(caught.value)


def describe(kind, values, **more):
    creation = {"created_at": "2026-11-29T00:04:47.853Z", "created_by": "ada", "created_by_type": "User"}
    return {**values, "name": "j", "type": kind, "status": "Running", "creation_context": creation, **more}


@pytest.mark.parametrize(("kind", "properties"), [("command", COMMAND), ("sweep", SWEEP)])
def test_what_is_written_is_read_as_the_same_job(kind, properties):
    values = read(properties)
    body = write_job(describe(kind, values), WORKSPACE, PAGES)
    again = read_job("j", body, find_code)
    assert to_dict(load(again)) == to_dict(load(values))


def test_a_pipeline_that_is_written_is_read_as_the_same_job():
    values = read(PIPELINE)
    body = write_job(describe("pipeline", values), WORKSPACE, PAGES)
    assert body["properties"]["jobs"]["a"]["limits"] == {"job_limits_type": "Command", "timeout": "PT60S"}
    again = read_job("j", body, find_code)
    assert to_dict(load(again)) == to_dict(load(values))


def test_a_body_has_what_the_client_cannot_do_without():
    outputs = {
        "default": {"type": "uri_folder", "path": "azureml://jobs/j/outputs/default"},
        "o": {"type": "uri_folder", "path": "azureml://jobs/j/outputs/o"},
    }
    described = describe("command", {"command": "true", "code": "/src", "environment": {"image": "i"}})
    body = write_job({**described, "outputs": outputs, "verdict": "well"}, WORKSPACE, PAGES)
    assert body == {
        "id": f"{WORKSPACE}/jobs/j",
        "name": "j",
        "type": "Microsoft.MachineLearningServices/workspaces/jobs",
        "systemData": {
            "createdAt": "2026-11-29T00:04:47.853Z",
            "createdBy": "ada",
            "createdByType": "User",
            "lastModifiedAt": "2026-11-29T00:04:47.853Z",
        },
        "properties": {
            "jobType": "Command",
            "isArchived": False,
            "status": "Running",
            "command": "true",
            "codeId": f"{WORKSPACE}/codes/job.j/versions/1",
            "environmentVariables": {},
            "tags": {},
            "properties": {},
            "inputs": {},
            "outputs": {
                "o": {
                    "jobOutputType": "uri_folder",
                    "uri": "azureml://datastores/workspaceartifactstore/paths/ExperimentRun/dcid.j/named-outputs/o/",
                }
            },
            "services": {
                "Tracking": {"jobServiceType": "Tracking", "endpoint": "https://h/mlflow"},
                "Studio": {"jobServiceType": "Studio", "endpoint": "https://h/jobs/j"},
            },
        },
    }
