"""Component files that differ from a good one in one thing each, with azure-ai-ml's verdict on every one."""

from __future__ import annotations

from pathlib import Path

import pytest

from drumline import load_component
from drumline.contract.errors import SpecError
from drumline.spec.entity import to_dict

CASES = Path(__file__).parent / "cases" / "component"
ACCEPTED = {
    "additional_includes": True,
    "compute": True,
    "dist_unknown_key": True,
    "enum": True,
    "inputs_and_search_space": False,
    "limits": True,
    "name_upper": False,
    "no_name": False,
    "ok": True,
    "optional_default": True,
    "undefined_input": False,
}


def test_every_case_has_a_verdict():
    assert sorted(path.stem for path in CASES.iterdir()) == sorted(ACCEPTED)


@pytest.mark.parametrize("name", [name for name, accepted in ACCEPTED.items() if accepted])
def test_what_azure_ai_ml_accepts_is_accepted_and_dumped_to_the_same(name, tmp_path):
    component = load_component(CASES / f"{name}.yml")
    component.dump(tmp_path / "component.yml")
    assert to_dict(load_component(tmp_path / "component.yml")) == to_dict(component)


@pytest.mark.parametrize("name", [name for name, accepted in ACCEPTED.items() if not accepted])
def test_what_azure_ai_ml_refuses_is_refused_with_its_place(name):
    with pytest.raises(SpecError) as caught:
        load_component(CASES / f"{name}.yml")
    assert all(problem.file and problem.line for problem in caught.value.problems)


def test_what_a_component_cannot_have_is_left_out():
    for name, key in (("compute", "compute"), ("limits", "limits")):
        assert key not in to_dict(load_component(CASES / f"{name}.yml"))
    assert "zz" not in to_dict(load_component(CASES / "dist_unknown_key.yml"))["distribution"]
