"""
One attempt under a supervisor, with stub agents: prints times, CPU and memory as JSON.

    python supervise.py NODES PROCS END STUB_PROCESSES FOLDER

``END``: as of ``stub_agents.py``. Everything but the agents is the real thing: the plan, the loop, the policy, the
events, and Slurm's choice of a network. The checks of nodes before the ranks start are left out: stubs have no machine.
"""

import itertools
import json
import os
import resource
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from drumline.contract.channel import SILENCE_S
from drumline.contract.folder import RunFolder
from drumline.contract.plan import NodeShape, Plan
from drumline.engines.base import AgentProcesses, Nodes, SignalMeaning
from drumline.engines.slurm.batch_job import SlurmFacts
from drumline.plan.planner import Site, plan_job
from drumline.spec.jobs.command import command
from drumline.supervisor.attempt.loop import Loop
from drumline.supervisor.supervised_folder import EndRequests, SupervisedFolder

STUBS = str(Path(__file__).with_name("stub_agents.py"))
JOIN_TIMEOUT_S = {"silent": 5.0}


def make_plan(nodes: int, procs: int, folder: RunFolder) -> Plan:
    job = command(
        command="python train.py",
        instance_count=nodes,
        distribution={"type": "pytorch", "process_count_per_instance": procs},
    )
    site = Site(
        engine="slurm",
        shapes=(NodeShape(tuple(range(procs)), 0),) * nodes,
        folder=folder,
        interpreter=sys.executable,
        search_path="/usr/bin:/bin",
        mlflow_uri="file:///nowhere/mlruns",
    )
    return plan_job(job, site)


class StubNodes:
    """Starter of stub agents, in the place of an engine."""

    warm_pool = None
    silence_s = SILENCE_S

    def __init__(self, nodes: int, procs: int, end: str, processes: int, trigger: str) -> None:
        self.join_timeout_s = JOIN_TIMEOUT_S.get(end, 600.0)
        self._arguments = (str(procs), end, trigger)
        bounds = [nodes * part // processes for part in range(processes + 1)]
        self._shares = [pair for pair in itertools.pairwise(bounds) if pair[0] < pair[1]]
        self.stubs: list[subprocess.Popen[str]] = []

    def listen(self) -> socket.socket:
        return socket.create_server(("127.0.0.1", 0), backlog=4096)

    def start(self, port: int, secret: str) -> AgentProcesses:
        for first, last in self._shares:
            words = [sys.executable, STUBS, str(port), str(first), str(last), *self._arguments]
            stub = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            assert stub.stdin is not None
            stub.stdin.write(secret + "\n")
            stub.stdin.close()
            self.stubs.append(stub)
        return AgentProcesses({})

    def collect(self) -> list[dict[str, float]]:
        """Return what each process of stubs says of its times."""
        told = []
        for stub in self.stubs:
            assert stub.stdout is not None
            told.append(json.loads(stub.stdout.read()))
            stub.wait()
        return told

    def reap(self, node: int) -> str:
        return "ended"

    def end(self, node: int) -> None:
        pass

    def find_failed(self) -> dict[int, str]:
        return {}

    def find_cut_off(self) -> dict[int, str]:
        return {}

    def explain_missing(self, node: int) -> str:
        return f"did not answer within {self.join_timeout_s:g} s"

    def explain_loss(self, node: int) -> str:
        return "was lost"

    def clear(self) -> None:
        pass


class StubFacts(SlurmFacts):
    are_separate = False


class NoPreemption:
    def explain_signal(self, node: int | None, by: str) -> SignalMeaning:
        raise NotImplementedError

    def has_signaled_ranks(self) -> bool:
        return False


class TimedFolder(SupervisedFolder):
    """Notes when an event was first recorded, and pulls the trigger when all ranks run."""

    def __init__(self, path: str, trigger: str) -> None:
        super().__init__(path)
        self._trigger = trigger
        self.times: dict[str, float] = {}
        self.cpu: dict[str, float] = {}

    def append(self, event: Any) -> None:
        super().append(event)
        name = type(event).__name__
        if name not in self.times:
            self.times[name], self.cpu[name] = time.monotonic(), time.process_time()
            if name == "JobRunning":
                Path(self._trigger).touch()


def main() -> None:
    nodes, procs, end, processes = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    path = os.path.join(sys.argv[5], "job")
    trigger = os.path.join(sys.argv[5], "trigger")
    RunFolder(path).create()
    folder = TimedFolder(path, trigger)
    plan = make_plan(nodes, procs, folder)
    folder.write(folder.plan, plan.to_json())
    before = _peak_bytes()
    plan = Plan.read(folder.plan)
    stubs = StubNodes(nodes, procs, end, processes, trigger)
    wired: Any = Nodes(None, stubs, StubFacts(plan), NoPreemption())  # type: ignore[arg-type]
    begin = time.process_time()
    loop = Loop(folder, plan, wired, EndRequests(folder))
    began = time.monotonic()
    finish = loop.run()
    over, cpu_s = time.monotonic(), time.process_time() - begin
    told = stubs.collect()
    times, cpu = folder.times, folder.cpu
    hello = min(one["hello"] for one in told)
    launched = max((one["launched"] for one in told if "launched" in one), default=hello)
    ended = max((one["ended"] for one in told if "ended" in one), default=hello)
    closed = [one["closed"] for one in told if "closed" in one]
    print(
        json.dumps(
            {
                "nodes": nodes,
                "end": end,
                "reason": finish.reason[:200],
                "launch_s": launched - hello,
                "launch_cpu_s": cpu.get("JobRunning", 0.0) - begin,
                "cpu_s": cpu_s,
                "verdict_s": over - ended,
                "lost_s": times["NodeLost"] - closed[0] if closed else None,
                "stop_s": times.get("JobStopping", over) - (closed[0] if closed else hello),
                "late_s": times["JobFinalizing"] - began - JOIN_TIMEOUT_S["silent"]
                if end == "silent"
                else None,
                "peak_mb": _peak_bytes() / 1e6,
                "before_mb": before / 1e6,
                "sent_mb": sum(one["bytes"] for one in told) / 1e6,
                "events": Path(folder.events).read_bytes().count(b"\n"),
                "plan_mb": os.path.getsize(folder.plan) / 1e6,
            }
        )
    )


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main()
