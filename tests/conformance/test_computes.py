"""Compute files that differ from a good one in one thing each, with azure-ai-ml's verdict on every one."""

from __future__ import annotations

from pathlib import Path

import pytest

from drumline import load_compute
from drumline.contract.errors import SpecError

CASES = Path(__file__).parent / "cases" / "compute"
ACCEPTED = {
    "bad_type": False,
    "full": True,
    "idle_str": False,
    "min_gt_max": True,
    "neg": True,
    "no_name": False,
    "no_type": False,
    "tier_camel": False,
    "tier_dash": False,
    "unknown_field": False,
}
"""What cannot be, a negative count say, is refused when it comes to stand for a cluster: ``compute attach``."""


def test_every_case_has_a_verdict():
    assert sorted(path.stem for path in CASES.iterdir()) == sorted(ACCEPTED)


@pytest.mark.parametrize("name", [name for name, accepted in ACCEPTED.items() if accepted])
def test_what_azure_ai_ml_accepts_is_accepted_and_dumped_to_the_same(name, tmp_path):
    compute = load_compute(CASES / f"{name}.yml")
    compute.dump(tmp_path / "compute.yml")
    assert load_compute(tmp_path / "compute.yml") == compute


@pytest.mark.parametrize("name", [name for name, accepted in ACCEPTED.items() if not accepted])
def test_what_azure_ai_ml_refuses_is_refused_with_its_place(name):
    with pytest.raises(SpecError) as caught:
        load_compute(CASES / f"{name}.yml")
    assert all(problem.file and problem.line for problem in caught.value.problems)


def test_a_slurm_compute_may_not_have_what_is_azures():
    with pytest.raises(SpecError, match="unknown key 'size' in a slurm compute"):
        load_compute(CASES / "bad_type.yml")
