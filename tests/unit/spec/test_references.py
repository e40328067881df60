"""The texts that Azure's documents and tools have for assets, datastores and outputs."""

import pytest

from drumline.contract.errors import SpecError
from drumline.spec.references import is_reference, parse

LONG = "azureml://subscriptions/s/resourcegroups/g/workspaces/w"
ARM = "azureml:/subscriptions/s/resourceGroups/g/providers/Microsoft.MachineLearningServices/workspaces/w"


def shown(text):
    found = parse(text)
    return (type(found).__name__, *vars(found).values())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("azureml:digits:1", ("Asset", "digits", "1", "", "")),
        ("azureml:digits:18.04:2022", ("Asset", "digits", "18.04:2022", "", "")),
        ("azureml:digits@latest", ("Asset", "digits", "", "latest", "")),
        ("azureml:digits", ("Asset", "digits", "", "", "")),
        ("AzureML:digits:1", ("Asset", "digits", "1", "", "")),
        ("azureml:azureml:digits:1", ("Asset", "digits", "1", "", "")),
        (f"{ARM}/data/digits/versions/1", ("Asset", "digits", "1", "", "")),
        (f"{ARM.removeprefix('azureml:')}/models/m/versions/2", ("Asset", "m", "2", "", "")),
        (f"{ARM}/datastores/blob/paths/a", ("InDatastore", "blob", "a")),
        ("azureml://locations/l/workspaces/w/environments/e/labels/latest", ("Asset", "e", "", "latest", "")),
        ("azureml://registries/azureml/environments/e/versions/3", ("Asset", "e", "3", "", "azureml")),
        ("azureml://datastores/blob/paths/a/b.csv", ("InDatastore", "blob", "a/b.csv")),
        ("azureml:azureml://datastores/blob/paths/a/", ("InDatastore", "blob", "a/")),
        ("azureml://datastores/blob", ("InDatastore", "blob", "")),
        (f"{LONG}/datastores/blob/paths/a", ("InDatastore", "blob", "a")),
        ("azureml://jobs/j/outputs/o", ("JobOutput", "j", "o", "")),
        ("azureml://jobs/j/outputs/o/paths/x/y", ("JobOutput", "j", "o", "x/y")),
        (f"{LONG}/jobs/j/outputs/default", ("JobOutput", "j", "default", "")),
        ("runs:/j/model", ("RunFile", "j", "model")),
    ],
)
def test_each_form_is_read(text, expected):
    assert is_reference(text)
    assert shown(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "azureml:",
        "azureml:../x:1",
        "azureml:a b:1",
        "azureml:a:1@latest",
        "azureml:a@",
        "azureml://",
        "azureml://datastores/",
        "azureml://jobs/j/outputs",
        "azureml://feeds/x",
        "azureml://registries/r/data/n",
        "azureml:/etc/passwd",
        "runs:/j",
    ],
)
def test_what_is_none_is_refused(text):
    with pytest.raises(SpecError, match="refers to nothing"):
        parse(text)


@pytest.mark.parametrize("text", ["data/x", "/data", "file:///x", "https://h/x", "wasbs://c@a/x", "C:x"])
def test_other_paths_are_none(text):
    assert not is_reference(text)
