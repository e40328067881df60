"""
The API of Kubernetes, for the two processes that talk to it: the one that submits, and the job's courier.

lightkube reads kubeconfigs, runs their credential plugins and speaks HTTP; objects stay plain dictionaries, so that no
field is lost that its models do not know.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import EngineError, NotSubmittedError
from drumline.engines.kubernetes import access

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

TIMEOUT_S = 20.0

_VERBS = {"create": "post"}
"""lightkube's names of verbs, where they differ from those of a Role."""


class ApiRefusedError(NotSubmittedError):
    """Kubernetes has understood and said no. ``status``: of HTTP."""

    exit_code = 2

    def __init__(self, message: str, hint: str = "", *, status: int = 0) -> None:
        super().__init__(message, hint)
        self.status = status


class ApiSilentError(EngineError):
    """The API server does not answer, or not in a way that can be read."""


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
        config = _load_config(compute)
        self.server = str(config.cluster.server)
        with _translate(self.server):
            self._client: Any = lightkube.Client(config=config, namespace=self.namespace, trust_env=False)
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
        with _translate(self.server):
            return dict(self._client.create(kind(_plain(thing))))

    def get(self, kind: str, name: str) -> dict[str, Any] | None:
        """Return an object; None where there is none."""
        try:
            with _translate(self.server):
                return dict(self._client.get(self._kind(kind), name))
        except ApiRefusedError as error:
            if error.status == 404:
                return None
            raise

    def list(
        self, kind: str, labels: Mapping[str, str] | None = None, fields: Mapping[str, str] | None = None
    ) -> list[dict[str, Any]]:
        """List objects of the namespace, or nodes; those with such labels and fields."""
        asked = {"labels": dict(labels or {}), "fields": dict(fields or {})}
        with _translate(self.server):
            return [dict(one) for one in self._client.list(self._kind(kind), **asked)]

    def patch(self, kind: str, name: str, change: Mapping[str, Any]) -> None:
        """Merge the change into an object."""
        from lightkube.types import PatchType

        with _translate(self.server):
            self._client.patch(self._kind(kind), name, dict(change), patch_type=PatchType.MERGE)

    def delete_job(self, name: str) -> None:
        """Delete a Job and all that it owns. No error where it is gone."""
        from lightkube.types import CascadeType

        with contextlib.suppress(_GoneError), _translate(self.server):
            self._client.delete(self._kind("Job"), name, cascade=CascadeType.BACKGROUND)

    def follow_log(self, pod: str) -> Iterator[str]:
        """Yield the lines that a pod has printed, and those that it prints until it ends."""
        assert "get" in self._rights["PodLog"].verbs
        with _translate(self.server):
            for line in self._client.log(pod, follow=True, newlines=False):
                yield str(line)

    def version(self) -> str:
        """Return the version of the server, such as v1.30.1."""
        return str(self._read("/version")["gitVersion"])

    def groups(self) -> set[str]:
        """Return the groups of objects that the server has, such as kueue.x-k8s.io. Everybody may ask."""
        return {str(one["name"]) for one in self._read("/apis")["groups"]}

    def _read(self, path: str) -> Any:
        with _translate(self.server):
            answer = self._client._client._client.get(path, timeout=TIMEOUT_S)
            answer.raise_for_status()
            return answer.json()

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


class _GoneError(ApiRefusedError):
    """There is no such object."""


def open_api(compute: Mapping[str, Any], rights: Mapping[str, access.Right] | None = None) -> Api:
    """Return the API of a compute; nothing is asked yet. Raises EngineError."""
    return Api(compute, rights)


def name_user(compute: Mapping[str, Any]) -> dict[str, str]:
    """Return whom a Role is bound to, as far as the kubeconfig tells. Raises ApiRefusedError."""
    config = _load_config(compute)
    token = str(getattr(config.user, "token", None) or "")
    return access.find_subject(str(config.context.user or ""), token)


