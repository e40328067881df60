"""Jobs of ours on a real cluster, for the tests: submit, wait for a condition, ask Slurm, and leave nothing in line."""

import textwrap
from pathlib import Path
from typing import Any

from cli_jobs import logs_of, two_by_two, write_job
from slurm_cluster import SlurmCluster
from waiting import wait_until

from drumline.control.facts import description

COMPUTE = "cluster"

SAVES = """
    import os, pathlib, signal, sys, time

    told = []
    signal.signal(signal.SIGTERM, lambda *_: told.append(time.time()))
    attempt, rank = os.environ["DRUMLINE_ATTEMPT"], os.environ.get("RANK", "0")
    saved = pathlib.Path("outputs", f"saved-{rank}")
    if saved.exists():
        print(f"goes on after {saved.read_text()} in attempt {attempt}")
        sys.exit()
    print("ready", flush=True)
    while not told:
        time.sleep(0.01)
    time.sleep(0.3)
    saved.write_text(f"{len(told)} signal")
"""
"""Ends well when it finds what it saved; until it is told to end it waits. Whoever is told twice says so."""

WAITS = """
    import signal
    print("ready", flush=True)
    signal.pause()
"""


class SlurmJobs:
    def __init__(self, cluster: SlurmCluster, cli: Any, home: Path, folder: Path) -> None:
        self.cluster = cluster
        self.home = home
        self._cli = cli
        self._folder = folder

    def attach(self, *options: str) -> None:
        """The compute of the name COMPUTE, anew."""
        done = self._cli("compute", "attach", "--type", "slurm", "--name", COMPUTE, *options)
        assert done.rc == 0, done.err

    def create(self, code: str, name: str = "job", **fields: Any) -> str:
        """A job whose ranks run that Python code, four on two nodes unless told otherwise; returns at once."""
        source = self._folder / f"src-{name}"
        source.mkdir()
        (source / "train.py").write_text(textwrap.dedent(code))
        job = {"name": name, "code": str(source), "compute": f"azureml:{COMPUTE}", **two_by_two(), **fields}
        done = self._cli("job", "create", "-f", write_job(self._folder, "python train.py", **job))
        assert done.rc == 0, done.err
        return done.err

    def begin(self, code: str, name: str = "job", **fields: Any) -> None:
        """As ``create``; returns when every rank has printed "ready"."""
        self.create(code, name, **fields)
        self.wait_until_ready(name)

    def wait_until_ready(self, name: str = "job") -> None:
        def ready() -> bool:
            logs = self.logs(name)
            return (
                bool(logs) and all("ready" in log for log in logs) and self.show(name)["status"] == "Running"
            )

        wait_until(ready, 20.0, f"the ranks of {name} to be ready")

    def logs(self, name: str = "job") -> list[str]:
        """By rank."""
        return logs_of(self.home / "jobs" / name)

    def show(self, name: str = "job") -> dict[str, Any]:
        return description.show_job(name)

    def number(self, name: str = "job") -> str:
        """What Slurm calls it."""
        return str(wait_until(lambda: self.show(name)["slurm"]["slurm_job_id"], what=f"the number of {name}"))

    def wait_for(self, *wanted: str, name: str = "job", timeout_s: float = 20.0) -> dict[str, Any]:
        wait_until(
            lambda: self.show(name)["status"] in wanted, timeout_s, f"{name} to be {' or '.join(wanted)}"
        )
        return self.show(name)

    def wait_for_end(self, name: str = "job", timeout_s: float = 20.0) -> dict[str, Any]:
        return self.wait_for("Completed", "Failed", "Canceled", name=name, timeout_s=timeout_s)

    def start_now(self, name: str = "job") -> None:
        """A job that was requeued waits two minutes; an operator can let it go at once."""
        number = self.number(name)
        wait_until(
            lambda: self.cluster.squeue().get(number) == "PENDING", 20.0, f"{name} to be in line again"
        )
        # In the second in which it was requeued, its nodes would refuse it ("Job credential revoked").
        self.cluster.scontrol("update", f"JobId={number}", "StartTime=now+2")

    def fill(self, nodes: int = 4) -> str:
        """Somebody else's job on so many nodes, whole; its number."""
        options = ("--parsable", f"--nodes={nodes}", "--exclusive", "--output=/dev/null")
        number = self.cluster.run("sbatch", *options, "--wrap=sleep 600").strip()
        wait_until(lambda: self.cluster.squeue().get(number) == "RUNNING", what="the other job runs")
        return number

    def clear(self) -> None:
        for number in self.cluster.squeue():
            self.cluster.run("scancel", number)
        wait_until(lambda: not self.cluster.squeue(), 20.0, "the queue is empty")
        self.cluster.wait_until_idle()
