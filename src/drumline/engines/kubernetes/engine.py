"""The Kubernetes engine: it knows clusters and the objects of jobs; no job runs there yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drumline.contract.errors import EngineError, NotSubmittedError
from drumline.contract.plan import NodeShape

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from drumline.contract.folder import RunFolder
    from drumline.contract.mpi import Mpi
    from drumline.contract.outcome import Outcome, RankOutcome
    from drumline.contract.plan import Plan
    from drumline.engines.base import JobView, Nodes

_NOT_YET = "jobs do not run on Kubernetes yet"


class KubernetesEngine:
    name = "kubernetes"
    shares_machine = False

    def shapes(self, node_count: int, compute: Mapping[str, Any], instance_type: str = "") -> list[NodeShape]:
        gpus, cores = int(compute.get("gpus_per_node") or 0), int(compute.get("cores_per_node") or 0)
        return [NodeShape((), gpus, cores)] * node_count

    def mpi(self, search_path: str) -> Mpi | None:
        """Return None: what the image has is not known here."""
        return None

    def warnings(self, plan: Plan) -> list[str]:
        return []

    def render(self, plan: Plan, folder: RunFolder) -> str:
        from drumline.engines.kubernetes import render

        return render.render(plan, folder)

    def submit(self, folder: RunFolder, start: Callable[[str, str], None] | None, secrets: str = "") -> None:
        """Refuse: the programs of the pods are not there yet. Raises NotSubmittedError."""
        raise NotSubmittedError(_NOT_YET, "drumline plan prints the objects that it will have")

    def claim(self, folder: RunFolder) -> str:
        return ""

    def nodes(self, plan: Plan, folder: RunFolder) -> Nodes:
        raise EngineError(_NOT_YET)

    def run_beside(
        self, folder: RunFolder, outcome: Outcome, label: str, rank: RankOutcome, words: Sequence[str]
    ) -> int:
        raise EngineError(_NOT_YET)

    def view_job(self, folder: RunFolder, *, may_withdraw: bool = False) -> JobView:
        """Return that the job is not there. Never raises."""
        from drumline.engines.base import JobView

        return JobView("unknown", _NOT_YET)

    def withdraw(self, folder: RunFolder) -> None:
        """Do nothing: no job is there."""

    def describe_job(self, folder: RunFolder, *, brief: bool = False) -> dict[str, Any]:
        return {}

    # Computes.

    def is_here(self) -> bool:
        from drumline.engines.kubernetes.client import open_api

        try:
            open_api({})
        except EngineError:
            return False
        return True

    def check(self, compute: Mapping[str, Any]) -> list[str]:
        """List what stands in the way of jobs on this compute, seen from this machine; empty: nothing."""
        from drumline.engines.kubernetes import objects
        from drumline.engines.kubernetes.client import open_api

        try:
            open_api(compute).list("Pod", {objects.JOB_LABEL: "none"})
        except EngineError as error:
            return [error.message]
        return []

    def describe(self, compute: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the server says of itself. Raises EngineError."""
        from drumline.engines.kubernetes.client import open_api

        api = open_api(compute)
        return {"version": api.version(), "server": api.server, "namespace": api.namespace}

    def list_nodes(self, compute: Mapping[str, Any]) -> list[dict[str, Any]]:
        """List the nodes of the cluster. Raises EngineError, as where the user may not see them."""
        from drumline.engines.kubernetes import cluster_nodes
        from drumline.engines.kubernetes.client import open_api

        gpu = str(compute.get("gpu_resource") or "nvidia.com/gpu")
        return [cluster_nodes.describe(node, gpu) for node in open_api(compute).list("Node")]


ENGINE = KubernetesEngine()
