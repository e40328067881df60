"""The rights that the jobs of a compute need, for whoever gives them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drumline.contract.errors import EngineError, UsageError

if TYPE_CHECKING:
    from drumline.spec.registered.compute import Compute


def render(compute: Compute) -> str:
    """
    Return the least Role and its binding as YAML; nothing is asked and nothing changes. Raises SpecError for a compute
    that cannot be attached, UsageError for one of another type.
    """
    from drumline.engines.kubernetes import access, client
    from drumline.spec.entity import to_dict
    from drumline.spec.registered.compute import check_compute

    if compute.type != "kubernetes":
        hint = "without --dry-run it is attached"
        raise UsageError(
            f"--dry-run prints a Role of Kubernetes, and a {compute.type} compute needs none", hint
        )
    settings = to_dict(check_compute(compute))
    try:
        user = client.name_user(settings)
    except EngineError:
        # Whoever gives the rights may have no kubeconfig of the one who gets them.
        user = access.find_subject("", "")
    namespace = str(settings.get("namespace") or "default")
    return access.render(namespace, user, str(settings.get("gang") or ""))
