"""How each contender submits a job to Slurm, and where it leaves the times of that."""

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple, Protocol

RANK = Path(__file__).resolve().parent / "rank.py"
COMMAND_S = 120.0


class Case(NamedTuple):
    """A size and what each rank is given as arguments; `key` selects it on the command line."""

    key: str
    title: str
    nodes: int
    procs: int
    work: str = ""

    @property
    def rank_command(self) -> list[str]:
        return [sys.executable, str(RANK), *([self.work] if self.work else [])]


class Times(NamedTuple):
    """Seconds since 1970."""

    began: float
    """When the batch step began."""

    ranks: list[float]
    """When each rank printed its first line."""

    end: float
    """Just before the batch step ended."""

    steps: dict[str, float]
    """What else is known, for whoever looks for where the time goes."""


class Contender(Protocol):
    name: str

    def prepare(self, case: Case, folder: Path) -> None:
        """Write the files that `submit` needs."""

    def submit(self, folder: Path, number: int, variables: dict[str, str]) -> None:
        """Returns when Slurm has the job. Raises RuntimeError."""

    def times(self, folder: Path, number: int) -> Times | None:
        """None while the job has not ended. Raises RuntimeError for one that did not do what was asked."""


class Plain:
    """A batch script as people write it by hand, whose srun starts the ranks."""

    name = "sbatch + srun"

    def prepare(self, case: Case, folder: Path) -> None:
        lines = [
            "#!/bin/bash",
            f"#SBATCH --nodes={case.nodes} --ntasks-per-node={case.procs} --cpus-per-task=1",
            "began=$EPOCHREALTIME",
        ]
        if case.work:
            lines += [
                'export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
                "export MASTER_PORT=29511 WORLD_SIZE=$SLURM_NTASKS GLOO_SOCKET_IFNAME=eth0 OMP_NUM_THREADS=1",
            ]
        lines += [
            f"srun {shlex.join(case.rank_command)} > ranks-$1",
            'echo "$? $began $EPOCHREALTIME" > end-$1.new',
            "mv end-$1.new end-$1",
        ]
        (folder / "job.sh").write_text("\n".join(lines) + "\n")

    def submit(self, folder: Path, number: int, variables: dict[str, str]) -> None:
        run(
            ["sbatch", "--parsable", f"--output=slurm-{number}.log", "job.sh", str(number)], folder, variables
        )

    def times(self, folder: Path, number: int) -> Times | None:
        end = folder / f"end-{number}"
        if not end.exists():
            return None
        code, began, ended = end.read_text().split()
        if code != "0":
            raise RuntimeError(f"{self.name}: exit code {code}")
        ranks = [float(line) for line in (folder / f"ranks-{number}").read_text().splitlines()]
        return Times(float(began), ranks, float(ended), {})


class Drumline:
    """The same ranks as a job file of Azure ML."""

    name = "Drumline"

    def prepare(self, case: Case, folder: Path) -> None:
        job = {
            "command": shlex.join(case.rank_command),
            "compute": "azureml:bench",
            "distribution": {"type": "pytorch", "process_count_per_instance": case.procs},
            "resources": {"instance_count": case.nodes},
            "environment_variables": {"OMP_NUM_THREADS": "1"},
        }
        (folder / "job.yml").write_text(json.dumps(job))
        (folder / "home" / "computes").mkdir(parents=True)
        compute = {"name": "bench", "type": "slurm", "setup": "echo $EPOCHREALTIME > began"}
        (folder / "home" / "computes" / "bench.yml").write_text(json.dumps(compute))

    def submit(self, folder: Path, number: int, variables: dict[str, str]) -> None:
        command = [str(Path(sys.executable).parent / "drumline"), "job", "create", "-f", "job.yml"]
        run(
            [*command, "--name", f"job-{number}"],
            folder,
            {**variables, "DRUMLINE_HOME": str(folder / "home")},
        )

    def times(self, folder: Path, number: int) -> Times | None:
        run_folder = folder / "home" / "jobs" / f"job-{number}"
        events = [json.loads(line) for line in (run_folder / "events.jsonl").read_text().splitlines()]
        end = events[-1]
        if end["type"] != "JobEnded":
            return None
        if end["status"] != "Completed":
            raise RuntimeError(f"{self.name}: {end['status']}: {end['reason']}")
        logs = sorted((run_folder / "user_logs").glob("std_log*.txt"))
        ranks = [float(log.read_text().split("\n", 1)[0]) for log in logs]
        began = float((run_folder / "began").read_text())
        return Times(began, ranks, end["time"], _steps(events))


def _steps(events: list[dict[str, Any]]) -> dict[str, float]:
    """The last moment of each kind."""
    return {event["type"]: event["time"] for event in events}


def run(argv: list[str], folder: Path, variables: dict[str, str]) -> None:
    done = subprocess.run(
        argv,
        cwd=folder,
        env=variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{shlex.join(argv)}: exit code {done.returncode}: {done.stderr.strip()[-300:]}")


PLAIN, DRUMLINE = Plain(), Drumline()
CONTENDERS: list[Contender] = [PLAIN, DRUMLINE]
