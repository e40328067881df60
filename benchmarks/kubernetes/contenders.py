"""How each contender submits a job to Kubernetes, and where it leaves the times of that."""

import json
import re
import shutil
import ssl
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any, NamedTuple, Protocol

RANK = Path(__file__).resolve().parent / "rank.py"
NODES, PROCS = 2, 2
COMMAND_S = 120.0
LABEL = "bench"


class Times(NamedTuple):
    """Seconds since 1970, of the first and the second attempt."""

    first_line: float
    failed: float
    """When the rank that fails said so."""

    restarted: float
    """When a rank of the second attempt printed its first line."""


class Cluster:
    """The API server, asked without any client."""

    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig
        config = json.loads(kubeconfig.read_text())
        (cluster,), (user,) = config["clusters"], config["users"]
        self._server = cluster["cluster"]["server"]
        self._token = user["user"]["token"]
        self._context = ssl.create_default_context(cafile=cluster["cluster"]["certificate-authority"])

    def ask(self, method: str, path: str, body: Any = None) -> bytes:
        """Raises OSError."""
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(self._server + path, data, headers, method=method)
        with urllib.request.urlopen(asked, context=self._context, timeout=COMMAND_S) as answer:
            content: bytes = answer.read()
        return content

    def names(self, plural: str, labels: str = "") -> list[str]:
        group = "/apis/batch/v1" if plural == "jobs" else "/api/v1"
        found = json.loads(self.ask("GET", f"{group}/namespaces/default/{plural}?labelSelector={labels}"))
        return [item["metadata"]["name"] for item in found["items"]]


class Contender(Protocol):
    name: str

    def submit(self, cluster: Cluster, folder: Path, variables: dict[str, str]) -> None:
        """Returns when Kubernetes has the job. Raises RuntimeError."""

    def times(self, cluster: Cluster, folder: Path) -> Times | None:
        """None while the job has not ended. Raises RuntimeError for one that did not do what was asked."""

    def clear(self, cluster: Cluster) -> None:
        """Have nothing be left of it, which may take a moment."""


class Torchrun:
    """A Job for each node and a headless Service, as people write them; torchrun in each pod starts the ranks again."""

    def __init__(self) -> None:
        self._kubectl = shutil.which("kubectl") or ""
        self.name = ("kubectl apply" if self._kubectl else "POST") + " + torchrun"

    def _manifests(self) -> list[dict[str, Any]]:
        selector = {LABEL: "0"}
        spec = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": selector}
        service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": LABEL}, "spec": spec}
        return [service, *(self._job(node) for node in range(NODES))]

    def _job(self, node: int) -> dict[str, Any]:
        command = [
            str(Path(sys.executable).parent / "torchrun"),
            f"--nnodes={NODES}",
            f"--nproc-per-node={PROCS}",
            "--max-restarts=1",
            "--rdzv-backend=c10d",
            f"--rdzv-endpoint={LABEL}.default.svc:29500",
            f"--rdzv-conf=is_host={int(node == 0)}",
            "--rdzv-id=bench",
            str(RANK),
        ]
        resources = {"requests": {"cpu": str(PROCS)}}
        variables = [{"name": "OMP_NUM_THREADS", "value": "1"}]
        container = {
            "name": "node",
            "image": "none",
            "command": command,
            "env": variables,
            "resources": resources,
        }
        pod = {"restartPolicy": "Never", "containers": [container]}
        labels = {LABEL: str(node)}
        template = {"metadata": {"labels": labels}, "spec": pod}
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": f"{LABEL}-{node}", "labels": {LABEL: str(node)}},
            "spec": {"backoffLimit": 0, "template": template},
        }

    def submit(self, cluster: Cluster, folder: Path, variables: dict[str, str]) -> None:
        if self._kubectl:
            path = folder / "job.json"
            path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": self._manifests()}))
            words = [self._kubectl, "--kubeconfig", str(cluster.kubeconfig), "apply", "-f", str(path)]
            run(words, folder, variables)
            return
        for thing in self._manifests():
            group = "/apis/batch/v1" if thing["kind"] == "Job" else "/api/v1"
            cluster.ask("POST", f"{group}/namespaces/default/{thing['kind'].lower()}s", thing)

    def times(self, cluster: Cluster, folder: Path) -> Times | None:
        states = json.loads(cluster.ask("GET", f"/api/v1/namespaces/default/pods?labelSelector={LABEL}"))[
            "items"
        ]
        phases = [pod["status"].get("phase") for pod in states]
        if "Failed" in phases:
            raise RuntimeError(f"{self.name}: a pod failed")
        if phases != ["Succeeded"] * NODES:
            return None
        texts = [
            cluster.ask("GET", f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}/log").decode()
            for pod in states
        ]
        return read_times(self.name, "\n".join(texts))

    def clear(self, cluster: Cluster) -> None:
        rest = {"propagationPolicy": "Foreground"}
        for name in cluster.names("jobs", LABEL):
            cluster.ask("DELETE", f"/apis/batch/v1/namespaces/default/jobs/{name}", rest)
        if LABEL in cluster.names("services"):
            cluster.ask("DELETE", f"/api/v1/namespaces/default/services/{LABEL}")


