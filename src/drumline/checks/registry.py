"""The one registry: how each group of facts is gathered on a node, and how each check judges those of all nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drumline.checks import cores_and_memory, folders, gpus, links, names_and_ports, orphans, software, system
from drumline.checks.findings import NodeDemand, ok, warning
from drumline.contract.record import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from drumline.checks.findings import Finding, NodeReport

    Gatherer = Callable[[Mapping[str, Any]], dict[str, Any]]
    Judge = Callable[[Sequence[NodeReport], Sequence[NodeDemand]], Iterable[Finding]]


GATHERERS: dict[str, Gatherer] = {
    "python": software.gather_python,
    "code": software.gather_code,
    "library": folders.gather_library,
    "names": names_and_ports.gather_names,
    "reverse": names_and_ports.gather_reverse,
    "network": names_and_ports.gather_network,
    "proxies": names_and_ports.gather_proxies,
    "cpu": cores_and_memory.gather_cpu,
    "memory": cores_and_memory.gather_memory,
    "gpus": gpus.gather_gpus,
    "infiniband": gpus.gather_infiniband,
    "limits": system.gather_limits,
    "features": system.gather_features,
    "user": system.gather_user,
    "disk": folders.gather_disk,
    "shared": folders.gather_shared,
    "leftovers": orphans.gather_leftovers,
}
"""
By group of facts. Settings that they look at: ``address``, the node's own; ``addresses`` and ``host_names``, of some
other nodes; ``paths``, folders to write to by their name; ``shared``, paths that all nodes must have; ``code``, the
folder of the program; ``path``, the search path of the ranks; ``python``, the program that they start; ``home``, whose
jobs may have left something.
"""


class Check(NamedTuple):
    """
    A check. ``title``: what it looks at. ``groups``: of the facts that it needs (``GATHERERS``).
    ``needs_nodes``: it compares nodes, and says nothing of one alone.
    """

    id: str
    title: str
    groups: tuple[str, ...]
    judge: Judge
    needs_nodes: bool = False


_LINKS = ("connections",)
"""The group of facts that nodes measure together, after they have gathered the others."""

CHECKS = (
    Check("python", "the Python of the ranks", ("python",), software.judge_python),
    Check("packages", "versions of PyTorch, NCCL and others", ("python",), software.judge_packages),
    Check("mpi", "the MPI on the search path", ("python",), software.judge_mpi),
    Check(
        "host-name", "the address of the own host name", ("names", "network"), names_and_ports.judge_host_name
    ),
    Check("look-ups", "the time of name look-ups", ("names", "reverse"), names_and_ports.judge_look_ups),
    Check("interfaces", "the addresses of the nodes", ("network",), names_and_ports.judge_interfaces),
    Check("ports", "ports for ranks", ("network",), names_and_ports.judge_ports),
    Check("ipv6", "IPv6 in the way of IPv4", ("network", "names"), names_and_ports.judge_ipv6),
    Check("proxies", "proxies and certificates", ("proxies",), names_and_ports.judge_proxies),
    Check("shared-memory", "the size of /dev/shm", ("memory",), cores_and_memory.judge_shared_memory),
    Check("cores", "cores that can be used", ("cpu",), cores_and_memory.judge_cores),
    Check("memory", "memory that is available", ("memory",), cores_and_memory.judge_memory),
    Check(
        "limits", "limits of files, processes, locked memory", ("limits", "infiniband"), system.judge_limits
    ),
    Check("features", "features of the kernel", ("features",), system.judge_features),
    Check("disk", "space, inodes and speed of folders", ("disk",), folders.judge_disk),
    Check("user", "user, home and umask", ("user",), system.judge_user),
    Check("gpus", "number and health of GPUs", ("gpus",), gpus.judge_gpus),
    Check("infiniband", "InfiniBand and RoCE ports", ("infiniband",), gpus.judge_infiniband),
    Check("library-speed", "the speed of reading PyTorch", ("library",), folders.judge_library),
    Check("spawn", "the time of a Python to start", ("cpu",), cores_and_memory.judge_spawn),
    Check("leftovers", "what earlier jobs have left", ("leftovers",), orphans.judge_leftovers),
    Check("drivers", "versions of the NVIDIA driver", ("gpus",), gpus.judge_drivers, needs_nodes=True),
    Check("code", "the same code on all nodes", ("code",), software.judge_code, needs_nodes=True),
    Check("clocks", "clocks", (), system.judge_clocks, needs_nodes=True),
    Check(
        "arithmetic",
        "the same results of all CPUs",
        ("cpu",),
        cores_and_memory.judge_arithmetic,
        needs_nodes=True,
    ),
    Check(
        "shared-paths",
        "folders that all nodes need",
        ("shared",),
        folders.judge_shared_paths,
        needs_nodes=True,
    ),
    Check("connections", "connections from each to each", _LINKS, links.judge_connections, needs_nodes=True),
    Check("large-packets", "large packets between nodes", _LINKS, links.judge_packets, needs_nodes=True),
    Check("links", "the speed of links", _LINKS, links.judge_links, needs_nodes=True),
)
"""In the order in which they are shown. The facts of ``clocks``, without groups, come with those of others."""


def list_groups(checks: Iterable[Check] = CHECKS) -> list[str]:
    """Return the groups of facts that these checks need and a node gathers by itself, each once."""
    return list(dict.fromkeys(group for check in checks for group in check.groups if check.groups != _LINKS))


def judge_all(
    reports: Sequence[NodeReport], demands: Sequence[NodeDemand] = (), checks: Iterable[Check] = CHECKS
) -> list[Finding]:
    """
    Judge the facts of all nodes. A check that says nothing is fine, which one finding without words says. A check of a
    version with other facts, or of damaged ones, is left out: it must not end a job.
    """

    wanted = demands or [NodeDemand() for _ in reports]
    found = []
    for check in checks:
        if check.needs_nodes and len(reports) < 2:
            continue
        try:
            said = list(check.judge(reports, wanted))
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as problem:
            said = [
                warning(
                    None, f"its facts are not understood: {problem!r}", "install the same Drumline everywhere"
                )
            ]
        found += [one._replace(check=check.id) for one in said or [ok("")]]
    return found


def add_unknown(found: Iterable[Finding], reports: Sequence[NodeReport]) -> list[Finding]:
    """Return the findings with a warning for each node whose facts for a check could not be had."""
    known = list(found)
    told = {(one.check, one.node) for one in known if one.status != "ok"}
    result = []
    for check in CHECKS:
        unknown = [
            warning(one.node, f"it was not checked: {why}", "check it again")._replace(check=check.id)
            for one in reports
            if (why := _explain_lack(one, check.groups, len(reports))) and (check.id, one.node) not in told
        ]
        own = [one for one in known if one.check == check.id]
        result += [one for one in own if one.finding or not unknown] + unknown
    return result


def _explain_lack(report: NodeReport, groups: Sequence[str], count: int) -> str:
    if groups == _LINKS and count > 1 and not report.facts.get("connections"):
        return "its links were not measured in time"
    for facts in (report.facts.get(group) or {} for group in groups):
        if "late" in facts:
            return f"that takes longer than {facts['late']:g} s"
        if "failed" in facts:
            return str(facts["failed"])
    return ""
