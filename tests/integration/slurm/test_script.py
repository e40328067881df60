"""What sbatch makes of the lines of a batch script."""

import subprocess
from pathlib import Path

import pytest
from planning import plan
from slurm_cluster import SlurmCluster
from waiting import wait_until

from drumline.contract.folder import RunFolder
from drumline.contract.plan import Asked
from drumline.engines.slurm import options

NASTY = [
    "a b", 'say "hi"', "it's", "back\\slash", "end\\", '\\"', "a#b", " # c", "$(id)", "`id`", ": x", "%j", "a;b", "'",
    '"', "''", "--wrap=x", "x=y", "ünï", "~", "(a)", "a|b&c", "*",
]  # fmt: skip


def job(**options: object):
    made = plan(1, name="calm_drum", at={"engine": "slurm"})
    return made._replace(compute={"python": "/bin/echo"}, asked=Asked(options=options))


def sbatch(cluster: SlurmCluster, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sbatch", "--parsable", *arguments],
        input=text,
        capture_output=True,
        text=True,
        env=cluster.env,
        check=False,
    )


@pytest.mark.parametrize("value", NASTY)
def test_a_value_comes_to_slurm_as_it_was_given(
    slurm_cluster: SlurmCluster, tmp_path: Path, value: str
) -> None:
    text = options.render(job(comment=value, hold=True), RunFolder(str(tmp_path / "jobs" / "calm_drum")))
    done = sbatch(slurm_cluster, text)
    assert done.returncode == 0, done.stderr
    number = done.stdout.strip()
    said = slurm_cluster.scontrol("--oneliner", "show", "job", number)
    slurm_cluster.run("scancel", number)
    assert f" Comment={value} " in said


@pytest.mark.parametrize("name", ["a 0", "it's", 'a"b', "50%", "%j", "a#b", "a;b $(id)"])
def test_the_output_is_in_a_run_folder_of_any_name(
    slurm_cluster: SlurmCluster, tmp_path: Path, name: str
) -> None:
    folder = RunFolder(str(tmp_path / name / "jobs" / "calm_drum"))
    folder.create()
    done = sbatch(slurm_cluster, options.render(job(), folder))
    assert done.returncode == 0, done.stderr
    log = Path(options.log_of(folder))
    wait_until(lambda: log.exists() and log.read_text(), what="the batch step has said something")
    assert log.read_text() == f"-P -m drumline.supervisor --batch {folder.path}\n"
    wait_until(lambda: done.stdout.strip() not in slurm_cluster.squeue(), what="the job ends")