class Drumline:
    """The same ranks as a job file of Azure ML."""

    name = "Drumline"

    def submit(self, cluster: Cluster, folder: Path, variables: dict[str, str]) -> None:
        computes = folder / "home" / "computes"
        computes.mkdir(parents=True)
        compute = {
            "name": "bench",
            "type": "kubernetes",
            "kubeconfig": str(cluster.kubeconfig),
            "image": "none",
        }
        (computes / "bench.yml").write_text(json.dumps({**compute, "python": sys.executable}))
        job = {
            "name": "bench",
            "command": f"{sys.executable} {RANK}",
            "compute": "azureml:bench",
            "distribution": {"type": "pytorch", "process_count_per_instance": PROCS},
            "resources": {"instance_count": NODES},
            "environment_variables": {"OMP_NUM_THREADS": "1"},
            "drumline": {"max_restarts": 1},
        }
        (folder / "job.yml").write_text(json.dumps(job))
        words = [str(Path(sys.executable).parent / "drumline"), "job", "create", "-f", "job.yml"]
        run(words, folder, {**variables, "DRUMLINE_HOME": str(folder / "home")})

    def times(self, cluster: Cluster, folder: Path) -> Times | None:
        place = folder / "home" / "jobs" / "bench"
        end = json.loads((place / "events.jsonl").read_text().splitlines()[-1])
        if end["type"] != "JobEnded":
            return None
        if end["status"] != "Completed":
            raise RuntimeError(f"{self.name}: {end['status']}: {end['reason']}")
        logs = (place / "user_logs").rglob("std_log*.txt")
        return read_times(self.name, "\n".join(log.read_text() for log in logs))

    def clear(self, cluster: Cluster) -> None:
        """Its courier removes everything."""


def read_times(name: str, text: str) -> Times:
    """Raises RuntimeError where not every rank ran twice."""
    began = sorted(float(moment) for moment in re.findall(r"\bbegan ([0-9.]+)", text))
    failed = [float(moment) for moment in re.findall(r"\bfailed ([0-9.]+)", text)]
    if (len(began), len(failed)) != (2 * NODES * PROCS, 1):
        raise RuntimeError(f"{name}: {len(began)} ranks began and {len(failed)} failed")
    return Times(began[0], failed[0], min(moment for moment in began if moment > failed[0]))


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
        raise RuntimeError(f"{' '.join(argv[:3])}: exit code {done.returncode}: {done.stderr.strip()[-300:]}")


TORCHRUN, DRUMLINE = Torchrun(), Drumline()
CONTENDERS: list[Contender] = [TORCHRUN, DRUMLINE]
