"""The texts that Azure's documents and tools have for assets, datastores and outputs."""

import pytest

from drumline.contract.errors import SpecError
from drumline.spec.azureml_uris import is_reference, parse

LONG = "azureml://subscriptions/s/resourcegroups/g/workspaces/w"
ARM = "azureml:/subscriptions/s/resourceGroups/g/providers/Microsoft.MachineLearningServices/workspaces/w"


def shown(text):
    found = parse(text)
    return (type(found).__name__, *vars(found).values())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("azureml:digits:1", ("AssetReference", "digits", "1", "", "")),
        ("azureml:digits:18.04:2022", ("AssetReference", "digits", "18.04:2022", "", "")),
        ("azureml:digits@latest", ("AssetReference", "digits", "", "latest", "")),
        ("azureml:digits", ("AssetReference", "digits", "", "", "")),
        ("AzureML:digits:1", ("AssetReference", "digits", "1", "", "")),
        ("azureml:azureml:digits:1", ("AssetReference", "digits", "1", "", "")),
        (f"{ARM}/data/digits/versions/1", ("AssetReference", "digits", "1", "", "")),
        (f"{ARM.removeprefix('azureml:')}/models/m/versions/2", ("AssetReference", "m", "2", "", "")),
        (f"{ARM}/datastores/blob/paths/a", ("InDatastore", "blob", "a")),
        (
            "azureml://locations/l/workspaces/w/environments/e/labels/latest",
            ("AssetReference", "e", "", "latest", ""),
        ),
        (
            "azureml://registries/azureml/environments/e/versions/3",
            ("AssetReference", "e", "3", "", "azureml"),
        ),
        ("azureml://datastores/blob/paths/a/b.csv", ("InDatastore", "blob", "a/b.csv")),
        ("azureml:azureml://datastores/blob/paths/a/", ("InDatastore", "blob", "a/")),
        ("azureml://datastores/blob", ("InDatastore", "blob", "")),
        (f"{LONG}/datastores/blob/paths/a", ("InDatastore", "blob", "a")),
        ("azureml://jobs/j/outputs/o", ("JobOutputReference", "j", "o", "")),
        ("azureml://jobs/j/outputs/o/paths/x/y", ("JobOutputReference", "j", "o", "x/y")),
        (f"{LONG}/jobs/j/outputs/default", ("JobOutputReference", "j", "default", "")),
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
    with pytest.raises(SpecError, match="unknown form of reference"):
        parse(text)


@pytest.mark.parametrize("text", ["data/x", "/data", "file:///x", "https://h/x", "wasbs://c@a/x", "C:x"])
def test_other_paths_are_none(text):
    assert not is_reference(text)
