"""The objects of a job, made in the cluster: all of them, or none."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import EngineError
from drumline.engines.kubernetes import objects
from drumline.engines.kubernetes.api.failures import ApiRefusedError
from drumline.engines.kubernetes.manifests.dropped import find_dropped

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drumline.engines.kubernetes.client import Api


def send(api: Api, made: objects.Objects) -> None:
    """
    Make the objects. The one that owns the others starts last: a submission that was killed has started nothing, and
    what it left goes with that one. Raises EngineError, and nothing is left then where the server still answers.
    """
    name = made.supervisor["metadata"]["name"]
    try:
        owner = api.create(made.supervisor)
    except ApiRefusedError as error:
        if error.status != 409:
            raise
        what = f"Kubernetes has a Job {name} already, of an earlier job of that name"
        raise ApiRefusedError(what, "it goes in a moment; else another name", status=409) from error
    try:
        _check_kept(made.supervisor, owner)
        for thing in (*made.secrets, made.service, made.group, made.nodes):
            if thing:
                owned = objects.own(thing, owner)
                _check_kept(owned, api.create(owned))
        api.patch("Job", name, {"spec": {"parallelism": 1}})
    except EngineError:
        with contextlib.suppress(EngineError):
            api.delete_job(name)
        raise


def _check_kept(sent: Mapping[str, Any], kept: Mapping[str, Any]) -> None:
    """Refuse a server that has dropped a field, as one does that does not know it. Raises ApiRefusedError."""
    dropped = find_dropped(sent, kept)
    if dropped:
        what = f"Kubernetes has left {dropped} out of the {sent['kind']} {sent['metadata']['name']}"
        raise ApiRefusedError(
            what, "its version does not know the field, which a setting of the compute needs"
        )
