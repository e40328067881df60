"""The checks of this machine and of what Drumline keeps there, its repair, and checks of a compute by a small job."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from typing import TYPE_CHECKING, Any

from drumline.checks import checker, orphans, registry
from drumline.checks.findings import Finding, NodeReport
from drumline.contract import process_identity, status
from drumline.contract.errors import DrumlineError, UsageError
from drumline.contract.folder import RunFolder, base_home, home
from drumline.contract.outcome import fold
from drumline.contract.record import NamedTuple
from drumline.contract.words import format_count
from drumline.control.jobs import ending, job_folders
from drumline.control.jobs.ending import wait_for_end
from drumline.control.jobs.job_outcome import read_outcome
from drumline.control.jobs.recovery import recover
from drumline.control.machine import computes
from drumline.control.submission.submit import submit
from drumline.linux import cgroups
from drumline.node import leftovers, scratch
from drumline.node.warm import pool_folder
from drumline.store.index import Index

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from drumline.spec.registered.compute import Compute


_DEADLINE_S = 15.0
"""For all facts together: a look-up of a name takes ten seconds where no server answers."""

_FIX = "run drumline doctor --fix"


def examine_machine() -> list[Finding]:
    """Check this machine. Blocks, for as long as the slowest fact takes, 15 s at most."""
    checks = [check for check in registry.CHECKS if check.judge]
    folders = {"folder of jobs": _find_existing(home()), "temporary folder": tempfile.gettempdir()}
    settings = {"paths": folders, "path": os.environ.get("PATH", ""), "home": base_home()}
    nodes = [NodeReport(0, "", checker.gather(registry.list_groups(checks), settings, _DEADLINE_S))]
    findings = registry.add_unknown(registry.judge_all(nodes, checks), nodes, checks)
    return [*(one._replace(node=None) for one in findings), *(check() for check in OWN_CHECKS.values())]


class ShownFinding(NamedTuple):
    """A finding as doctor shows it. ``node``: its name where that is known, else its number."""

    id: str
    status: str
    node: str | int | None
    finding: str
    remedy: str


def describe(findings: Iterable[Mapping[str, Any]]) -> list[ShownFinding]:
    """Return findings (``Finding.to_json``) as doctor shows them."""
    return [
        ShownFinding(
            *(one["id"], one["status"], one.get("host") or one["node"], one["finding"], one["remedy"])
        )
        for one in findings
    ]


def fix(findings: Iterable[Finding]) -> dict[str, str]:
    """Mend what is Drumline's own of these findings; return what was done by id. Raises DrumlineError."""
    wanted = dict.fromkeys(one.check for one in findings if one.status != "ok" and one.check in FIXES)
    return {name: FIXES[name]() for name in wanted}


def _check_home() -> Finding:
    folder = _find_existing(home())
    if os.access(folder, os.W_OK | os.X_OK):
        return Finding("home", "ok", None, home())
    what = f"{folder} cannot be written to"
    return Finding("home", "error", None, what, "set DRUMLINE_HOME to a folder of your own")