def _plain(thing: Mapping[str, Any]) -> dict[str, Any]:
    return dict(thing)


def _load_config(compute: Mapping[str, Any]) -> Any:
    """Return the kubeconfig's context. Raises ApiRefusedError."""
    path = _find_config(compute)
    with _explain_config(path):
        single = _read_config(path).get(compute.get("context") or None)
    _complete_plugin(single)
    return single


def _read_config(path: str) -> Any:
    """Return all contexts of a kubeconfig; an empty path: the account of this pod. Raises ApiRefusedError."""
    from lightkube.config.kubeconfig import KubeConfig

    with _explain_config(path):
        return KubeConfig.from_file(path) if path else KubeConfig.from_service_account()


@contextlib.contextmanager
def _explain_config(path: str) -> Iterator[None]:
    from lightkube.core.exceptions import ConfigError

    try:
        yield
    except (ConfigError, KeyError, OSError, ValueError, TypeError) as error:
        what = f"{path or '~/.kube/config'} does not say how to reach Kubernetes: {error}"
        raise ApiRefusedError(
            what, "context and kubeconfig of the compute, else KUBECONFIG, say which"
        ) from error


def find_place(compute: Mapping[str, Any]) -> dict[str, str]:
    """
    Return which kubeconfig and which of its contexts a compute means now, as settings of it: the user's current context
    may be another one later. Raises ApiRefusedError.
    """
    path = _find_config(compute)
    if not path:
        return {}
    named = compute.get("context") or _read_config(path).current_context
    return {"kubeconfig": os.path.abspath(path), **({"context": str(named)} if named else {})}


def _find_config(compute: Mapping[str, Any]) -> str:
    """Return the path of the kubeconfig; empty: that of a pod's own account."""
    named = str(compute.get("kubeconfig") or "")
    listed = [one for one in os.environ.get("KUBECONFIG", "").split(os.pathsep) if one]
    usual = os.path.expanduser("~/.kube/config")
    if named:
        return named
    found = next((one for one in listed if os.path.exists(one)), "")
    if found or listed:
        return found or listed[0]
    in_pod = "KUBERNETES_SERVICE_HOST" in os.environ
    return "" if in_pod and not os.path.exists(usual) else usual


def _complete_plugin(config: Any) -> None:
    """Have a credential plugin be asked as kubectl asks it: lightkube knows only v1beta1, and passes no request."""
    plugin = getattr(config.user, "exec", None)
    if plugin is None:
        return
    import json

    from lightkube.config.models import NameValue

    wanted = {"apiVersion": plugin.apiVersion, "kind": "ExecCredential", "spec": {"interactive": False}}
    plugin.env = [*(plugin.env or []), NameValue(name="KUBERNETES_EXEC_INFO", value=json.dumps(wanted))]
    plugin.apiVersion = "client.authentication.k8s.io/v1beta1"


@contextlib.contextmanager
def _translate(server: str) -> Iterator[None]:
    """Turn what goes wrong into EngineError."""
    import httpx2
    from lightkube.core.exceptions import ApiError, ConfigError

    try:
        yield
    except ApiError as error:
        status = int(error.status.code or 0)
        said = str(error.status.message or error)
        if status == 404:
            raise _GoneError(said, status=status) from error
        if status in (429, 500, 502, 503, 504):
            raise ApiSilentError(f"Kubernetes at {server} is busy: {said}") from error
        hint = "kubectl auth can-i --list shows what you may do" if status == 403 else ""
        raise ApiRefusedError(f"Kubernetes refused it: {said}", hint, status=status) from error
    except ConfigError as error:
        raise ApiRefusedError(
            f"the credentials of Kubernetes at {server} are not to be had: {error}"
        ) from error
    except (httpx2.HTTPError, OSError, ValueError) as error:
        raise ApiSilentError(
            f"Kubernetes at {server} does not answer: {error or type(error).__name__}"
        ) from error
