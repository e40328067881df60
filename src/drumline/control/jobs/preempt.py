"""Taking a running job's nodes away, with notice: it saves what it has, and is started again."""

from __future__ import annotations

import json

from drumline.contract.errors import UsageError
from drumline.contract.plan import Plan
from drumline.contract.user import user
from drumline.control.jobs.cancel import wake
from drumline.control.jobs.lookup import folder_of
from drumline.control.jobs.recovery import recover


def preempt(name: str, node: int | None = None) -> int:
    """
    Ask for it and return the number of the attempt that ends so. ``node``: None takes all nodes away.

    Raises NotFoundError; UsageError for a job whose ranks do not run, and for a node that it has not.
    """
    folder = folder_of(name)
    outcome = recover(folder)
    if outcome.kind != "command":
        raise UsageError(
            f"job {name} is a {outcome.kind}: it has jobs, and those have ranks",
            f"drumline job show -n {name}",
        )
    if outcome.is_final or not outcome.ranks:
        raise UsageError(f"job {name} is {outcome.status}: it has no ranks that run")
    nodes = len(Plan.read(folder.plan).nodes)
    if node is not None and not 0 <= node < nodes:
        has = "node 0" if nodes == 1 else f"nodes 0 to {nodes - 1}"
        raise UsageError(f"--node: there is no node {node}", f"job {name} has {has}")
    attempt = len(outcome.attempts)
    folder.write(folder.preempt, json.dumps({"by": user(), "node": node, "attempt": attempt}))
    wake(folder)
    return attempt
