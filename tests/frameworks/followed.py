"""What ``drumline job show`` says of the steps of a training that has run, compared with what its program did."""

from pathlib import Path

import pytest
from frameworks.table import Followed

from drumline.contract.folder import RunFolder
from drumline.control.facts import steps
from drumline.control.facts.steps import read_steps
from drumline.control.jobs.job_outcome import read_outcome


def check(run_folder: Path, followed: Followed) -> None:
    """The job has made the steps that it says, and its phases are those of a training."""
    folder = RunFolder(str(run_folder))
    shown = steps.describe_steps(folder, read_outcome(folder))
    if followed.steps == 0:
        # A job that is over soon has too few looks at its stacks.
        assert shown is None or shown.sources == ["stacks"]
        return
    assert shown is not None
    total = followed.steps if followed.total else None
    assert (shown.done, shown.total, shown.total_source) == (
        followed.steps,
        total,
        followed.total or None,
    )
    assert shown.rate > 0
    assert shown.step_s > 0
    # Steps that are very short are too few for a look at the logger of DistributedDataParallel.
    assert set(shown.sources) <= {"optimizer", "ddp" if followed.ddp else "collectives"}
    phases = shown.phases
    assert {"forward", "backward"} <= set(phases)
    assert all(0 <= share <= 1 for share in phases.values())
    assert sum(phases.values()) == pytest.approx(1.0, abs=0.01)
    ranks = read_steps(folder.path, 0).ranks
    assert [windows[-1].done for windows in ranks.values()] == [followed.steps] * len(ranks)
    assert [sum(one.made for one in windows) for windows in ranks.values()] == [followed.steps] * len(ranks)
