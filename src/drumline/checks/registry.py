"""The one registry: how each group of facts is gathered on a node, and how each check judges those of all nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drumline.checks import cores_and_memory, folders, gpus, links, names_and_ports, orphans, software, system
from drumline.checks.findings import Finding
from drumline.contract.record import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from drumline.checks.findings import NodeReport

    Gatherer = Callable[[Mapping[str, Any]], tuple[Any, ...]]
    """Returns a record of facts, which a node sends as JSON."""


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
    A check. ``groups``: of the facts that it needs. ``judge`` looks at each node alone, ``compare`` at all, where there
    are several.
    """

    id: str
    groups: tuple[str, ...]
    judge: Callable[[NodeReport], Iterable[Finding]] | None = None
    compare: Callable[[Sequence[NodeReport]], Iterable[Finding]] | None = None


_LINKS = ("connections",)
"""The group of facts that nodes measure together, after they have gathered the others."""

CHECKS = (
    Check("python", ("python",), software.judge_python, software.compare_pythons),
    Check("packages", ("python",), software.judge_packages, software.compare_packages),
    Check("mpi", ("python",), software.judge_mpi, software.compare_mpis),
    Check(
        "host-name",
        ("names", "network"),
        names_and_ports.judge_host_name,
        names_and_ports.compare_host_names,
    ),
    Check("look-ups", ("names", "reverse"), names_and_ports.judge_look_ups),
    Check("interfaces", ("network",), names_and_ports.judge_interfaces, names_and_ports.compare_interfaces),
    Check("ports", ("network",), names_and_ports.judge_ports),
    Check("ipv6", ("network", "names"), names_and_ports.judge_ipv6),
    Check("proxies", ("proxies",), names_and_ports.judge_proxies),
    Check("shared-memory", ("memory",), cores_and_memory.judge_shared_memory),
    Check("cores", ("cpu",), cores_and_memory.judge_cores),
    Check("memory", ("memory",), cores_and_memory.judge_memory),
    Check("limits", ("limits", "infiniband"), system.judge_limits),
    Check("features", ("features",), system.judge_features),
    Check("disk", ("disk",), folders.judge_disk),
    Check("user", ("user",), system.judge_user, system.compare_users),
    Check("gpus", ("gpus",), gpus.judge_gpus),
    Check("infiniband", ("infiniband",), gpus.judge_infiniband, gpus.compare_infiniband),
    Check("library-speed", ("library",), folders.judge_library),
    Check("leftovers", ("leftovers",), orphans.judge_leftovers),
    Check("spawn", ("cpu",), compare=cores_and_memory.compare_starts),
    Check("drivers", ("gpus",), compare=gpus.compare_drivers),
    Check("code", ("code",), compare=software.compare_code),
    Check("clocks", (), compare=system.compare_clocks),
    Check("arithmetic", ("cpu",), compare=cores_and_memory.compare_arithmetic),
    Check("shared-paths", ("shared",), compare=folders.compare_shared_paths),
    Check("connections", _LINKS, compare=links.compare_connections),
    Check("large-packets", _LINKS, compare=links.compare_packets),
    Check("links", _LINKS, compare=links.compare_links),
)
"""In the order in which they are shown. The facts of ``clocks``, without groups, come with those of others."""


def list_groups(checks: Iterable[Check] = CHECKS) -> list[str]:
    """Return the groups of facts that these checks need and a node gathers by itself, each once."""
    return list(dict.fromkeys(group for check in checks for group in check.groups if check.groups != _LINKS))


def judge_all(nodes: Sequence[NodeReport], checks: Iterable[Check] = CHECKS) -> list[Finding]:
    """
    Judge the facts of all nodes. A check that says nothing is fine, which one finding without words says. A check of a
    version with other facts, or of damaged ones, is left out: it must not end a job.
    """
    findings = []
    for check in checks:
        if check.judge or len(nodes) > 1:
            findings += [one._replace(check=check.id) for one in _apply(check, nodes)]
    return findings


def _apply(check: Check, nodes: Sequence[NodeReport]) -> list[Finding]:
    ok = Finding("", "ok", None, "")
    try:
        alone = [one for node in nodes for one in check.judge(node)] if check.judge else []
        together = [*check.compare(nodes)] if check.compare and len(nodes) > 1 else []
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as problem:
        why = f"its facts are not understood: {problem!r}"
        return [ok._replace(status="warning", finding=why, remedy="install the same Drumline everywhere")]
    return [*alone, *together] or [ok]


def add_unknown(
    findings: Iterable[Finding], nodes: Sequence[NodeReport], checks: Iterable[Check] = CHECKS
) -> list[Finding]:
    """Return the findings with a warning for each node whose facts for a check could not be had."""
    known = list(findings)
    told = {(one.check, one.node) for one in known if one.status != "ok"}
    result = []
    for check in checks:
        unknown = [
            node.warning(f"it was not checked: {why}", "run drumline doctor again")._replace(check=check.id)
            for node in nodes
            if (why := _explain_lack(node, check.groups, len(nodes))) and (check.id, node.node) not in told
        ]
        result += [one for one in known if one.check == check.id and (one.finding or not unknown)] + unknown
    return result


def _explain_lack(node: NodeReport, groups: tuple[str, ...], count: int) -> str:
    if groups == _LINKS and count > 1 and not node.facts.get("connections"):
        return "its links were not measured in time"
    return node.explain_lack(groups)
