"""The kubeconfig of a compute: which file, which context, and which credentials."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

from drumline.engines.kubernetes import access
from drumline.engines.kubernetes.api.failures import ApiRefusedError, shorten

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


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
