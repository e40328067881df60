"""The state of a job as its courier has last seen it, in a file of the run folder: readers need no API."""

from __future__ import annotations

import contextlib
import json
import os
import time
from typing import TYPE_CHECKING, Any, Literal, cast

from drumline.contract import events as e
from drumline.contract.errors import EngineError
from drumline.contract.folder import write_once, write_whole
from drumline.engines.base import JobView
from drumline.engines.kubernetes import manifests, pods

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from drumline.contract.folder import RunFolder
    from drumline.engines.kubernetes.access import Manifest
    from drumline.engines.kubernetes.client import Api
    from drumline.engines.kubernetes.receiver import PodLogs

_ASK_AGAIN_S = 3.0
_PLACE_FILE = "kubernetes-place.json"
_NODES_FILE = "kubernetes-nodes.json"


class Warnings:
    """The cluster's warnings of the objects of a job that make it wait, asked for now and then."""

    def __init__(self) -> None:
        self._known: list[Manifest] = []
        self._asked = time.monotonic()

    def ask(self, api: Api, suspects: Sequence[str]) -> list[Manifest]:
        """Return the warnings; none while things may just take their time. Raises nothing: a job needs none of them."""
        if not suspects:
            self._known, self._asked = [], time.monotonic()
        elif time.monotonic() - self._asked > _ASK_AGAIN_S:
            self._asked = time.monotonic()
            self._known = []
            for name in suspects:
                fields = {"involvedObject.name": name, "type": "Warning"}
                with contextlib.suppress(EngineError):
                    self._known += api.list("Event", fields=fields)
        return self._known


class PodReasons:
    """The reasons why the pods of a job wait or have ended, with what to do."""

    def __init__(self, logs: PodLogs, compute: Mapping[str, Any]) -> None:
        self._logs = logs
        self._compute = compute
        self._pull_errors: dict[str, Mapping[str, Any]] = {}
        """Pods by name, as they were when their image could not be had: that says why."""

        self._warned: set[str] = set()
        """Pods whose end was told."""

    def explain(self, pod: Mapping[str, Any]) -> str:
        """Return why a pod waits or has ended; empty: it runs, or is about to."""
        name = str(pod["metadata"].get("name"))
        waits = pods.why_waits(pod)
        if waits.startswith("ErrImagePull"):
            self._pull_errors[name] = pod
        elif waits.startswith("ImagePullBackOff"):
            # Until the next try most servers tell the name of the image alone.
            pod = self._pull_errors.get(name, pod)
        return pods.explain_pod(pod, self._logs.list_last_lines(name), self._compute)

    def warn_of_lost(self, folder: RunFolder, found: Sequence[Mapping[str, Any]]) -> None:
        """Append a warning for each node whose pod the cluster has ended: its supervisor knows its loss alone."""
        for pod in found:
            name = str(pod["metadata"]["name"])
            if (
                name in self._warned
                or pods.role_of(pod) != manifests.NODE
                or not pods.was_ended_by_cluster(pod)
            ):
                continue
            self._warned.add(name)
            host = pod.get("spec", {}).get("nodeName") or "a machine"
            text = f"the pod of a node, on {host}, was ended by Kubernetes: {self.explain(pod)}"
            if all(getattr(event, "text", "") != text for event in folder.read_events()):
                folder.append(e.JobWarned(time.time(), "pods", text))


def write_place(folder: RunFolder, place: Mapping[str, str], **news: str) -> None:
    """
    Write down where the job is: settings of a compute as ``client.find_place`` has them, and ``name`` of its objects.

    ``sent``: Kubernetes has all of them. ``withdrawn``: whatever it has of them is to go. Raises OSError.
    """
    write_whole(os.path.join(folder.path, _PLACE_FILE), json.dumps({**place, **news}))


def write_engine(folder: RunFolder, name: str, uid: str) -> None:
    """Write down that Kubernetes has the job, and as which: nobody submits it again. Raises OSError."""
    with contextlib.suppress(FileExistsError):
        write_once(folder.engine, json.dumps({"kubernetes_job": name, "uid": uid}))


def read_place(folder: RunFolder) -> dict[str, str]:
    """Return where the job is; nothing: where its compute says."""
    return folder.read_json(os.path.join(folder.path, _PLACE_FILE)) or {}


def write_nodes(folder: RunFolder, job: Mapping[str, Any]) -> None:
    """Keep the Job of the nodes as it was sent, from which its courier makes another. Raises OSError."""
    write_whole(os.path.join(folder.path, _NODES_FILE), json.dumps(job))


def read_nodes(folder: RunFolder) -> Manifest | None:
    """Return the Job of the nodes as it was sent; None: it was not kept."""
    return folder.read_json(os.path.join(folder.path, _NODES_FILE))


def was_sent(folder: RunFolder) -> bool:
    """Return whether Kubernetes had all objects of the job."""
    place = read_place(folder)
    return not place or bool(place.get("sent"))


def is_withdrawn(folder: RunFolder) -> bool:
    """Return whether the submission failed, and something of the job may be in the cluster."""
    return bool(read_place(folder).get("withdrawn"))


def _path(folder: RunFolder) -> str:
    return os.path.join(folder.path, "kubernetes.json")


def write(folder: RunFolder, state: str, reason: str, end: str = "", exit_code: int = 0) -> None:
    """Write the view down where it is news. Raises OSError."""
    news = {"state": state, "reason": reason, "status": end, "exit_code": exit_code}
    if folder.read_json(_path(folder)) != news:
        write_whole(_path(folder), json.dumps(news))
        path = os.path.join(folder.path, manifests.REASON_FILE)
        if state == "waits" or os.path.exists(path):
            # The supervisor has no rights in the cluster, and says this when it gives up.
            write_whole(path, reason.partition("; ")[2] if state == "waits" else "")


def forget(folder: RunFolder) -> None:
    """Remove the view, as before a job is made again of which a courier has seen the end. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_path(folder))


def read(folder: RunFolder) -> JobView:
    """Return the view; that the job waits, while nobody has looked."""
    known: dict[str, Any] = folder.read_json(_path(folder)) or {}
    state = cast('Literal["waits", "starts", "runs", "gone", "unknown"]', known.get("state") or "waits")
    reason = str(known.get("reason", "its pods are being made"))
    return JobView(state, reason, str(known.get("status") or ""), int(known.get("exit_code") or 0))
