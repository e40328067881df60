"""The keys of a job's files in one sentence each, for editors. Imported by nothing that reads files."""

from __future__ import annotations

_TEXTS = {
    # every job
    "type": "The type of this thing.",
    "name": "The name; default: a generated one.",
    "description": "A text of your own.",
    "tags": "Names and values of your own.",
    "properties": "Names and values that programs set.",
    "inputs": "The inputs by name: values, files and folders. ${{inputs.NAME}} in the command stands for one.",
    "outputs": "The outputs by name. ${{outputs.NAME}} in the command is the folder to write to.",
    "environment": "The packages or the image of the job; default: the Python that submits it.",
    "resources": "The number of nodes and what each of them has.",
    # inputs and outputs
    "path": "A local path, a URL, or a reference such as azureml:NAME:VERSION.",
    "mode": "How the data gets to the job, or from it.",
    "value": "The value.",
    "datastore": "The datastore.",
    "version": "The version; default: the next number.",
    # pipelines and sweeps
    "component": "A component: its file, or azureml:NAME:VERSION.",
    "code": "The folder that is copied to the job, and is its working folder; relative to this file.",
    "identity": "The identity that Azure would use; not used here.",
}
_BY_NOUN = {
    "input.type": "uri_file, uri_folder, mltable, or a type of model.",
    "output.type": "uri_file, uri_folder, mltable, or a type of model.",
}


def describe(noun: str, key: str) -> str:
    """Return the sentence for a key of a thing; empty for none."""
    return _BY_NOUN.get(f"{noun}.{key}", _TEXTS.get(key, ""))
