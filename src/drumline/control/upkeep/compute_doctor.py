"""The checks of a compute's nodes: a small job asks for some of them, checks them, and starts no rank."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from drumline.contract import status
from drumline.contract.errors import UsageError
from drumline.contract.outcome import fold
from drumline.contract.record import NamedTuple
from drumline.contract.words import format_count
from drumline.control.jobs import ending, listing
from drumline.control.jobs.ending import wait_for_end
from drumline.control.jobs.outcome import read_outcome
from drumline.control.machine import computes, doctor
from drumline.control.submission.submit import submit

if TYPE_CHECKING:
    from collections.abc import Callable

    from drumline.contract.folder import RunFolder
    from drumline.contract.outcome import Outcome
    from drumline.spec.registered.compute import Compute

_USUAL_NODES = 2
"""Of isolated nodes, where the compute does not say how many it has: the fewest that can be compared."""

_NOTICE_PAUSE_S = 5.0
"""Between two looks at a job that waits for its nodes."""

_END_LIMIT_S = 10.0
"""For a job to end that is canceled."""


class ComputeChecks(NamedTuple):
    """What was found, as ``doctor.describe`` returns it. ``job``: that checked the nodes; empty: this process did."""

    checks: list[dict[str, Any]]
    job: str = ""


def examine_compute(name: str, node_count: int | None, tell: Callable[[str], None]) -> ComputeChecks:
    """
    Check the nodes of a compute. ``node_count``: on how many; None: on those that are free. ``tell`` takes a line.

    Blocks until there are such nodes. An interrupt cancels the job. Raises as ``submit``; NotFoundError; UsageError.
    """
    compute = computes.get(computes.name_of(name))
    if compute.type == "local" and not getattr(compute, "isolation", None):
        if (node_count or 1) > 1:
            what = f"--nodes: the nodes of compute {compute.name!r} are all this machine"
            raise UsageError(what, "leave it out, or give the compute isolation: namespace")
        return ComputeChecks(doctor.describe(one.to_json({}) for one in doctor.examine_machine()))
    count = choose_count(compute) if node_count is None else node_count
    folder = _submit(compute.name, count)
    tell(f"job {folder.name} checks {format_count(count, 'node')} of compute {compute.name}")
    try:
        _wait(folder, tell)
    except KeyboardInterrupt:
        ending.cancel(folder.name)
        wait_for_end(folder, time.monotonic() + _END_LIMIT_S)
        raise
    outcome = fold(folder.read_events())
    if outcome.preflight is None:
        return ComputeChecks([_explain(folder.name, outcome)], folder.name)
    listing.set_archived(folder.name, archived=True)
    return ComputeChecks(doctor.describe(outcome.preflight.detail["findings"]), folder.name)


def choose_count(compute: Compute) -> int:
    """Return how many nodes to check: those of this machine, or those of a cluster that are free, one at least."""
    if compute.type == "local":
        return int(getattr(compute, "nodes", None) or _USUAL_NODES)
    free = [one for one in computes.nodes(compute.name) if one.get("state") in ("idle", "ready")]
    most = getattr(compute, "max_instances", None)
    return max(1, min(len(free), most or len(free)))


def _submit(compute: str, count: int) -> RunFolder:
    from drumline.spec.jobs.command import Command

    job = Command(
        command="true",
        compute=f"azureml:{compute}",
        resources={"instance_count": count},
        display_name="checks of the nodes",
        experiment_name="doctor",
        drumline={"preflight": "only"},
    )
    return submit(job).folder


def _wait(folder: RunFolder, tell: Callable[[str], None]) -> None:
    """Wait for the end of the job, and tell why it waits itself."""
    told = ""
    while not wait_for_end(folder, time.monotonic() + _NOTICE_PAUSE_S):
        outcome = read_outcome(folder)
        if outcome.status == status.QUEUED and outcome.reason != told:
            told = outcome.reason
            tell(f"job {folder.name} waits: {told}")


def _explain(job: str, outcome: Outcome) -> dict[str, Any]:
    """Return the finding of a job that ended before its nodes were checked."""
    return {
        "id": "job",
        "status": "error",
        "node": None,
        "finding": f"the nodes were not checked: job {job} is {outcome.status}: {outcome.why}",
        "remedy": f"drumline job show -n {job}",
    }
