"""
The API of Kubernetes, for the two processes that talk to it: the one that submits, and the job's courier.

lightkube reads kubeconfigs and speaks HTTP; objects stay plain dictionaries, so that no field is lost that its models
do not know.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, TypeVar

from drumline.engines.kubernetes import access
from drumline.engines.kubernetes.api import config
from drumline.engines.kubernetes.api.failures import (
    ApiRefusedError,
    GoneError,
    LogQuietError,
    ask_patiently,
    translate,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

T = TypeVar("T")

TIMEOUT_S = 20.0

QUIET_S = 20.0
"""
Without a byte of a log that is followed, before it is asked for again: its connection may be dead. Less than what pods
get for their last words.
"""

_MOST_IDLE = 20
"""Connections that are kept for the next question."""

_VERBS = {"create": "post"}
"""lightkube's names of verbs, where they differ from those of a Role."""


class Api:
    """The API server of a compute, in its namespace. It asks for what ``rights`` has alone. Raises EngineError."""

    def __init__(self, compute: Mapping[str, Any], rights: Mapping[str, access.Right] | None = None) -> None:
        try:
            import lightkube
        except ImportError as error:
            from drumline.contract.extras import install_line

            raise ApiRefusedError(
                "Kubernetes needs the package lightkube", install_line("kubernetes")
            ) from error
        self.namespace = str(compute.get("namespace") or "default")
        place = config.load(compute)
        self.server = str(place.cluster.server)
        with translate(self.server):
            self._client: Any = lightkube.Client(
                config=place,
                namespace=self.namespace,
                trust_env=False,
                transport=_make_transport(place),
            )
            self._http: Any = self._client._client._client
            if place.user.exec and not (place.user.token or place.user.token_file):
                from drumline.engines.kubernetes.api.plugin import PluginAuth

                self._http.auth = PluginAuth(place.user.exec)
        self._rights = rights or access.ALL
        self._kinds: dict[str, Any] = {}

    def __enter__(self) -> Api:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._client._client.close()

    def create(self, thing: Mapping[str, Any]) -> dict[str, Any]:
        """Create an object; return it as the server has it."""
        group = str(thing["apiVersion"]).rpartition("/")[0]
        kind = self._kind(f"PodGroup.{group}" if thing["kind"] == "PodGroup" else str(thing["kind"]))
        return self._ask(lambda: dict(self._client.create(kind(_plain(thing)))))

    def get(self, kind: str, name: str) -> dict[str, Any] | None:
        """Return an object; None where there is none."""
        wanted = self._kind(kind)
        try:
            return self._ask(lambda: dict(self._client.get(wanted, name)))
        except GoneError:
            return None

    def list(
        self, kind: str, labels: Mapping[str, str] | None = None, fields: Mapping[str, str] | None = None
    ) -> list[dict[str, Any]]:
        """List objects of the namespace, or those of none; with such labels and fields."""
        wanted = self._kind(kind)
        asked = {"labels": dict(labels or {}), "fields": dict(fields or {})}
        return self._ask(lambda: [dict(one) for one in self._client.list(wanted, **asked)])

    def patch(self, kind: str, name: str, change: Mapping[str, Any]) -> None:
        """Merge the change into an object."""
        from lightkube.types import PatchType

        wanted = self._kind(kind)
        self._ask(lambda: self._client.patch(wanted, name, dict(change), patch_type=PatchType.MERGE))

    def delete_job(self, name: str) -> None:
        """Delete a Job and all that it owns. No error where it is gone."""
        from lightkube.types import CascadeType

        kind = self._kind("Job")
        with contextlib.suppress(GoneError):
            self._ask(lambda: self._client.delete(kind, name, cascade=CascadeType.BACKGROUND))

    def follow_log(self, pod: str, since_s: int | None = None) -> Iterator[str]:
        """
        Yield the lines that a pod has printed, and those that it prints until it ends. ``since_s``: those of so many
        seconds alone. Raises LogQuietError where none comes for a while.
        """
        import httpx2

        assert "get" in self._rights["PodLog"].verbs
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod}/log"
        asked = {"follow": "true", **({"sinceSeconds": str(since_s)} if since_s else {})}
        timeout = httpx2.Timeout(TIMEOUT_S, read=QUIET_S)
        with translate(self.server):
            try:
                with self._http.stream("GET", path, params=asked, timeout=timeout) as answer:
                    if answer.is_error:
                        answer.read()
                    self._client._client.raise_for_status(answer)
                    yield from answer.iter_lines()
            except httpx2.ReadTimeout as error:
                raise LogQuietError(f"{pod} has said nothing for {QUIET_S:.0f} s") from error

    def version(self) -> str:
        """Return the version of the server, such as v1.30.1."""
        return self._ask(lambda: str(self._read("/version")["gitVersion"]))

    def groups(self) -> set[str]:
        """Return the groups of objects that the server has, such as kueue.x-k8s.io. Everybody may ask."""
        return self._ask(lambda: {str(one["name"]) for one in self._read("/apis")["groups"]})

    def _read(self, path: str) -> Any:
        answer = self._http.get(path, timeout=TIMEOUT_S)
        self._client._client.raise_for_status(answer)
        return answer.json()

    def _ask(self, question: Callable[[], T]) -> T:
        """Return the answer to a question that may be asked again. Raises EngineError."""

        def ask() -> T:
            with translate(self.server):
                return question()

        return ask_patiently(ask)

    def _kind(self, kind: str) -> Any:
        """Return lightkube's class of a kind: one of our own, whose objects are dictionaries."""
        if kind not in self._kinds:
            from lightkube import generic_resource

            right = self._rights[kind]
            root = generic_resource.GenericNamespacedResource
            if right.everywhere:
                root = generic_resource.GenericGlobalResource
            verbs = [_VERBS.get(verb, verb) for verb in right.verbs]
            name = kind.partition(".")[0]
            info = generic_resource.create_api_info(right.group, right.version, name, right.resource, verbs)
            self._kinds[kind] = type(name, (root,), {"_api_info": info})
        return self._kinds[kind]


def open_api(compute: Mapping[str, Any], rights: Mapping[str, access.Right] | None = None) -> Api:
    """Return the API of a compute; nothing is asked yet. Raises EngineError."""
    return Api(compute, rights)


def _make_transport(place: Any) -> Any:
    """Return lightkube's own transport to the server of a context, but with as many connections as are asked for."""
    import httpx2
    from lightkube.config.client_adapter import verify_cluster

    return httpx2.HTTPTransport(
        verify=verify_cluster(place.cluster, place.user, place.abs_file, trust_env=False),
        trust_env=False,
        # Each log that is followed holds one.
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=_MOST_IDLE),
    )


def _plain(thing: Mapping[str, Any]) -> dict[str, Any]:
    return dict(thing)
