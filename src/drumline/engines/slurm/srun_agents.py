"""Agents on Slurm's nodes: one ``srun`` starts them all."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import time
from typing import TYPE_CHECKING

from drumline.contract import channel, messages
from drumline.contract.errors import EngineError
from drumline.engines.base import AgentProcesses, AgentStarter
from drumline.engines.slurm import options
from drumline.engines.slurm.batch_job import MARGIN_S, STEPD
from drumline.linux import interfaces, kernel

if TYPE_CHECKING:
    from drumline.contract.folder import RunFolder
    from drumline.contract.plan import Plan
    from drumline.engines.slurm.batch_job import BatchJob, SlurmFacts

_PASSING = re.compile(
    r"Socket timed out|Unable to contact slurm controller|Unable to confirm allocation", re.IGNORECASE
)
"""What ``srun`` says when the controller has not answered it; it does not ask again. Source: srun of 22.05 to 24.11."""

_PAUSE_S = 2
"""Before ``srun`` is started again."""

_SETTINGS_S = 0.5
"""For Slurm to say its settings, while no agent can have joined yet."""


class SlurmAgents(AgentStarter):
    """The ``srun`` of one attempt, and what it says of agents that did not join or were lost."""

    silence_s = channel.SILENCE_S

    def __init__(self, plan: Plan, folder: RunFolder, job: BatchJob, facts: SlurmFacts) -> None:
        self._plan = plan
        self._folder = folder
        self._job = job
        self._facts = facts
        self._srun: subprocess.Popen[bytes] | None = None
        self._pidfd: int | None = None
        self._argv: list[str] = []
        self._log_start = 0
        """What ``srun`` has printed begins here in its log."""

        self._join_until = 0.0
        """In monotonic seconds."""

        self._parent = str(plan.compute.get("scratch") or "")
        self._left_behind: set[str] = set()
        """Hosts whose agents were lost."""

    def start(self, port: int, secret: str) -> AgentProcesses:
        self._end_srun()
        self._facts.forget()
        self._left_behind.clear()
        for name in os.listdir(self._folder.system_logs):
            if name.endswith(".failed"):
                os.unlink(os.path.join(self._folder.system_logs, name))
        token = os.urandom(4).hex()
        address = messages.SupervisorAddress(
            *channel.identify_package(),
            token,
            self._addresses(),
            port,
            secret,
            scratch=self._parent,
            wants_memory=self._plan.launcher is not None,
            host_variable="SLURMD_NODENAME",
            ended_by=STEPD,
        )
        self._folder.write(self._folder.agents, json.dumps(address._asdict()))
        self._argv = self._command(token)
        self._join_until = time.monotonic() + self.join_timeout_s
        starter = self._start_srun(self._argv)
        # While the agents start; a signal leaves less time for it.
        with self._job.within(_SETTINGS_S):
            self._job.read_settings()
        return AgentProcesses({}, starter)

    def start_again(self) -> int | None:
        nodes = range(len(self._plan.nodes))
        is_early = not any(map(self._facts.host, nodes)) and time.monotonic() < self._join_until
        if (
            not is_early
            or self.find_failed()
            or not _PASSING.search(self._read_log("srun.log", self._log_start))
        ):
            return None
        self._end_srun()
        return self._start_srun(["/bin/sh", "-c", 'sleep "$0"; exec "$@"', str(_PAUSE_S), *self._argv])

    def _start_srun(self, argv: list[str]) -> int:
        """Return the descriptor of the process. Raises EngineError."""
        log = os.open(
            os.path.join(self._folder.system_logs, "srun.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600
        )
        self._log_start = os.fstat(log).st_size
        try:
            self._srun = subprocess.Popen(  # noqa: S603 - Slurm's own command
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=make_srun_environment(),
                # srun gives the ranks its own limits.
                preexec_fn=kernel.find_core_undoing(),  # noqa: PLW1509 - a supervisor has one thread
            )
        except OSError as error:
            raise EngineError(f"srun could not be started: {error.strerror or error}") from error
        finally:
            os.close(log)
        self._pidfd = os.pidfd_open(self._srun.pid)
        return self._pidfd

    def _command(self, token: str) -> list[str]:
        count = str(len(self._plan.nodes))
        logs = self._folder.system_logs.replace("%", "%%")
        program = [options.interpreter_of(self._plan), "-P", "-m", "drumline.node", "join"]
        return [
            _srun(),
            f"--nodes={count}",
            f"--ntasks={count}",
            "--ntasks-per-node=1",
            f"--cpus-per-task={os.environ.get('SLURM_CPUS_PER_TASK') or options.cores_of(self._plan)}",
            "--cpu-bind=none",
            "--overlap",
            "--mem=0",
            "--mpi=none",
            "--kill-on-bad-exit=0",
            "--wait=0",
            "--no-kill",
            "--unbuffered",
            "--input=none",
            "--export=ALL",
            "--job-name=agents",
            # To a file by the node's own daemon: no pipe that could be full.
            f"--output={logs}/node-%t.log",
            "--open-mode=append",
            *program,
            self._folder.path,
            token,
            "SLURM_PROCID",
        ]

    def _addresses(self) -> list[str]:
        wanted = str(self._plan.compute.get("interface") or "")
        found = sorted(interfaces.list_interfaces(), key=lambda one: (one["name"] != wanted, one["virtual"]))
        addresses = [str(one["address"]) for one in found]
        # By which Slurm itself reaches this node: on the network of its own that is sure to work.
        known = os.environ.get("SLURM_LAUNCH_NODE_IPADDR", "")
        return list(dict.fromkeys(filter(None, [*addresses, known, "127.0.0.1"])))

    def find_failed(self) -> dict[int, str]:
        found = {}
        with contextlib.suppress(OSError):
            for name in os.listdir(self._folder.system_logs):
                node = re.fullmatch(r"node-(\d+)\.failed", name)
                if node:
                    path = os.path.join(self._folder.system_logs, name)
                    with open(path, encoding="utf-8", errors="replace") as file:
                        error = file.read(1000).strip() or self._find_error(int(node[1]))
                    found[int(node[1])] = f"did not start: {error}"
        return found

    def explain_missing(self, node: int) -> str | None:
        return self.explain_loss(node)

    def explain_loss(self, node: int) -> str:
        host = self._facts.host(node)
        fault = self._job.describe_fault(node, host)
        if host and not fault:
            self._left_behind.add(host)
        if fault:
            return f"was lost: Slurm says that its node is {fault}"
        if host:
            return "closed its connection"
        error = self._find_error(node)
        return f"did not start: {error}" if error else "did not start"

    def _find_error(self, node: int) -> str:
        """Return the last line about an error, or the last line at all, that the agent or srun printed."""
        for name in (f"node-{node}.log", "srun.log"):
            lines = [line.strip() for line in self._read_log(name).splitlines() if line.strip()]
            errors = [line for line in lines if "error" in line.lower()] or lines
            if errors:
                return errors[-1][:200]
        return ""

    def _read_log(self, name: str, start: int = 0) -> str:
        """Return the end of a log of the system, of what comes after its first ``start`` bytes."""
        path = os.path.join(self._folder.system_logs, name)
        with contextlib.suppress(OSError), open(path, "rb") as file:
            file.seek(max(start, os.fstat(file.fileno()).st_size - 4096))
            return file.read().decode(errors="replace")
        return ""

    def clear(self) -> None:
        self._end_srun()
        self._sweep()
        with contextlib.suppress(OSError):
            os.unlink(self._folder.agents)

    def _sweep(self) -> None:
        """Remove the folders of killed agents; on a node that is down, its next agent removes them."""
        hosts, self._left_behind = self._left_behind, set()
        if not hosts:
            return
        count, names = str(len(hosts)), ",".join(sorted(hosts))
        program = [options.interpreter_of(self._plan), "-P", "-m", "drumline.node", "sweep", self._parent]
        options_ = [
            f"--nodes={count}",
            f"--ntasks={count}",
            f"--nodelist={names}",
            "--overlap",
            "--mem=0",
            "--mpi=none",
        ]
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(  # noqa: S603 - Slurm's own command, no shell
                [_srun(), *options_, "--input=none", "--output=none", "--error=none", *program],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                check=False,
                timeout=MARGIN_S,
                env=make_srun_environment(),
            )

    def _end_srun(self) -> None:
        """End ``srun`` after its agents: a step of Slurm's with a lost node would wait for that node."""
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None
        srun, self._srun = self._srun, None
        if srun is None:
            return
        try:
            srun.wait(MARGIN_S)
        except subprocess.TimeoutExpired:
            srun.send_signal(signal.SIGTERM)
            try:
                srun.wait(MARGIN_S)
            except subprocess.TimeoutExpired:
                srun.kill()
                srun.wait()


def _srun() -> str:
    return shutil.which("srun") or "srun"


def make_srun_environment() -> dict[str, str]:
    """Return this environment without the variables that would override options of the ``srun`` command."""
    odd = re.compile(
        r"SLURM_(MEM_PER_\w+|EXPORT_ENV|NTASKS\w*|NPROCS|TASKS_PER_NODE|CPU_BIND\w*|MEM_BIND\w*|DISTRIBUTION|OVERLAP"
        r"|EXCLUSIVE|EXACT|WHOLE|STDOUTMODE|STDERRMODE|OPEN_MODE|TASK_EPILOG|TASK_PROLOG|MPI_TYPE|KILL_BAD_EXIT|WAIT"
        r"|NO_KILL|LABELIO|UNBUFFEREDIO|GTIDS|THREADS_PER_CORE|HINT)"
    )
    return {name: value for name, value in os.environ.items() if not odd.fullmatch(name)}
