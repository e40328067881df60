"""The names that scripts of the older SDKs import."""

import importlib
import re
from pathlib import Path
from typing import Any

import pytest

import drumline

PAGE = (Path(__file__).parents[3] / "docs" / "howto" / "older-sdks.md").read_text()


def test_every_name_in_the_page_is_there():
    v1 = importlib.import_module("drumline.v1")
    component = importlib.import_module("drumline.component")
    lines = re.findall(r"\| `from (azure[\w.]*) import ([\w, ]+)` \|", PAGE)
    assert len(lines) > 10
    for module, names in lines:
        here = component if module == "azure.ml.component" else v1
        for name in names.split(", "):
            assert getattr(here, name) is not None, (module, name)


def test_every_name_of_v1_loads_and_no_other():
    v1 = importlib.import_module("drumline.v1")
    for name in v1.__all__:
        assert name in dir(v1)
        getattr(v1, name)
    with pytest.raises(AttributeError, match="AutoMLConfig"):
        v1.AutoMLConfig()


def test_the_body_of_a_script_that_imports_the_package_stays_as_it_is():
    azureml: Any = importlib.import_module("drumline.v1")

    assert drumline.__version__ == azureml.core.VERSION
    assert azureml.core.runconfig.MpiConfiguration is azureml.core.MpiConfiguration
    assert azureml.core.Environment is azureml.core.environment.Environment
    assert azureml.set_diagnostics_collection(send_diagnostics=True) is None
