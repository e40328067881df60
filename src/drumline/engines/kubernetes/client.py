"""
The API of Kubernetes, for the two processes that talk to it: the one that submits, and the job's courier.

lightkube reads kubeconfigs and speaks HTTP; objects stay plain dictionaries, so that no field is lost that its models
do not know.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import threading
import time
from typing import TYPE_CHECKING, Any, TypeVar

import httpx2

from drumline.contract.errors import EngineError, NotSubmittedError
from drumline.contract.words import format_seconds
from drumline.engines.kubernetes import access

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping


# Failures between Drumline and an API server, each as one sentence with a hint.

T = TypeVar("T")

LONGEST_WAIT_S = 30.0
"""For a server that says when to ask again, in one call."""

_BUSY = (429, 500, 502, 503, 504)
_LONGEST_TEXT = 300


class ApiRefusedError(NotSubmittedError):
    """Kubernetes has understood and said no. ``status``: of HTTP."""

    exit_code = 2

    def __init__(self, message: str, hint: str = "", *, status: int = 0) -> None:
        super().__init__(message, hint)
        self.status = status


class GoneError(ApiRefusedError):
    """There is no such object, says the API server itself."""


class ApiSilentError(EngineError):
    """
    The API server does not answer, or not in a way that can be read. ``again_s``: when it wants to be asked again; it
    has done nothing then. None: it does not say.
    """

    def __init__(self, message: str, hint: str = "", *, again_s: float | None = None) -> None:
        super().__init__(message, hint)
        self.again_s = again_s


class LogQuietError(ApiSilentError):
    """A log that is followed has nothing new, or its connection is dead."""


def ask_patiently(ask: Callable[[], T]) -> T:
    """Return what ``ask`` returns; a server that says when to ask again is obeyed, for a while. Raises EngineError."""
    until = time.monotonic() + LONGEST_WAIT_S
    while True:
        try:
            return ask()
        except ApiSilentError as error:
            if error.again_s is None or time.monotonic() + error.again_s > until:
                raise
            time.sleep(max(error.again_s, 0.1))


@contextlib.contextmanager
def translate(server: str) -> Iterator[None]:
    """Turn what goes wrong into EngineError."""
    from lightkube.core.exceptions import ConfigError

    try:
        yield
    except httpx2.HTTPStatusError as error:
        raise _explain_answer(server, error) from error
    except (ConfigError, CredentialsError) as error:
        raise ApiRefusedError(
            f"the credentials of Kubernetes at {server} are not to be had: {shorten(error)}",
            "log in as your cluster's provider says, and see that kubectl get pods works",
        ) from error
    except (httpx2.InvalidURL, httpx2.UnsupportedProtocol) as error:
        raise ApiRefusedError(
            f"{server} is no address of Kubernetes: {shorten(error)}", "server of the kubeconfig's cluster"
        ) from error
    except KeyError as error:
        # lightkube stumbles over an answer without a type.
        cause = error.__context__
        if isinstance(cause, httpx2.HTTPStatusError):
            raise _explain_answer(server, cause) from error
        raise _say_odd(server, error) from error
    except (ValueError, TypeError, AttributeError) as error:
        raise _say_odd(server, error) from error
    except (httpx2.HTTPError, OSError, RuntimeError) as error:
        said = shorten(error) or type(error).__name__
        raise ApiSilentError(f"Kubernetes at {server} does not answer: {said}") from error


class CredentialsError(Exception):
    """There are none: why, for ``translate``."""


def shorten(error: object) -> str:
    """Return what an error says as one line."""
    said = " ".join(str(error).split())
    return said if len(said) <= _LONGEST_TEXT else said[: _LONGEST_TEXT - 3] + "..."


def _say_odd(server: str, error: Exception) -> ApiSilentError:
    said = shorten(error) or type(error).__name__
    return ApiSilentError(
        f"Kubernetes at {server} does not answer as an API server does: {said}",
        "server of the kubeconfig's cluster; a proxy may be in the way",
    )


def _explain_answer(server: str, error: Any) -> EngineError:
    """Return what an answer means that is no success; ``error``: an HTTPStatusError."""
    status = int(error.response.status_code)
    message = getattr(getattr(error, "status", None), "message", None)
    said = shorten(message or "") or f"{status} {error.response.reason_phrase}"
    if status == 404:
        # A proxy on the way that has lost the server says the same of all that there is.
        is_gone = _read_reason(error) == "NotFound"
        return GoneError(said, status=status) if is_gone else _say_odd(server, ValueError(said))
    if status in _BUSY:
        wait = error.response.headers.get("Retry-After") or ""
        again_s = float(wait) if wait.isascii() and wait.isdecimal() else None
        return ApiSilentError(f"Kubernetes at {server} is busy: {said}", again_s=again_s)
    if status < 400:
        return _say_odd(server, ValueError(said))
    if status == 401:
        return ApiRefusedError(
            f"Kubernetes at {server} does not accept the credentials: {said}",
            "they may have expired: log in again, and see that kubectl get pods works",
            status=status,
        )
    hint = "kubectl auth can-i --list shows what you may do" if status == 403 else ""
    return ApiRefusedError(f"Kubernetes refused it: {said}", hint, status=status)


def _read_reason(error: Any) -> str:
    """Return the word of an API server for why it said no; empty: the answer is no word of one."""
    try:
        answer = error.response.json()
    except ValueError:
        return ""
    is_status = isinstance(answer, dict) and answer.get("kind") == "Status"
    return str(answer.get("reason") or "") if is_status else ""


# The kubeconfig of a compute: which file, which context, and which credentials.


def load(compute: Mapping[str, Any]) -> Any:
    """Return the kubeconfig's context. Raises ApiRefusedError."""
    from lightkube.config.models import User

    path = find_path(compute)
    with _explain(path):
        whole = _read(path)
        single = _choose(whole, compute.get("context") or whole.current_context, path)
        # A server may take whoever comes.
        return single if single.user else single._replace(user=User())


