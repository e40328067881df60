"""The Kubernetes engine: makes the objects of a job; its courier does the rest."""

from __future__ import annotations

import secrets as randomness
from typing import TYPE_CHECKING, Any

from drumline.contract import installed_mpi
from drumline.contract.errors import EngineError, NotFoundError
from drumline.contract.plan import NodeShape, Plan
from drumline.engines.base import JobView
from drumline.engines.kubernetes import access, bundle, cluster_view, manifests, pods

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from drumline.contract.folder import RunFolder
    from drumline.contract.outcome import Outcome, RankOutcome
    from drumline.engines.base import ClusterNode, Nodes
    from drumline.engines.kubernetes.client import Api


def _client() -> Any:
    """Return the module that asks the API server: in pods, which load this engine too, its library is missing."""
    from drumline.engines.kubernetes import client

    return client


class KubernetesEngine:
    name = "kubernetes"
    shares_machine = False

    def shapes(self, node_count: int, compute: Mapping[str, Any], instance_type: str = "") -> list[NodeShape]:
        gpus, cores = int(compute.get("gpus_per_node") or 0), int(compute.get("cores_per_node") or 0)
        return [NodeShape((), gpus, cores)] * node_count

    def list_reached(self, compute: Mapping[str, Any]) -> tuple[str, ...]:
        return tuple(str(volume["path"]) for volume in compute.get("volumes") or ())

    def mpi(self, search_path: str) -> installed_mpi.Mpi | None:
        """Return that it is the image's: which one it is, the pods find out."""
        return installed_mpi.Mpi(installed_mpi.IMAGE_MPI, 0, 0, "mpirun")

    def warnings(self, plan: Plan) -> list[str]:
        return bundle.list_warnings(plan)

    def render(self, plan: Plan, folder: RunFolder) -> str:
        return manifests.render(plan, folder)

    def submit(self, folder: RunFolder, start: Callable[[str, str], None] | None, secrets: str = "") -> None:
        """
        Make the objects, and return when Kubernetes has all of them. The one that owns the others starts last, so that
        a submission that was killed has started nothing; one that is made again completes it.
        """
        from drumline.engines.kubernetes import courier, submission

        plan = Plan.read(folder.plan)

        data = bundle.make_bundle(plan, folder, secrets)
        before = cluster_view.read_place(folder)
        at = {key: before[key] for key in ("kubeconfig", "context") if key in before}
        mark = before.get("submission") or randomness.token_hex(8)
        place = {
            **(at or _client().find_place(plan.compute)),
            "name": manifests.name_of(plan, folder),
            "submission": mark,
        }
        cluster_view.write_place(folder, place)
        courier.forget_end(folder)

        def make(api: Api) -> manifests.Objects:
            way = manifests.choose(plan.compute, api.groups())
            made = manifests.make_objects(plan, folder, data, way, mark)
            cluster_view.write_nodes(folder, made.nodes)
            return made

        try:
            uid = submission.send_patiently(lambda: _client().open_api({**plan.compute, **place}), make)
        except _client().ApiSilentError:
            # Some of it may have arrived: the courier removes that when the server answers.
            cluster_view.write_place(folder, place, withdrawn="yes")
            courier.ensure(folder)
            raise
        cluster_view.write_place(folder, place, sent="yes")
        cluster_view.write_engine(folder, place["name"], uid)
        courier.ensure(folder)

    def claim(self, folder: RunFolder) -> str:
        return ""

    def nodes(self, plan: Plan, folder: RunFolder) -> Nodes:
        from drumline.engines.kubernetes.pod import supervisor_pod

        return supervisor_pod.make_nodes(plan)

    def run_beside(
        self, folder: RunFolder, outcome: Outcome, label: str, rank: RankOutcome, words: Sequence[str]
    ) -> int:
        raise NotFoundError(
            "job exec does not reach pods yet", "kubectl exec -it POD -- bash does; job show names the pods"
        )

    def view_job(self, folder: RunFolder, *, may_withdraw: bool = False) -> JobView:
        """Return what the job's courier has last seen, and start one where none is. Never raises."""
        from drumline.engines.kubernetes import courier

        known = cluster_view.read(folder)
        if known.state == "gone":
            return known
        if not cluster_view.was_sent(folder):
            known = JobView("unknown", "Kubernetes does not have all of its objects yet")
        try:
            if may_withdraw:
                courier.ensure(folder)
        except OSError as error:
            return JobView("unknown", f"Kubernetes cannot be asked from here: {error.strerror or error}")
        return known

    def withdraw(self, folder: RunFolder) -> None:
        """Have the courier see the request. Raises EngineError."""
        from drumline.engines.kubernetes import courier

        try:
            courier.ensure(folder)
        except OSError as error:
            raise EngineError(f"Kubernetes cannot be asked from here: {error.strerror or error}") from error

    def describe_job(self, folder: RunFolder, *, brief: bool = False) -> dict[str, Any]:
        """Return what Kubernetes calls the job."""
        try:
            plan = Plan.read(folder.plan)
        except (OSError, ValueError):
            return {}
        name = cluster_view.read_place(folder).get("name") or manifests.name_of(plan, folder)
        return {
            "namespace": plan.compute.get("namespace") or "default",
            "supervisor": name,
            "nodes": f"{name}-nodes",
        }

    # Computes.

    def is_here(self) -> bool:
        try:
            _client().open_api({}).close()
        except EngineError:
            return False
        return True

    def check(self, compute: Mapping[str, Any]) -> list[str]:
        """List what stands in the way of jobs on this compute, seen from this machine; empty: nothing."""
        try:
            with _client().open_api(compute) as api:
                api.list("Pod", {manifests.JOB_LABEL: "none"})
        except EngineError as error:
            return [error.message]
        return []

    def describe(self, compute: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the server says of itself. Raises EngineError."""
        with _client().open_api(compute) as api:
            return {"version": api.version(), "server": api.server, "namespace": api.namespace}

    def list_nodes(self, compute: Mapping[str, Any]) -> list[ClusterNode]:
        """
        List the nodes of the cluster, and what is free where the user may see all pods. Raises EngineError, as where
        the user may not see nodes.
        """
        gpu = manifests.gpu_resource(compute)
        with _client().open_api(compute) as api:
            found = api.list("Node")
            try:
                taken = pods.sum_requests(
                    [
                        *api.list(access.EVERY_POD, fields={"status.phase": "Pending"}),
                        *api.list(access.EVERY_POD, fields={"status.phase": "Running"}),
                    ]
                )
            except _client().ApiRefusedError as error:
                if error.status != 403:
                    raise
                taken = None
            return [pods.describe_node(node, gpu, taken) for node in found]


ENGINE = KubernetesEngine()
