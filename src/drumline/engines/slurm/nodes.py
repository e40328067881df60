"""The nodes of a job as its supervisor has them in the batch step: one ``srun`` starts the agents on them."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import EngineError
from drumline.engines import network as networks
from drumline.engines.base import TIME_LIMIT, Network, Taken
from drumline.engines.slurm import options, script, states
from drumline.engines.slurm.client import SilentError, Slurm
from drumline.node import interfaces

if TYPE_CHECKING:
    from collections.abc import Callable

    from drumline.contract.folder import RunFolder
    from drumline.contract.plan import Plan

_KILL_WAIT_S = 30.0
"""Between SIGTERM and SIGKILL of Slurm, where it does not say. Source: slurm.conf(5), KillWait."""

_MARGIN_S = 4.0
"""Of what Slurm leaves, for the ranks' end to be seen and written down."""

_SETTLED_S = 1.0

_NONE = ("None", "N/A", "Unknown", "(null)")

_STEPD = "slurmstepd"


class SlurmNodes:
    shares_machine = False
    listen_address = "0.0.0.0"  # noqa: S104 - by which address the others come is not known; a secret lets them in
    interface = ""
    keeper = ""
    join_timeout_s = 300.0

    def __init__(self, plan: Plan, folder: RunFolder) -> None:
        self._plan = plan
        self.replaces_lost = options.may_requeue(plan)
        self._folder = folder
        self._slurm = Slurm(str(plan.compute.get("slurm_conf") or ""))
        self._number = os.environ.get("SLURM_JOB_ID", "")
        self._restarts = int(os.environ.get("SLURM_RESTART_COUNT") or 0)
        self._srun: subprocess.Popen[bytes] | None = None
        self._pidfds: dict[int, int] = {}
        self._hellos: dict[int, dict[str, Any]] = {}
        self._config: dict[str, str] | None = None
        self._parent = str(plan.compute.get("scratch") or "")
        self._left_behind: set[str] = set()
        """Hosts whose agents were lost."""

        self._taken: Taken | None = None
        self._at_limit = False

    def wait(self, on_wait: Callable[[str], None], canceled: Callable[[], bool], wake: int) -> bool:
        """They are there: else this process would not be."""
        return not canceled()

    def start_agents(self, port: int, secret: str) -> None:
        self._end_srun()
        self._hellos.clear()
        self._left_behind.clear()
        for name in os.listdir(self._folder.system_logs):
            if name.endswith(".failed"):
                os.unlink(os.path.join(self._folder.system_logs, name))
        self._taken, self._at_limit = None, False
        token = os.urandom(4).hex()
        known = {
            "addresses": self._addresses(),
            "port": port,
            "secret": secret,
            "token": token,
            "scratch": self._parent,
            "memory": self._plan.launcher is not None,
            "host_variable": "SLURMD_NODENAME",
            "ended_by": _STEPD,
        }
        import json

        self._folder.write(self._folder.agents, json.dumps(known))
        argv = self._command(token)
        log = os.open(
            os.path.join(self._folder.system_logs, "srun.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600
        )
        try:
            self._srun = subprocess.Popen(  # noqa: S603 - Slurm's own command, no shell
                argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=_environment()
            )
        except OSError as error:
            raise EngineError(f"srun could not be started: {error.strerror or error}") from error
        finally:
            os.close(log)
        pidfd = os.pidfd_open(self._srun.pid)
        self._pidfds = {task.node: os.dup(pidfd) for task in self._plan.nodes}
        os.close(pidfd)

    def _command(self, token: str) -> list[str]:
        count = str(len(self._plan.nodes))
        logs = self._folder.system_logs.replace("%", "%%")
        program = [script.interpreter_of(self._plan), "-P", "-m", "drumline.node", "join"]
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
        found = sorted(interfaces.scan(), key=lambda one: (one["name"] != wanted, one["virtual"]))
        addresses = [str(one["address"]) for one in found]
        # By which Slurm itself reaches this node: on the network of its own that is sure to work.
        known = os.environ.get("SLURM_LAUNCH_NODE_IPADDR", "")
        return list(dict.fromkeys(filter(None, [*addresses, known, "127.0.0.1"])))

    def _setting(self, name: str) -> str:
        """Of Slurm; empty where it does not say."""
        if self._config is None:
            self._config = {}
            with contextlib.suppress(EngineError):
                self._config = self._slurm.config()
        return self._config.get(name, "")

    def address(self, node: int) -> str:
        return str(self._hellos[node]["address"])

    def gpus(self, node: int) -> str:
        """As Slurm has bound them for the agent."""
        return str(self._hellos[node]["gpus"])

    def agents(self) -> dict[int, int]:
        """All are srun's: when that ends without them, none is left to come."""
        return dict(self._pidfds)

    def ended(self, node: int) -> str:
        pidfd = self._pidfds.pop(node, None)
        if pidfd is not None:
            os.close(pidfd)
        return "ended"

    def has_told_ranks(self) -> bool:
        """
        By linuxproc alone: with pgid ranks are in sessions of their own, and cgroup sends what is no SIGKILL to what
        Slurm itself has started, which is the agent.
        """
        return self._taken is not None and self._setting("ProctrackType").endswith("linuxproc")

    def failed_to_join(self) -> dict[int, str]:
        found = {}
        with contextlib.suppress(OSError):
            for name in os.listdir(self._folder.system_logs):
                node = re.fullmatch(r"node-(\d+)\.failed", name)
                if node:
                    found[int(node[1])] = f"did not start: {self._said(int(node[1]))}"
        return found

    def gone(self, node: int) -> str:
        host = str(self._hellos.get(node, {}).get("host") or "")
        state = self._state_of(host or self._host_of(node))
        if host and not state:
            self._left_behind.add(host)
        if state:
            return f"was lost: Slurm says that its node is {state}"
        if host:
            return "closed its connection"
        said = self._said(node)
        return f"did not start: {said}" if said else "did not start"

    def _host_of(self, node: int) -> str:
        with contextlib.suppress(EngineError):
            names = [
                fields.get("NodeName", "")
                for fields in self._slurm.nodes(os.environ.get("SLURM_JOB_NODELIST", ""))
            ]
            return names[node] if node < len(names) else ""
        return ""

    def _state_of(self, host: str) -> str:
        """Of a node that does not work: ``DOWN (Not responding)``; else empty."""
        with contextlib.suppress(EngineError):
            for fields in self._slurm.nodes(host) if host else ():
                state = fields.get("State", "")
                if re.search(r"DOWN|FAIL|NOT_RESPONDING|REBOOT|POWER|\*", state):
                    reason = fields.get("Reason", "")
                    return state + (f" ({reason})" if reason not in ("", "none") else "")
        return ""

    def _said(self, node: int) -> str:
        """The last words of the agent, or of srun."""
        for name in (f"node-{node}.log", "srun.log"):
            path = os.path.join(self._folder.system_logs, name)
            with contextlib.suppress(OSError), open(path, "rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - 4096))
                lines = [
                    line.strip() for line in file.read().decode(errors="replace").splitlines() if line.strip()
                ]
                telling = [line for line in lines if "error" in line.lower()] or lines
                if telling:
                    return telling[-1][:200]
        return ""

    def end_agent(self, node: int) -> None:
        """It ends by itself when this process goes; Slurm ends it with the job at the latest."""

    def joined(self, node: int, hello: dict[str, Any]) -> None:
        self._hellos[node] = hello

    def network(self) -> Network | None:
        hellos = [self._hellos[task.node] for task in self._plan.nodes]
        return networks.choose(hellos, str(self._plan.compute.get("interface") or ""))

    def taken(self, node: int | None, by: str) -> Taken:
        """A signal from Slurm is for the whole job, and Slurm is asked what it means. Another's is for a node."""
        if by == TIME_LIMIT:
            self._at_limit = True
            return Taken("preemption", "Slurm, whose time limit is near", self._plan.grace_s)
        # All agents are told at once.
        if node is not None and self._taken is not None:
            return self._taken
        taken = self._meaning(node, by)
        if taken.kind != "node preemption":
            self._taken = taken
        return taken

    def _meaning(self, node: int | None, by: str) -> Taken:
        job = self._job_when_settled(node is None or _STEPD in by)
        kill_wait_s = _number(self._setting("KillWait"), _KILL_WAIT_S)
        grace_s = min(self._plan.grace_s, max(1.0, kill_wait_s - _MARGIN_S))
        state = job.get("JobState", "")
        down = self._down_nodes()
        lost = tuple(number for number, hello in self._hellos.items() if hello["host"] in down)
        since = f", since node {next(iter(down))} is {next(iter(down.values()))}" if down else ""
        if _number(job.get("Restarts"), 0) > self._restarts:
            how = since or " (requeue)"
            return Taken("preemption", f"Slurm, which starts it again{how}", grace_s, lost)
        if job.get("PreemptTime", "None") not in _NONE:
            return Taken(
                "preemption", "Slurm, for a job with a higher priority", self._notice_s(job, grace_s)
            )
        if state == "RUNNING" and node is not None and _STEPD not in by:
            return Taken("node preemption", by)
        if down:
            return Taken("preemption", f"Slurm{since}", grace_s, lost)
        if state == "TIMEOUT" or job.get("Reason") == "TimeLimit":
            self._at_limit = True
            return Taken("preemption", "Slurm, whose time limit has come", grace_s)
        if state in ("COMPLETING", "CANCELLED"):
            return Taken("cancel", "scancel", grace_s)
        if states.phase(state) == states.ENDED:
            return Taken("preemption", f"Slurm: {states.why_ended(state)}", grace_s)
        if node is None and state and not self.replaces_lost:
            return Taken("cancel", by, grace_s)
        # Slurm does not answer, or knows nothing of it: the machine may be about to go down.
        return Taken("preemption", "Slurm" if node is not None else by, grace_s)

    def _notice_s(self, job: dict[str, str], grace_s: float) -> float:
        """Of a preemption: GraceTime of the partition and KillWait, of which the former may be 0."""
        with contextlib.suppress(EngineError):
            fields = self._slurm.partition(job.get("Partition", "")) or {}
            notice_s = _number(fields.get("GraceTime"), 0)
            if notice_s:
                return min(self._plan.grace_s, max(1.0, notice_s + grace_s - 1))
        return grace_s

    def _down_nodes(self) -> dict[str, str]:
        """Name to state of those of the job's nodes that Slurm has given up."""
        with contextlib.suppress(EngineError):
            return {
                fields["NodeName"]: fields["State"]
                for fields in self._slurm.nodes(os.environ.get("SLURM_JOB_NODELIST", ""))
                if re.search(r"DOWN|FAIL", fields.get("State", ""))
            }
        return {}

    def _job_when_settled(self, is_by_slurm: bool) -> dict[str, str]:
        """Its processes are told a moment before the controller says of the job that it is about to end."""
        deadline = time.monotonic() + _SETTLED_S
        while True:
            job = self._job()
            settled = (
                job.get("JobState", "RUNNING") != "RUNNING" or job.get("PreemptTime", "None") not in _NONE
            )
            if settled or not is_by_slurm or time.monotonic() > deadline:
                return job
            time.sleep(0.05)

    def _job(self) -> dict[str, str]:
        with contextlib.suppress(EngineError):
            return self._slurm.job(self._number) or {}
        return {}

    def back_in_line(self, end_kind: str, *, progressed: bool) -> str:
        is_slurms = self._taken is not None or self._at_limit or end_kind == "node"
        if end_kind in ("failure", "hang", "node preemption"):
            return "here"
        if not is_slurms and not (end_kind == "preemption" and options.may_requeue(self._plan)):
            return "here"
        job = self._job()
        if _number(job.get("Restarts"), 0) > self._restarts:
            return "leave"
        if not options.may_requeue(self._plan) or job.get("Requeue") == "0":
            how = "job_tier: spot, drumline.max_restarts, or requeue of the compute, allows it"
            return f"Slurm does not start it again, for requeue is off ({how})"
        if self._at_limit and not progressed:
            return "it is not started again, for its ranks left nothing new"
        return self._requeue()

    def _requeue(self) -> str:
        """Slurm ends what runs of the job while it answers, the command that asks for it too."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM,))
        try:
            self._slurm.requeue(self._number)
        except SilentError:
            # Whoever looks later sees what became of that.
            return "leave"
        except EngineError as error:
            deadline = time.monotonic() + _SETTLED_S
            while _number(self._job().get("Restarts"), 0) <= self._restarts:
                if time.monotonic() > deadline:
                    return f"Slurm does not start it again: {error.message}"
                time.sleep(0.05)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return "leave"

    def release(self) -> None:
        self._end_srun()
        self._tidy()
        with contextlib.suppress(OSError):
            os.unlink(self._folder.agents)

    def _tidy(self) -> None:
        """The folders of agents that were killed; of those on a node that is down, its next agent knows."""
        hosts, self._left_behind = self._left_behind, set()
        if not hosts:
            return
        count, names = str(len(hosts)), ",".join(sorted(hosts))
        program = [script.interpreter_of(self._plan), "-P", "-m", "drumline.node", "sweep", self._parent]
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
                timeout=_MARGIN_S,
                env=_environment(),
            )

    def _end_srun(self) -> None:
        """Its agents have ended, or were lost: a step of Slurm's with a lost node would wait for that."""
        for pidfd in self._pidfds.values():
            os.close(pidfd)
        self._pidfds = {}
        srun, self._srun = self._srun, None
        if srun is None:
            return
        try:
            srun.wait(_MARGIN_S)
        except subprocess.TimeoutExpired:
            srun.send_signal(signal.SIGTERM)
            try:
                srun.wait(_MARGIN_S)
            except subprocess.TimeoutExpired:
                srun.kill()
                srun.wait()


def _srun() -> str:
    return shutil.which("srun") or "srun"


def _environment() -> dict[str, str]:
    """For srun: of the batch step's variables, those by which options would come to it that are given on its line."""
    odd = re.compile(
        r"SLURM_(MEM_PER_\w+|EXPORT_ENV|NTASKS\w*|NPROCS|TASKS_PER_NODE|CPU_BIND\w*|MEM_BIND\w*|DISTRIBUTION|OVERLAP"
        r"|EXCLUSIVE|EXACT|WHOLE|STDOUTMODE|STDERRMODE|OPEN_MODE|TASK_EPILOG|TASK_PROLOG|MPI_TYPE|KILL_BAD_EXIT|WAIT"
        r"|NO_KILL|LABELIO|UNBUFFEREDIO|GTIDS|THREADS_PER_CORE|HINT)"
    )
    return {name: value for name, value in os.environ.items() if not odd.fullmatch(name)}


def _number(text: str | None, otherwise: float) -> float:
    """``30 sec``, ``00:00:30``, ``1-00:00:00`` or ``30``."""
    found = re.match(r"(?:(\d+)-)?((?:\d+:)*\d+)", text or "")
    if not found:
        return otherwise
    total = 0
    for part in found[2].split(":"):
        total = total * 60 + int(part)
    return float(total + 86400 * int(found[1] or 0))