def find_place(compute: Mapping[str, Any]) -> dict[str, str]:
    """
    Return which kubeconfig and which of its contexts a compute means now, as settings of it: the user's current context
    may be another one later. Raises ApiRefusedError.
    """
    path = find_path(compute)
    if not path:
        return {}
    named = compute.get("context") or _read(path).current_context
    return {"kubeconfig": os.path.abspath(path), **({"context": str(named)} if named else {})}


def name_user(compute: Mapping[str, Any]) -> dict[str, str]:
    """Return whom a Role is bound to, as far as the kubeconfig tells. Raises ApiRefusedError."""
    config = load(compute)
    token = str(getattr(config.user, "token", None) or "")
    return access.find_subject(str(config.context.user or ""), token)


def find_path(compute: Mapping[str, Any]) -> str:
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


def _read(path: str) -> Any:
    """Return all contexts of a kubeconfig; an empty path: the account of this pod. Raises ApiRefusedError."""
    from lightkube.config.kubeconfig import KubeConfig

    with _explain(path):
        return KubeConfig.from_file(path) if path else KubeConfig.from_service_account()


def _choose(whole: Any, name: str | None, path: str) -> Any:
    """Return a context with its cluster and user. Raises ApiRefusedError."""
    hint = "context and kubeconfig of the compute, else KUBECONFIG, say which"
    if not name:
        raise ApiRefusedError(f"{path or 'the kubeconfig'} has no current context", hint)
    context = whole.contexts.get(name)
    if context is None:
        known = ", ".join(sorted(map(str, whole.contexts))[:5])
        raise ApiRefusedError(f"{path} has no context {name!r}", f"it has {known}" if known else hint)
    for noun, wanted, there in (
        ("cluster", context.cluster, whole.clusters),
        ("user", context.user, whole.users),
    ):
        if wanted and wanted not in there:
            what = f"{path} has no {noun} {wanted!r}, which its context {name!r} names"
            raise ApiRefusedError(what, hint)
    return whole.get(name)