def _find_existing(path: str) -> str:
    """Return the folder, or the nearest above it that is there."""
    while not os.path.isdir(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    return path


def _check_index() -> Finding:
    """Check the index of jobs; it is not read before there is a job."""
    problem = Index(home()).find_damage()
    if problem:
        return Finding("index", "warning", None, f"the index of jobs is damaged: {problem}", _FIX)
    return Finding("index", "ok", None, "readable")


def _fix_index() -> str:
    """Rebuild the index from the jobs. Raises DrumlineError."""
    Index(home()).repair()
    return f"rebuilt, with {format_count(len(job_folders.names(archived=None)), 'job')}"


def _check_sockets() -> Finding:
    stale = list(_list_stale())
    if not stale:
        return Finding("sockets", "ok", None, "none is stale")
    more = f" and {len(stale) - 1} more" if len(stale) > 1 else ""
    return Finding("sockets", "warning", None, f"nobody listens at {stale[0]}{more}", _FIX)


def _fix_sockets() -> str:
    removed = 0
    for path in list(_list_stale()):
        with contextlib.suppress(OSError):
            os.unlink(path)
            removed += 1
    return f"removed {format_count(removed, 'stale socket')}"


def _list_stale() -> Iterator[str]:
    """Yield the sockets of warm pools of this machine that were killed: nobody listens there."""
    parent = os.path.join(base_home(), "warm", process_identity.name_machine())
    for name in cgroups.list_folder(parent):
        folder = os.path.join(parent, name)
        path = os.path.join(folder, pool_folder.SOCKET)
        if not os.path.exists(path):
            continue
        try:
            pool_folder.connect_to_pool(folder).close()
        except ConnectionRefusedError:
            yield path
        except OSError:
            continue


def _fix_leftovers() -> str:
    """End what jobs of this home have left whose supervisor is gone, and remove folders of agents that are gone."""
    facts = orphans.gather_leftovers({"home": base_home()})
    ended = 0
    for folder in dict.fromkeys(one.folder for one in facts.processes):
        run = RunFolder(folder)
        with contextlib.suppress(DrumlineError, OSError):
            if run.exists() and not recover(run).is_final:
                continue
        ended += leftovers.clear_leftovers(run)
    left = [path for path in facts.folders if not scratch.remove_abandoned(path)]
    gone = orphans.list_forgotten(left, time.time())
    for path in gone:
        scratch.remove_scratch(path)
        scratch.remove_scratch(scratch.choose_shared_memory_folder(path))
    removed = len(facts.folders) - len(left) + len(gone)
    return f"ended {format_count(ended, 'process')}, removed {format_count(removed, 'folder')}"


OWN_CHECKS: dict[str, Callable[[], Finding]] = {
    "home": _check_home,
    "index": _check_index,
    "sockets": _check_sockets,
}
"""By id. They follow those of the registry that are for one machine."""

FIXES: dict[str, Callable[[], str]] = {
    "index": _fix_index,
    "sockets": _fix_sockets,
    "leftovers": _fix_leftovers,
}
"""By id of the check, what mends it and says what it did."""


# The checks of a compute's nodes: a small job asks for some of them, checks them, and starts no rank.


_USUAL_NODES = 2
"""Of isolated nodes, where the compute does not say how many it has: the fewest that can be compared."""

_NOTICE_PAUSE_S = 5.0
"""Between two looks at a job that waits for its nodes."""

_END_LIMIT_S = 10.0
"""For a job to end that is canceled."""


def examine_compute(name: str, node_count: int | None, tell: Callable[[str], None]) -> list[ShownFinding]:
    """
    Check the nodes of a compute, and return the findings as ``describe`` does. ``node_count``: on how many; None: on
    those that are free. ``tell`` takes a line.

    Blocks until there are such nodes. An interrupt cancels the job. Raises as ``submit``; NotFoundError; UsageError.
    """
    from drumline.spec.jobs.command import Command

    compute = computes.get(computes.name_of(name))
    if compute.type == "local" and not getattr(compute, "isolation", None):
        if (node_count or 1) > 1:
            what = f"--nodes: the nodes of compute {compute.name!r} are all this machine"
            raise UsageError(what, "leave it out, or give the compute isolation: namespace")
        return describe(finding.to_json({}) for finding in examine_machine())
    count = choose_count(compute) if node_count is None else node_count
    job = Command(
        command="true",
        compute=f"azureml:{compute.name}",
        resources={"instance_count": count},
        display_name="checks of the nodes",
        experiment_name="doctor",
        drumline={"preflight": "only"},
    )
    folder = submit(job).folder
    tell(f"job {folder.name} checks {format_count(count, 'node')} of compute {compute.name}")
    shown = ""
    try:
        while not wait_for_end(folder, time.monotonic() + _NOTICE_PAUSE_S):
            outcome = read_outcome(folder)
            if outcome.status == status.QUEUED and outcome.reason != shown:
                shown = outcome.reason
                tell(f"job {folder.name} waits: {shown}")
    except KeyboardInterrupt:
        ending.cancel(folder.name)
        wait_for_end(folder, time.monotonic() + _END_LIMIT_S)
        raise
    outcome = fold(folder.read_events())
    if outcome.preflight is None:
        what = f"the nodes were not checked: job {folder.name} is {outcome.status}: {outcome.why}"
        remedy = f"drumline job show -n {folder.name}"
        return [ShownFinding("job", "error", None, what, remedy)]
    job_folders.set_archived(folder.name, archived=True)
    return describe(outcome.preflight.detail["findings"])


def choose_count(compute: Compute) -> int:
    """Return how many nodes to check: those of this machine, or those of a cluster that are free, one at least."""
    if compute.type == "local":
        return int(getattr(compute, "nodes", None) or _USUAL_NODES)
    free = [one for one in computes.nodes(compute.name) if one.state in ("idle", "ready")]
    most = getattr(compute, "max_instances", None)
    return max(1, min(len(free), most or len(free)))
