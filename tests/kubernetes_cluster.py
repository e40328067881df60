"""A Kubernetes cluster of a test's own, made by scripts/kubernetes-cluster."""

import json
import os
import ssl
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

from slurm_cluster import Unavailable
from waiting import wait_until

_SCRIPT = Path(__file__).parent.parent / "scripts" / "kubernetes-cluster"
_UNAVAILABLE = 3
_COMMAND_S = 300.0


class KubernetesCluster:
    """Nodes e1, e2, ...; whoever makes one calls `down`."""

    def __init__(self, nodes: int = 3) -> None:
        """Raises Unavailable, or RuntimeError with what was printed."""
        self.nodes = tuple(f"e{number + 1}" for number in range(nodes))
        # Not below /tmp: a pod has one of its own.
        self.folder = Path(tempfile.mkdtemp(prefix="dlk-", dir="/var/tmp"))
        self.kubeconfig = self.folder / "kubeconfig"
        done = self._script("up", "--nodes", str(nodes))
        if done.returncode:
            self.down()
            if done.returncode == _UNAVAILABLE:
                raise Unavailable(done.stderr.strip())
            raise RuntimeError(done.stderr.strip())

    def cut(self, node: str) -> None:
        """The power goes: whatever ran there is gone, and nobody was told. ``apiserver``: that of the control plane."""
        self._do("cut", node)

    def revive(self, node: str) -> None:
        """The power comes back; pods may come again after a drain."""
        self._do("revive", node)

    def drain(self, node: str) -> None:
        """Its pods are evicted, and no others come."""
        self._do("drain", node)

    def api(self) -> Any:
        """The API server, as whoever may do all asks it."""
        from drumline.engines.kubernetes import access
        from drumline.engines.kubernetes.client import open_api

        verbs = ("create", "get", "list", "patch", "delete")
        known = {**access.RIGHTS, **access.OPTIONAL}
        rights = {kind: right._replace(verbs=verbs) for kind, right in known.items()}
        return open_api({"kubeconfig": str(self.kubeconfig)}, rights)

    def ask(self, method: str, path: str, body: object = None) -> None:
        """A request to the API server that jobs do not make."""
        config = json.loads(self.kubeconfig.read_text())
        cluster = config["clusters"][0]["cluster"]
        headers = {
            "Authorization": f"Bearer {config['users'][0]['user']['token']}",
            "Content-Type": "application/json",
        }
        data = None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(cluster["server"] + path, data, headers, method=method)
        context = ssl.create_default_context(cafile=cluster["certificate-authority"])
        handlers = urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        with urllib.request.build_opener(*handlers).open(asked, timeout=30) as answer:
            answer.read()

    def cordon(self, *, wanted: bool) -> None:
        """Have no pod be put on any node, or undo that."""
        with self.api() as api:
            for node in self.nodes:
                api.patch("Node", node, {"spec": {"unschedulable": wanted}})

    def list_objects(self) -> list[str]:
        """Jobs, Secrets, Services and pods of ours that are there, as KIND/NAME."""
        labels = {"app.kubernetes.io/name": "drumline"}
        with self.api() as api:
            return [
                f"{kind}/{one['metadata']['name']}"
                for kind in ("Job", "Secret", "Service", "Pod")
                for one in api.list(kind, labels)
            ]

    def wait_until_empty(self, timeout_s: float) -> None:
        """Nothing of a job is left. What stays is removed, so that the next test finds nothing. Raises TimeoutError."""
        try:
            wait_until(
                lambda: not self.list_objects(), timeout_s, "nothing of the job to be left in the cluster"
            )
        except TimeoutError:
            with self.api() as api:
                for kind, name in (one.split("/") for one in self.list_objects()):
                    if kind == "Job":
                        api.delete_job(name)
            raise

    def down(self) -> None:
        """Nothing is left."""
        self._do("down")
        self.folder.rmdir() if self.folder.exists() else None

    def _do(self, *words: str) -> None:
        done = self._script(*words)
        if done.returncode:
            raise RuntimeError(done.stderr.strip())

    def _script(self, verb: str, *words: str) -> subprocess.CompletedProcess[str]:
        environment = {name: value for name, value in os.environ.items() if name != "DRUMLINE_HOME"}
        # The pods' python is the one with the packages of the tests.
        environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
        return subprocess.run(
            [sys.executable, str(_SCRIPT), verb, "--dir", str(self.folder), *words],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_COMMAND_S,
            check=False,
        )