@contextlib.contextmanager
def _explain(path: str) -> Iterator[None]:
    try:
        yield
    except ApiRefusedError:
        raise
    except Exception as error:  # whatever parsers of YAML and of its content raise, it is the file's
        said = shorten(error) if not isinstance(error, KeyError) else f"{error} is missing"
        what = f"{path or 'the account of this pod'} does not say how to reach Kubernetes: {said}"
        raise ApiRefusedError(
            what, "context and kubeconfig of the compute, else KUBECONFIG, say which"
        ) from error


# Credentials from a plugin that the kubeconfig names, asked as kubectl asks it.

LIMIT_S = 120.0
"""For one answer: a person may have to confirm in a browser."""


class PluginAuth(httpx2.Auth):  # type: ignore[misc]  # it has no types
    """Gives each request the token of a plugin, which is asked again when the server refuses the token."""

    def __init__(self, plugin: Any) -> None:
        self._plugin = plugin
        self._lock = threading.Lock()
        self._token = ""

    def sync_auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        token = self._token
        if token:
            request.headers["Authorization"] = f"Bearer {token}"
            response = yield request
            if response.status_code != 401:
                return
        with self._lock:
            if self._token == token:
                # Nobody else has asked meanwhile.
                self._token = self._ask()
        request.headers["Authorization"] = f"Bearer {self._token}"
        yield request

    def _ask(self) -> str:
        """Return a token. Raises CredentialsError."""
        command = str(self._plugin.command)
        try:
            answer = json.loads(self._run(command))
            status = answer["status"]
            token = status.get("token")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CredentialsError(f"{command} printed no credential") from error
        if not isinstance(token, str) or not token:
            raise CredentialsError(f"{command} gave no token; certificates of plugins are not supported")
        return token

    def _run(self, command: str) -> str:
        wanted = {
            "apiVersion": self._plugin.apiVersion,
            "kind": "ExecCredential",
            "spec": {"interactive": False},
        }
        own = {one.name: one.value for one in self._plugin.env or ()}
        try:
            done = subprocess.run(  # noqa: S603 - what the user's kubeconfig names
                [command, *(self._plugin.args or ())],
                env={**os.environ, **own, "KUBERNETES_EXEC_INFO": json.dumps(wanted)},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=LIMIT_S,
                check=False,
            )
        except OSError as error:
            hint = shorten(self._plugin.installHint or "")
            said = f"{command}: {error.strerror or error}"
            raise CredentialsError(f"{said}; {hint}" if hint else said) from error
        except subprocess.TimeoutExpired as error:
            raise CredentialsError(f"{command} gave no answer within {format_seconds(LIMIT_S)}") from error
        if done.returncode:
            said = shorten(done.stderr) or "it said nothing"
            raise CredentialsError(f"{command} ended with exit code {done.returncode}: {said}")
        return done.stdout


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
        place = load(compute)
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

    def create(self, thing: Mapping[str, Any]) -> access.Manifest:
        """Create an object; return it as the server has it."""
        group = str(thing["apiVersion"]).rpartition("/")[0]
        kind = self._kind(f"PodGroup.{group}" if thing["kind"] == "PodGroup" else str(thing["kind"]))
        return self._ask(lambda: dict(self._client.create(kind(dict(thing)))))

    def get(self, kind: str, name: str) -> access.Manifest | None:
        """Return an object; None where there is none."""
        wanted = self._kind(kind)
        try:
            return self._ask(lambda: dict(self._client.get(wanted, name)))
        except GoneError:
            return None

    def list(
        self, kind: str, labels: Mapping[str, str] | None = None, fields: Mapping[str, str] | None = None
    ) -> list[access.Manifest]:
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
                raise LogQuietError(f"{pod} has said nothing for {format_seconds(QUIET_S)}") from error

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
    from lightkube.config.client_adapter import verify_cluster

    return httpx2.HTTPTransport(
        verify=verify_cluster(place.cluster, place.user, place.abs_file, trust_env=False),
        trust_env=False,
        # Each log that is followed holds one.
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=_MOST_IDLE),
    )
