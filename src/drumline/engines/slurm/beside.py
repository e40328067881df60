"""A command beside a rank on one of Slurm's nodes: a step of the job that overlaps the agents'."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from typing import TYPE_CHECKING

from drumline.contract.errors import EngineError, NotFoundError
from drumline.contract.plan import Plan
from drumline.engines.slurm import agents, options, script

if TYPE_CHECKING:
    from collections.abc import Sequence

    from drumline.contract.folder import RunFolder
    from drumline.contract.outcome import Outcome, RankOutcome


def run_beside(
    folder: RunFolder, number: str, outcome: Outcome, label: str, rank: RankOutcome, words: Sequence[str]
) -> int:
    """Do as ``Engine.run_beside``. ``number``: Slurm's, of the job."""
    plan = Plan.read(folder.plan)
    host, agent = outcome.hosts.get(rank.node), outcome.agents.get(rank.node)
    if not number or not host or agent is None:
        raise NotFoundError(f"the node of rank {label} is not known")
    where = [folder.path, label, str(rank.pid), str(agent)]
    program = [script.interpreter_of(plan), "-P", "-m", "drumline.node", "enter", *where, *words]
    environment = agents.make_srun_environment()
    if plan.compute.get("slurm_conf"):
        environment["SLURM_CONF"] = str(plan.compute["slurm_conf"])
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return subprocess.run(  # noqa: S603 - Slurm's own command, no shell
            [*_make_step(plan, number, host), *program], check=False, env=environment, restore_signals=True
        ).returncode
    except OSError as error:
        raise EngineError(f"srun could not be started: {error.strerror or error}") from error
    finally:
        signal.signal(signal.SIGINT, before)


def _make_step(plan: Plan, number: str, host: str) -> list[str]:
    return [
        shutil.which("srun") or "srun",
        f"--jobid={number}",
        f"--nodelist={host}",
        "--nodes=1",
        "--ntasks=1",
        f"--cpus-per-task={options.cores_of(plan)}",
        "--overlap",
        "--cpu-bind=none",
        "--mem=0",
        "--mpi=none",
        "--unbuffered",
        "--quiet",
        "--job-name=exec",
        *(["--pty"] if os.isatty(0) and os.isatty(1) else []),
    ]
