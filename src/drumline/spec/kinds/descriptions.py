"""The keys of a job's files in one sentence each, for editors. Imported by nothing that reads files."""

from __future__ import annotations

_TEXTS = {
    # every job
    "type": "The type of this thing.",
    "name": "The name; default: a generated one.",
    "display_name": "The name that lists show; several jobs may share it.",
    "experiment_name": "The experiment, a group of jobs; default: the name of the folder.",
    "description": "A text of your own.",
    "tags": "Names and values of your own.",
    "properties": "Names and values that programs set.",
    "compute": "The compute that runs the job: azureml:NAME, or local for this machine.",
    "services": "Interactive services that run beside the job, such as TensorBoard.",
    "identity": "The identity that Azure would use; not used here.",
    "inputs": "The inputs by name: values, files and folders. ${{inputs.NAME}} in the command stands for one.",
    "outputs": "The outputs by name. ${{outputs.NAME}} in the command is the folder to write to.",
    "command": "The shell command that every rank runs.",
    "code": "The folder that is copied to the job, and is its working folder; relative to this file.",
    "environment": "The packages or the image of the job; default: the Python that submits it.",
    "environment_variables": "Environment variables of every rank.",
    "resources": "The number of nodes and what each of them has.",
    "distribution": "How the processes of the job find each other; without it, one process on each node.",
    "queue_settings": "The priority of the job.",
    "limits": "Limits of time and number.",
    "parent_job_name": "The job that this one is part of.",
    "drumline": "Settings that only Drumline has.",
    # inputs and outputs
    "path": "A local path, a URL, or a reference such as azureml:NAME:VERSION.",
    "mode": "How the data gets to the job, or from it.",
    "value": "The value.",
    "datastore": "The datastore.",
    "version": "The version; default: the next number.",
    # pipelines and sweeps
    "jobs": "The steps by name.",
    "settings": "Settings of the whole pipeline.",
    "default_compute": "The compute of steps that name none.",
    "default_datastore": "The datastore of outputs that name none.",
    "continue_on_step_failure": "Whether independent steps still run after a step failed.",
    "force_rerun": "Whether steps run again although nothing has changed.",
    "component": "A component: its file, or azureml:NAME:VERSION.",
    "is_deterministic": "Whether the same inputs give the same outputs, so that results are reused.",
    "trial": "The program of each trial.",
    "search_space": "The parameters to search, each with its distribution.",
    "objective": "The metric to optimize.",
    "sampling_algorithm": "How the next parameters are chosen.",
    "early_termination": "When a trial that lags behind is stopped.",
    "additional_includes": "Further files and folders that are copied beside the code.",
    # parallel jobs
    "task": "The function that processes a mini-batch.",
    "entry_script": "The script with init() and run(mini_batch).",
    "mini_batch_size": "The number of files, or the size such as 10kb, of a mini-batch.",
    "input_data": "The input that is split: ${{inputs.NAME}}.",
    "max_concurrency_per_instance": "The number of worker processes on each node.",
    "error_threshold": "The number of items that may fail; -1: any.",
    "mini_batch_error_threshold": "The number of mini-batches that may fail; -1: any.",
    "retry_settings": "How often a mini-batch is tried again, and its time limit.",
}
_BY_NOUN = {
    "input.type": "uri_file, uri_folder, mltable, or a type of model.",
    "output.type": "uri_file, uri_folder, mltable, or a type of model.",
    "output.name": "The name of the data asset or model that the output becomes.",
}


def describe(noun: str, key: str) -> str:
    """Return the sentence for a key of a thing; empty for none."""
    return _BY_NOUN.get(f"{noun}.{key}", _TEXTS.get(key, ""))
