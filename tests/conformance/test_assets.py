"""
Files of data and environments that differ from a good one in one thing each, with azure-ai-ml's verdict on every one.

``asset_verdicts.json`` says which ones it accepts. Whether a local path is there is asked later, when it is registered.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from drumline.contract.errors import PlanError, SpecError
from drumline.control.assets import asset_verbs
from drumline.spec.load import load_data, load_environment

HERE = Path(__file__).parent
CASES = HERE / "cases"
VERDICTS = json.loads((HERE / "asset_verdicts.json").read_text())
LOADERS = {"data": load_data, "environment": load_environment}


def load(name):
    path = CASES / name
    return LOADERS[path.parent.name](path)


@pytest.mark.parametrize("name", sorted(name for name, accepted in VERDICTS.items() if accepted))
def test_what_azure_ai_ml_accepts_loads_and_loads_again(name, tmp_path):
    asset = load(name)
    asset.dump(tmp_path / "again.yml")
    again = LOADERS[Path(name).parent.name](tmp_path / "again.yml")
    assert str(asset) == str(again)


@pytest.mark.parametrize("name", sorted(name for name, accepted in VERDICTS.items() if not accepted))
def test_what_it_rejects_is_rejected_with_its_place(name):
    with pytest.raises(SpecError) as error:
        load(name)
    assert all(problem.file for problem in error.value.problems)


def test_a_path_that_is_not_there_is_refused_when_it_is_registered():
    data = load("assets/data/nopath_local.yml")
    with pytest.raises(PlanError, match="no such file or folder"):
        asset_verbs.create(data)
    assert asset_verbs.all("data") == []
