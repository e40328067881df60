"""The step of Slurm's in which a command beside a rank runs."""

import pytest
from fake_slurm import FakeSlurm
from planning import plan

from drumline.contract.errors import NotFoundError
from drumline.contract.folder import RunFolder
from drumline.contract.outcome import Outcome, RankOutcome
from drumline.engines.slurm import engine, jobs


@pytest.fixture
def folder(tmp_path):
    made = RunFolder(str(tmp_path / "job"))
    made.create()
    made.write(made.plan, plan(distribution={"type": "pytorch"}).to_json())
    return made


def test_it_overlaps_the_job_on_the_node_of_the_rank(folder, tmp_path, monkeypatch):
    slurm = FakeSlurm(tmp_path / "slurm")
    slurm.says("srun", rc=5)
    monkeypatch.setenv("PATH", str(slurm.bin))
    outcome = Outcome()
    outcome.hosts, outcome.agents = {1: "e2"}, {1: 33}
    rank = RankOutcome(3, 1, 44)
    jobs.claim(folder, "7")
    assert engine.ENGINE.run_beside(folder, outcome, "3", rank, ["echo", "hi"]) == 5
    (call,) = slurm.calls("srun")
    options, _, program = call.partition(" -P -m drumline.node enter ")
    assert {"--jobid=7", "--nodelist=e2", "--overlap", "--nodes=1", "--ntasks=1", "--mem=0"} <= set(
        options.split()
    )
    assert ("--pty" in options, program) == (False, f"{folder.path} 3 44 33 echo hi")
    with pytest.raises(NotFoundError, match="the node of rank 3 is not known"):
        engine.ENGINE.run_beside(folder, Outcome(), "3", rank, [])
