"""The objects of a job, made in the cluster: all of them, or none."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from drumline.contract.errors import EngineError
from drumline.engines.kubernetes import objects
from drumline.engines.kubernetes.client import ApiRefusedError

if TYPE_CHECKING:
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
        for thing in (made.secret, made.service, made.nodes):
            api.create(objects.own(thing, owner))
        api.patch("Job", name, {"spec": {"parallelism": 1}})
    except EngineError:
        with contextlib.suppress(EngineError):
            api.delete_job(name)
        raise
