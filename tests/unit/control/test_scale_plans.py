"""The plans of the jobs that drumline scale runs."""

import json

import pytest

from drumline.control.measure.scale_run import ScaleRequest, plan_sizes
from drumline.plan.planner import HANG_AFTER_S
from drumline.spec.load import load_job


@pytest.mark.parametrize(("hang_after", "expected_s"), [(0, HANG_AFTER_S), (None, HANG_AFTER_S), (60, 60)])
@pytest.mark.parametrize("action", ["end", "restart"])
def test_every_hang_is_noticed_and_told_of_before_anything_ends_it(tmp_path, hang_after, expected_s, action):
    path = tmp_path / "job.yml"
    drumline = {"hang_action": action, **({} if hang_after is None else {"hang_after": hang_after})}
    path.write_text(json.dumps({"command": "true", "resources": {"instance_count": 1}, "drumline": drumline}))
    (plan,) = plan_sizes(load_job(str(path)), ScaleRequest((1,)))
    assert (plan.hang_after_s, plan.hang_action) == (expected_s, "report")
