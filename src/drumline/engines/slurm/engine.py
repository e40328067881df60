"""The Slurm engine: submits the batch job, and says what Slurm knows of it to whoever asks."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from drumline.contract import secrets as job_secrets
from drumline.contract.errors import EngineError, NotFoundError
from drumline.contract.plan import NodeShape, Plan
from drumline.engines.base import ClusterNode, Nodes
from drumline.engines.local import resources
from drumline.engines.slurm import options
from drumline.engines.slurm.batch_job import BatchJob, SlurmAllocation, SlurmFacts, SlurmPreemption
from drumline.engines.slurm.jobs import SlurmJobs, claim, is_of, number_of
from drumline.engines.slurm.slurm_commands import (
    PATIENCE_S,
    AbsentError,
    RefusedError,
    SilentError,
    Slurm,
    open_slurm,
)
from drumline.engines.slurm.srun_agents import SlurmAgents, make_srun_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from drumline.contract.folder import RunFolder
    from drumline.contract.installed_mpi import Mpi
    from drumline.contract.outcome import Outcome, RankOutcome
    from drumline.engines.base import JobView


class SlurmEngine:
    name = "slurm"
    shares_machine = False

    def __init__(self) -> None:
        self._jobs = SlurmJobs()

    def shapes(self, node_count: int, compute: Mapping[str, Any], instance_type: str = "") -> list[NodeShape]:
        kind = options.instance_type_of(compute, instance_type)
        gpus = int(kind.get("gpus_per_node", compute.get("gpus_per_node")) or 0)
        cores = int(kind.get("cores_per_node", compute.get("cores_per_node")) or 0)
        return [NodeShape((), gpus, cores)] * node_count

    def list_reached(self, compute: Mapping[str, Any]) -> None:
        return None

    def mpi(self, search_path: str) -> Mpi | None:
        """
        Return the MPI of this machine: the nodes have programs at the same places, or the site has no shared software.
        """
        return resources.mpi_on(search_path)

    def render(self, plan: Plan, folder: RunFolder) -> str:
        return options.render(plan, folder)

    def warnings(self, plan: Plan) -> list[str]:
        return options.check(plan)

    def submit(self, folder: RunFolder, start: Callable[[str, str], None] | None, secrets: str = "") -> None:
        """
        Submit the job, and return when Slurm has it.

        Where nobody answers it asks for ``PATIENCE_S``, each time looking first whether an earlier attempt has arrived
        after all. Two of them in the queue would be no harm: the first to start claims the run folder
        (``supervisor/main.py``).
        """
        plan = Plan.read(folder.plan)
        slurm = open_slurm(plan.compute)
        text = options.render(plan, folder)
        unset = options.variables_of(options.make_options(plan, options.log_of(folder)))
        changes = {**dict.fromkeys((*unset, *plan.secrets)), **_split_secrets(folder, secrets)}
        number = self._submit(slurm, text, changes, folder)
        # What cannot be written down here, the job's own supervisor writes down.
        with contextlib.suppress(OSError):
            claim(folder, number)

    def _submit(self, slurm: Slurm, text: str, changes: Mapping[str, str | None], folder: RunFolder) -> str:
        deadline = time.monotonic() + PATIENCE_S
        pause_s = 1.0
        may_have_arrived = False
        while True:
            try:
                return slurm.sbatch(text, changes)
            except RefusedError as refused:
                if may_have_arrived:
                    # Perhaps for that very reason, such as a limit of queued jobs.
                    raise EngineError(f"Slurm did not take the job: {refused.message}") from refused
                raise
            except SilentError as silent:
                if time.monotonic() > deadline:
                    hint = "if the job comes to Slurm after all, it ends at once"
                    raise EngineError(f"Slurm did not take the job: {silent.message}", hint) from silent
                if pause_s == 1.0:
                    said = "".join(one if one.isprintable() else " " for one in silent.message)
                    sys.stderr.write(f"waiting for Slurm: {said}\n")
                    sys.stderr.flush()
            may_have_arrived = True
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.5, 10.0)
            with contextlib.suppress(SilentError, RefusedError):
                found = next((job.id for job in slurm.mine().values() if is_of(job, folder)), "")
                if found:
                    return found
                may_have_arrived = False

    def claim(self, folder: RunFolder) -> str:
        number = os.environ.get("SLURM_JOB_ID", "")
        try:
            claim(folder, number)
        except FileExistsError:
            return f"this run folder is of job {number_of(folder)} of Slurm, and this is job {number}"
        return ""

    def nodes(self, plan: Plan, folder: RunFolder) -> Nodes:
        job, facts = BatchJob(plan), SlurmFacts(plan)
        preemption = SlurmPreemption(plan, job, facts)
        agents = SlurmAgents(plan, folder, job, facts)
        return Nodes(SlurmAllocation(plan, job, preemption), agents, facts, preemption)

    def run_beside(
        self, folder: RunFolder, outcome: Outcome, label: str, rank: RankOutcome, words: Sequence[str]
    ) -> int:
        """Run it as a step of the job that overlaps the agents'."""
        plan, number = Plan.read(folder.plan), number_of(folder)
        host, agent = outcome.hosts.get(rank.node), outcome.agents.get(rank.node)
        if not number or not host or agent is None:
            raise NotFoundError(f"the node of rank {label} is not known")
        where = [folder.path, label, str(rank.pid), str(agent)]
        program = [options.interpreter_of(plan), "-P", "-m", "drumline.node", "enter", *where, *words]
        environment = make_srun_environment()
        if plan.compute.get("slurm_conf"):
            environment["SLURM_CONF"] = str(plan.compute["slurm_conf"])
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            return subprocess.run(  # noqa: S603 - Slurm's own command, no shell
                [*_make_step(plan, number, host), *program],
                check=False,
                env=environment,
                restore_signals=True,
            ).returncode
        except OSError as error:
            raise EngineError(f"srun could not be started: {error.strerror or error}") from error
        finally:
            signal.signal(signal.SIGINT, before)

    def view_job(self, folder: RunFolder, *, may_withdraw: bool = False) -> JobView:
        """Look the job up in the queue, else in the controller's memory, else in the accounting. Never raises."""
        return self._jobs.view(folder, may_withdraw=may_withdraw)

    def withdraw(self, folder: RunFolder) -> None:
        """Remove the job from the queue. Raises EngineError when Slurm does not answer."""
        self._jobs.withdraw(folder)

    def describe_job(self, folder: RunFolder, *, brief: bool = False) -> dict[str, Any]:
        """Return what Slurm calls the job, its state, and, while it waits, its place and start. Never raises."""
        return self._jobs.describe(folder, brief=brief)

    # Computes.

    def is_here(self) -> bool:
        try:
            open_slurm({}).partitions()
        except AbsentError:
            return False
        except EngineError:
            return True
        return True

    def check(self, compute: Mapping[str, Any]) -> list[str]:
        """List what stands in the way of jobs on this compute, seen from this machine; empty: nothing."""
        slurm = open_slurm(compute)
        wrong = []
        try:
            known = {partition.get("PartitionName") for partition in slurm.partitions()}
        except EngineError as error:
            return [error.message]
        for field in ("partition", "spot_partition"):
            name = compute.get(field)
            missing = [one for one in str(name or "").split(",") if one and one not in known]
            if missing:
                there = ", ".join(sorted(filter(None, known)))
                wrong.append(f"{field}: Slurm has no partition {missing[0]!r}; it has {there}")
        folder = str(compute.get("folder") or "")
        if folder and not os.path.isdir(folder):
            wrong.append(f"folder: there is no {folder} on this machine")
        return wrong

    def describe(self, compute: Mapping[str, Any]) -> dict[str, Any]:
        """Return what Slurm says of the compute now. Raises EngineError."""
        slurm = open_slurm(compute)
        name = str(compute.get("partition") or "")
        if not name:
            defaults = (one for one in slurm.partitions() if one.get("Default") == "YES")
            name = next(defaults, {}).get("PartitionName", "")
        facts = {"version": slurm.version(), "partition": name or None}
        partition = slurm.partition(name) if name else None
        if not partition:
            return facts
        states = Counter(node.state for node in self.list_nodes(compute))
        limits = {"state": partition.get("State"), "time_limit": partition.get("MaxTime")}
        return {**facts, **limits, "nodes": dict(sorted(states.items()))}

    def list_nodes(self, compute: Mapping[str, Any]) -> list[ClusterNode]:
        """List the nodes of the compute's partitions. Raises EngineError."""
        slurm = open_slurm(compute)
        wanted = {one for one in str(compute.get("partition") or "").split(",") if one}
        return [
            _node(fields)
            for fields in slurm.nodes()
            if not wanted or wanted & set(fields.get("Partitions", "").split(","))
        ]


def _split_secrets(folder: RunFolder, text: str) -> dict[str, str]:
    """Write one half of the job's secrets to its run folder; return the variable of the batch job with the other."""
    if not text:
        return {}
    pad, masked = job_secrets.split(text)
    # Of an earlier submission, which may have arrived although Slurm did not say so.
    before = folder.read_word(folder.secrets, job_secrets.MOST_PAD_CHARACTERS)
    folder.write(folder.secrets, job_secrets.add_pad(before, pad))
    return {job_secrets.VARIABLE: masked}


def _node(fields: Mapping[str, str]) -> ClusterNode:
    reason = fields.get("Reason", "")
    return ClusterNode(
        node=fields.get("NodeName"),
        state=fields.get("State", "").lower(),
        cores=_number(fields.get("CPUTot")),
        gpus=sum(map(int, re.findall(r"\bgpu(?::[^:,()]+)?:(\d+)", fields.get("Gres", "")))),
        memory_mb=_number(fields.get("RealMemory")),
        reason=None if reason in ("", "none") else reason,
        address=fields.get("NodeAddr"),
        cores_in_use=_number(fields.get("CPUAlloc")),
    )


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None


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


ENGINE = SlurmEngine()
