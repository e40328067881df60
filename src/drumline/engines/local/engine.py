"""The local engine: shapes of the nodes this machine plays, and the start of a job's supervisor."""

from __future__ import annotations

import sys
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from drumline.contract import process_identity
from drumline.contract.errors import EngineError, NotFoundError, UsageError
from drumline.contract.events import AgentJoined
from drumline.contract.plan import NodeShape
from drumline.engines.local import resources

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from drumline.contract.folder import RunFolder
    from drumline.contract.installed_mpi import Mpi
    from drumline.contract.outcome import Outcome, RankOutcome
    from drumline.contract.plan import Plan
    from drumline.engines.base import ClusterNode, Nodes


class LocalEngine:
    name = "local"
    shares_machine = True

    def shapes(
        self, node_count: int, compute: Mapping[str, Any] = MappingProxyType({}), instance_type: str = ""
    ) -> list[NodeShape]:
        gpu_numbers = tuple(range(len(resources.gpus())))
        gpu_split = resources.split(gpu_numbers, node_count) if gpu_numbers else [()] * node_count
        if compute.get("isolation") or compute.get("nodes"):
            from drumline.engines.local.isolation import needs

            needs.check_count(node_count, compute)
            if compute.get("cpus"):
                return needs.shape_nodes(compute, [len(gpus) for gpus in gpu_split])
        core_split = resources.split(resources.cores(), node_count)
        return [NodeShape(cores, len(gpus)) for cores, gpus in zip(core_split, gpu_split, strict=True)]

    def list_reached(self, compute: Mapping[str, Any]) -> None:
        return None

    def mpi(self, search_path: str) -> Mpi | None:
        return resources.mpi_on(search_path)

    def warnings(self, plan: Plan) -> list[str]:
        if not plan.compute.get("isolation"):
            return []
        from drumline.engines.local.isolation import needs

        return needs.check_plan(plan)

    def render(self, plan: Plan, folder: RunFolder) -> str:
        return ""

    def submit(self, folder: RunFolder, start: Callable[[str, str], None] | None, secrets: str = "") -> None:
        if start is None:
            self._spawn(folder, secrets)
        else:
            start(folder.path, secrets)

    def _spawn(self, folder: RunFolder, secrets: str) -> None:
        """Start the supervisor for a process that is not ours to fork: it has threads, CUDA, a notebook."""
        import subprocess

        from drumline.linux import kernel
        from drumline.linux.notebook_environment import restore_environment

        argv = [sys.executable, "-P", "-m", "drumline.supervisor", folder.path]
        done = subprocess.run(  # noqa: S603
            argv,
            input=secrets,
            capture_output=True,
            text=True,
            check=False,
            env=restore_environment(),
            preexec_fn=kernel.find_core_undoing(),  # of drivers alone, which have one thread
        )
        if done.returncode and folder.read_json(folder.supervisor) is None:
            raise EngineError(f"the supervisor of job {folder.name} did not start: {done.stderr.strip()}")

    def claim(self, folder: RunFolder) -> str:
        return ""

    def nodes(self, plan: Plan, folder: RunFolder) -> Nodes:
        from drumline.engines.base import Nodes
        from drumline.engines.local.agents import LocalAgents, LocalFacts
        from drumline.engines.local.queue import LocalAllocation, LocalPreemption

        allocation = LocalAllocation(plan, folder)
        if plan.compute.get("isolation"):
            from drumline.engines.local.isolation.isolated_agents import make_nodes

            return make_nodes(plan, folder, allocation)
        return Nodes(allocation, LocalAgents(plan, folder), LocalFacts(plan, allocation), LocalPreemption())

    def run_beside(
        self, folder: RunFolder, outcome: Outcome, label: str, rank: RankOutcome, words: Sequence[str]
    ) -> int:
        agent = _open_agent(folder, rank.node)
        from drumline.node import entering

        command = entering.make_command(folder.path, label, rank.pid or 0, words)
        return entering.run_beside(command, label, agent)

    def view_job(self, folder: RunFolder, *, may_withdraw: bool = False) -> None:
        return None

    def withdraw(self, folder: RunFolder) -> None:
        """Do nothing: the job's supervisor waits in the queue, and sees the request."""

    def describe_job(self, folder: RunFolder, *, brief: bool = False) -> dict[str, Any]:
        return {}

    def is_here(self) -> bool:
        return True

    def check(self, compute: Mapping[str, Any]) -> list[str]:
        if not compute.get("isolation"):
            return []
        from drumline.engines.local.isolation import needs

        return needs.check_compute(compute)

    def describe(self, compute: Mapping[str, Any]) -> dict[str, Any]:
        return {"cores": len(resources.cores()), "gpus": len(resources.gpus())}

    def list_nodes(self, compute: Mapping[str, Any]) -> list[ClusterNode]:
        from drumline.engines.local.isolation import needs

        return needs.list_nodes(compute)


def _open_agent(folder: RunFolder, node: int) -> int:
    who = None
    for event in folder.read_events():
        if isinstance(event, AgentJoined) and event.node == node:
            who = event.who
    if who and not process_identity.is_ours_to_judge(who):
        raise UsageError(f"job {folder.name} runs on another machine", "run the command there")
    agent = process_identity.open_pidfd(who)
    if agent is None:
        raise NotFoundError(f"the agent of node {node} has ended")
    return agent


ENGINE = LocalEngine()
