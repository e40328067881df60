"""The cluster that the other tests of this folder stand on."""

import subprocess
from pathlib import Path

import pytest
from slurm_cluster import SlurmCluster
from waiting import wait_until

pytestmark = pytest.mark.root


def test_four_nodes_are_idle(slurm_cluster: SlurmCluster) -> None:
    assert slurm_cluster.states() == dict.fromkeys(("e1", "e2", "e3", "e4"), "idle")


def test_each_node_has_a_host_name_that_the_others_know(slurm_cluster: SlurmCluster) -> None:
    said = slurm_cluster.run("srun", "-N4", "sh", "-c", "hostname; getent hosts e1 e2 e3 e4 | wc -l")
    assert sorted(said.split()) == ["4"] * 4 + ["e1", "e2", "e3", "e4"]


def test_the_controller_asks_no_name_server(slurm_cluster: SlurmCluster) -> None:
    """From some release after 22.05 on it looks up the names of its clients, and stands still until that has failed."""
    mark = f"{slurm_cluster.folder}:slurmctld"
    # Those of clusters before this one may still be zombies.
    running = subprocess.run(["pgrep", "-x", "slurmctld"], capture_output=True, text=True, check=True)
    grep = ["grep", "-ls", mark, *(f"/proc/{pid}/environ" for pid in running.stdout.split())]
    found = subprocess.run(grep, capture_output=True, text=True, check=False).stdout.split()
    services = [Path(path).parent / "root" / "etc" / "nsswitch.conf" for path in found]
    assert services
    assert all("\nhosts: files\n" in path.read_text() for path in services)


def test_a_batch_job_sees_its_gpus_and_the_folder_it_came_from(
    slurm_cluster: SlurmCluster, tmp_path: Path
) -> None:
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/sh\npwd; srun sh -c 'echo $CUDA_VISIBLE_DEVICES'\n")
    output = tmp_path / "out"
    slurm_cluster.run("sbatch", "-N2", "--gres=gpu:2", f"--chdir={tmp_path}", f"--output={output}", script)
    wait_until(lambda: not slurm_cluster.squeue(), what="the job ends")
    assert output.read_text().split("\n") == [str(tmp_path), "0,1", "0,1", ""]


@pytest.mark.usefixtures("slurm_cluster")  # where one can be
def test_main_takes_nodes_from_spot() -> None:
    # As it is by default, but without its 5 s of grace and 5 s before SIGKILL.
    spot = "PartitionName=spot Nodes=ALL PriorityTier=1 PreemptMode=REQUEUE GraceTime=0"
    cluster = SlurmCluster("--set", "KillWait=1", "--partition", spot, nodes=1)
    try:
        options = ("--parsable", "-p", "spot", "--exclusive", "--output=/dev/null")
        job = cluster.run("sbatch", *options, "--wrap=sleep 600").strip()
        wait_until(lambda: cluster.squeue().get(job) == "RUNNING", what="the job in spot runs")
        cluster.run("srun", "-N1", "true")
        assert "Restarts=1" in cluster.scontrol("show", "job", job)
    finally:
        cluster.down()


def test_a_stopped_slurmd_leaves_its_job_alone(slurm_cluster: SlurmCluster, tmp_path: Path) -> None:
    output = tmp_path / "out"
    wrap = f"while [ ! -e {tmp_path}/go ]; do sleep 0.1; done; hostname"
    job = slurm_cluster.run(
        "sbatch", "--parsable", "-w", "e2", f"--output={output}", f"--wrap={wrap}"
    ).strip()
    wait_until(output.exists, what="the job has begun")
    slurm_cluster.stop("e2", kill=True)
    (tmp_path / "go").touch()
    wait_until(lambda: output.read_text() == "e2\n", what="the job goes on")
    slurm_cluster.start("e2")
    wait_until(lambda: job not in slurm_cluster.squeue(), 30.0, "Slurm hears of the end")
    slurm_cluster.wait_until_idle()


@pytest.mark.usefixtures("slurm_cluster")  # where one can be
def test_a_cut_node_has_nothing_left_and_comes_back_empty() -> None:
    cluster = SlurmCluster("--set", "SlurmdTimeout=4", nodes=2)
    try:
        marker = "987.6543"
        cluster.run("sbatch", "-w", "e1", "--output=/dev/null", "--wrap", f"setsid sleep {marker}")
        wait_until(lambda: marker in _command_lines(), what="the job's process is there")
        cluster.cut("e1")
        assert marker not in _command_lines()
        assert cluster.exec("e1", "true").returncode == 1
        cluster.revive("e1")
        assert cluster.exec("e1", "hostname").stdout == "e1\n"
    finally:
        cluster.down()


def test_two_at_once_and_down_leaves_nothing(slurm_cluster: SlurmCluster) -> None:
    second = SlurmCluster("--partition", "PartitionName=tiny Nodes=e1", nodes=1)
    try:
        assert second.run("srun", "-p", "tiny", "hostname") == "e1\n"
        gateway = second.exec("e1", "ip", "-4", "route", "show", "default").stdout.split()[2]
        assert gateway in _addresses()
        second.run("sbatch", "--output=/dev/null", "--wrap", "sleep 600")
        wait_until(lambda: "RUNNING" in second.squeue().values(), what="a job runs")
    finally:
        second.down()
    assert not second.folder.exists()
    assert gateway not in _addresses()
    assert not _processes_that_mention(second.folder)
    second.down()
    assert slurm_cluster.run("srun", "-N4", "hostname").count("\n") == len(slurm_cluster.nodes)


@pytest.mark.usefixtures("slurm_cluster")  # where one can be
def test_down_cleans_up_after_what_was_killed() -> None:
    cluster = SlurmCluster(nodes=2)
    for pid in _processes_that_mention(cluster.folder)[::2]:
        subprocess.run(["kill", "-9", str(pid)], check=False, stderr=subprocess.DEVNULL)
    cluster.down()
    assert not cluster.folder.exists()
    assert not _processes_that_mention(cluster.folder)


def _addresses() -> str:
    return subprocess.run(["ip", "-o", "-4", "address"], capture_output=True, text=True, check=True).stdout


def _command_lines() -> str:
    """Of all processes on this machine, those in nodes included."""
    return "\n".join(_read(path).replace("\0", " ") for path in Path("/proc").glob("[0-9]*/cmdline"))


def _processes_that_mention(folder: Path) -> list[int]:
    """In their environment, as daemons, nodes and jobs of the cluster there do."""
    return [
        int(path.parent.name) for path in Path("/proc").glob("[0-9]*/environ") if f"{folder}" in _read(path)
    ]


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:  # ended meanwhile
        return ""
