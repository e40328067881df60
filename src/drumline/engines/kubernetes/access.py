"""
The requests that Drumline makes of the API server. The client can make no others, and ``compute attach --dry-run``
makes the Role that it prints of the same table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drumline.contract.record import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Manifest = dict[str, Any]
"""An object of the API or a part of one, as the API server reads and writes it."""

LABEL = "drumline"
"""The name of the Role, and of its binding."""


class Right(NamedTuple):
    """One kind of object, and what is done with it. ``verbs``: as Roles have them."""

    group: str
    version: str
    resource: str
    verbs: tuple[str, ...]
    why: str
    everywhere: bool = False
    """Whether the objects belong to no namespace."""


RIGHTS = {
    "Job": Right(
        "batch", "v1", "jobs", ("create", "get", "patch", "delete"),
        "the supervisor and the nodes of a job; deleting the first removes all of its objects",
    ),
    "Secret": Right("", "v1", "secrets", ("create",), "code, plan and Drumline; none is read"),
    "Service": Right("", "v1", "services", ("create",), "by which nodes find the supervisor"),
    "Pod": Right("", "v1", "pods", ("list", "patch"), "how they are, and requests such as a cancel"),
    "PodLog": Right("", "v1", "pods/log", ("get",), "events, output and small files of a job"),
    "Event": Right("", "v1", "events", ("list",), "why pods are not made, such as a quota"),
}  # fmt: skip
"""By the kind of an object, in the namespace of the compute."""

GANGS = {
    "volcano": Right(
        "scheduling.volcano.sh", "v1beta1", "podgroups", ("create",), "all nodes of a job, or none"
    ),
    "coscheduling": Right(
        "scheduling.x-k8s.io", "v1alpha1", "podgroups", ("create",), "all nodes of a job, or none"
    ),
}
"""The objects by which schedulers start all pods of a job or none, by the name of the scheduler."""

EVERY_POD = "Pod.everywhere"

OPTIONAL = {
    "Node": Right("", "v1", "nodes", ("list",), "drumline compute list-nodes", everywhere=True),
    EVERY_POD: Right(
        "", "v1", "pods", ("list",), "what is free on nodes, in the same command", everywhere=True
    ),
}
"""What jobs do without, in the whole cluster."""

ALL = {**RIGHTS, **OPTIONAL, **{f"PodGroup.{right.group}": right for right in GANGS.values()}}


def make_manifests(namespace: str, user: Mapping[str, str], gang: str = "") -> list[Manifest]:
    """
    Return the Role with the least rights, and its binding to a subject. ``gang``: of the compute; where it says none,
    a job takes what the cluster has.
    """
    rights = [*RIGHTS.values(), *(right for name, right in GANGS.items() if gang in ("", name))]
    metadata = {"name": LABEL, "namespace": namespace}
    group = "rbac.authorization.k8s.io"
    role = {
        "apiVersion": f"{group}/v1",
        "kind": "Role",
        "metadata": dict(metadata),
        "rules": make_rules(rights),
    }
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "RoleBinding",
        "metadata": dict(metadata),
        "roleRef": {"apiGroup": group, "kind": "Role", "name": LABEL},
        "subjects": [dict(user) if "namespace" in user else {**user, "apiGroup": group}],
    }
    return [role, binding]


def make_rules(rights: Iterable[Right]) -> list[Manifest]:
    """Return the rules of a Role."""
    return [
        {"apiGroups": [one.group], "resources": [one.resource], "verbs": list(one.verbs)} for one in rights
    ]


def find_subject(user: str, token: str) -> dict[str, str]:
    """
    Return whom a Role is bound to: the account of a token that names one, else the user of the kubeconfig, whom the
    server may know by another name.

    >>> find_subject("ann", "")
    {'kind': 'User', 'name': 'ann'}
    """
    account = _read_account(token).split(":")
    if account[:2] == ["system", "serviceaccount"] and len(account) == 4:
        return {"kind": "ServiceAccount", "namespace": account[2], "name": account[3]}
    return {"kind": "User", "name": user or "YOUR-NAME"}


def _read_account(token: str) -> str:
    """Return the subject of a JSON web token; empty for another token."""
    import base64
    import json

    parts = token.split(".")
    if len(parts) != 3:
        return ""
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except ValueError:
        return ""
    return str(claims.get("sub") or "") if isinstance(claims, dict) else ""


def render(namespace: str, user: Mapping[str, str], gang: str = "") -> str:
    """Return Role and binding as YAML that kubectl takes, with what each right is for."""
    import yaml

    lines = [
        f"# The least rights that Drumline needs in the namespace {namespace}. Whoever may give them:",
        "#   drumline compute attach ... --dry-run | kubectl apply -f -",
        *(f"# {one.resource}: {one.why}" for one in RIGHTS.values()),
    ]
    lines += [
        f"# Not needed by jobs, and a ClusterRole: {'/'.join(one.verbs)} of {one.resource}, for {one.why}."
        for one in OPTIONAL.values()
    ]
    if user["kind"] == "User":
        lines.append("# subjects: the name by which the server knows you; kubectl auth whoami shows it.")
    text = yaml.safe_dump_all(make_manifests(namespace, user, gang), sort_keys=False, width=110)
    return "\n".join(lines) + "\n" + text
