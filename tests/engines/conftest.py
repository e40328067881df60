"""Every engine, as the tests of what all of them do alike see it."""

import json
import os
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_jobs import CORES, logs_of, two_by_two, write_job
from kubernetes_cluster import KubernetesCluster
from slurm_jobs import SlurmJobs
from waiting import wait_until

from drumline.control.facts import description


class Local:
    """This machine plays the nodes."""

    name = "local"
    compute = "azureml:local"

    def fill(self, cli: Any, folder: Path) -> None:
        """All that there is is somebody else's."""
        ranks = {"distribution": {"type": "pytorch", "process_count_per_instance": CORES}}
        (folder / "filler").mkdir()
        job = write_job(folder / "filler", "echo ready; sleep 600", name="filler", **ranks)
        assert cli("job", "create", "-f", job).rc == 0
        wait_until(
            lambda: description.show_job("filler")["status"] == "Running",
            20.0,
            "the filler to run",
        )

    def empty(self, cli: Any) -> None:
        assert cli("job", "cancel", "-n", "filler", "--at-once").rc == 0

    def start_now(self, name: str) -> None:
        """It goes back in line, where nobody is."""

    def clear(self) -> None:
        """Whoever tests has ended its jobs."""


class Slurm(Local):
    name = "slurm"
    compute = "azureml:cluster"

    def __init__(self, jobs_of: SlurmJobs) -> None:
        self._jobs = jobs_of
        self._filler = ""

    def fill(self, cli: Any, folder: Path) -> None:
        self._filler = self._jobs.fill()

    def empty(self, cli: Any) -> None:
        self._jobs.cluster.run("scancel", self._filler)

    def start_now(self, name: str) -> None:
        self._jobs.start_now(name)

    def clear(self) -> None:
        self._jobs.clear()


class Kubernetes(Local):
    name = "kubernetes"
    compute = "azureml:k8s"

    def __init__(self, cluster: KubernetesCluster) -> None:
        self._cluster = cluster

    def fill(self, cli: Any, folder: Path) -> None:
        self._cluster.cordon(wanted=True)

    def empty(self, cli: Any) -> None:
        self._cluster.cordon(wanted=False)

    def clear(self) -> None:
        self._cluster.cordon(wanted=False)
        self._cluster.wait_until_empty(20.0)


@pytest.fixture(
    params=[
        "local",
        pytest.param("slurm", marks=pytest.mark.root),
        pytest.param("kubernetes", marks=[pytest.mark.root, pytest.mark.kubernetes]),
    ]
)
def engine(request, monkeypatch, drumline_home, tmp_path, cli) -> Iterator[Local]:
    if request.param == "local":
        yield Local()
        return
    if request.param == "kubernetes":
        on_kubernetes = request.getfixturevalue("kubernetes_cluster")
        words = ["--type", "kubernetes", "--name", "k8s", "--kubeconfig", str(on_kubernetes.kubeconfig)]
        words += ["--image", "none", "--python", os.path.realpath(sys.executable)]
        done = cli("compute", "attach", *words)
        assert done.rc == 0, done.err
        found = Kubernetes(on_kubernetes)
        yield found
        found.clear()
        return
    cluster = request.getfixturevalue("slurm_cluster")
    monkeypatch.setenv("SLURM_CONF", str(cluster.conf))
    of_cluster = SlurmJobs(cluster, cli, drumline_home, tmp_path)
    of_cluster.attach("--partition", "main", "--spot-partition", "spot")
    on_slurm = Slurm(of_cluster)
    yield on_slurm
    on_slurm.clear()


class Submitted:
    """A job of the test, on the engine of the test."""

    def __init__(self, cli: Any, home: Path, folder: Path, engine: Local) -> None:
        self._cli = cli
        self._folder = folder
        self.engine = engine
        self.path = home / "jobs" / "job"

    def create(self, code: str, *options: str, **fields: Any) -> Any:
        """The command's result. Four ranks on two nodes, in a tier that is started again, unless told otherwise."""
        (self._folder / "src").mkdir()
        (self._folder / "src" / "train.py").write_text(textwrap.dedent(code))
        job = {
            "name": "job",
            "code": "src",
            "compute": self.engine.compute,
            "queue_settings": {"job_tier": "spot"},
            **two_by_two(),
            **fields,
        }
        command = job.pop("command", "python train.py")
        return self._cli("job", "create", "-f", write_job(self._folder, command, **job), *options)

    def begin(self, code: str, **fields: Any) -> None:
        """Until every rank has printed "ready"."""
        done = self.create(code, **fields)
        assert done.rc == 0, done.err
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        wait_until(lambda: all("ready" in log for log in self.logs()), 20.0, "the ranks to be ready")
        self.wait_for("Running")

    def logs(self) -> list[str]:
        return logs_of(self.path)

    def show(self) -> dict[str, Any]:
        return description.show_job("job")

    def wait_for(self, *wanted: str) -> dict[str, Any]:
        wait_until(lambda: self.show()["status"] in wanted, 20.0, f"the job to be {' or '.join(wanted)}")
        return self.show()

    def wait_for_end(self) -> dict[str, Any]:
        return self.wait_for("Completed", "Failed", "Canceled")

    def kinds_of_events(self) -> list[str]:
        return [json.loads(line)["type"] for line in (self.path / "events.jsonl").read_text().splitlines()]


@pytest.fixture
def job(cli, drumline_home, tmp_path, engine) -> Submitted:
    return Submitted(cli, drumline_home, tmp_path, engine)
