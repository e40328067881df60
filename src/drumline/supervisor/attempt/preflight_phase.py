"""The checks of the nodes of one attempt, while ports are leased and node 0 is tried: facts first, then links."""

from __future__ import annotations

import time
from itertools import islice
from typing import TYPE_CHECKING, Any

from drumline.checks.findings import Finding, NodeDemand, NodeReport, join_equal, keep_worst, list_nodes
from drumline.checks.names_and_ports import MOST_NAMES
from drumline.contract import events as e
from drumline.contract import messages as m
from drumline.contract.record import NamedTuple
from drumline.supervisor.clocks import wall_time
from drumline.supervisor.deciding import happenings as h

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from drumline.contract.folder import RunFolder
    from drumline.contract.plan import Plan
    from drumline.supervisor.attempt.connections import AgentConnections

LIMIT_S = 1.8
"""For all checks together, once all nodes were asked; then what is known is judged."""

_FACTS_S = 0.8
_CONNECT_S = 0.4
_LINKS_S = 0.6
"""After which no pair begins to measure its link; a pair takes 150 ms."""


class Budget(NamedTuple):
    """The seconds that the checks may take: all together, for facts, for connections, and for links."""

    limit_s: float
    facts_s: float
    connect_s: float
    links_s: float


_ALONE = Budget(18.0, 10.0, 2.0, 3.0)
"""Where nobody waits for ranks: a look-up takes ten seconds where no name server answers."""

_MOST_FINDINGS = 50
_MOST_ALONE = 500
"""Of a job that checks its nodes alone, which also tells what is well."""

_MOST_LINKS = 500


class PreflightPhase:
    """
    Asks agents for facts, and judges them. ``addresses``: by node, on the network of the ranks. ``memory_bytes``: what
    the job was given of each node; 0: not known.
    """

    def __init__(
        self,
        plan: Plan,
        folder: RunFolder,
        connections: AgentConnections,
        record: Callable[[e.Event], None],
        handle: Callable[[h.Happening], None],
        addresses: Mapping[int, str],
        hosts: Mapping[int, str],
        memory_bytes: int = 0,
    ) -> None:
        self._plan = plan
        self._folder = folder
        self._connections = connections
        self._record = record
        self._handle = handle
        self._addresses = addresses
        self._hosts = hosts
        self._memory_bytes = memory_bytes
        job = Budget(LIMIT_S, _FACTS_S, _CONNECT_S, _LINKS_S)
        self._budget = _ALONE if plan.checks_only else job
        self._began = self._asked = 0.0
        """In monotonic seconds, and in seconds since 1970."""

        self._reports: dict[int, NodeReport] = {}
        self._measured: set[int] = set()
        self._is_over = False

    def begin(self) -> float:
        """Ask for facts; return the seconds after which ``conclude`` is due."""
        self._began, self._asked = time.monotonic(), wall_time()
        for task in self._plan.nodes:
            address = self._addresses[task.node]
            message = m.CheckNode(address, self._choose_settings(task.node), self._budget.facts_s)
            self._connections.send(task.node, message)
        told = time.monotonic()
        # Loaded while the agents work: it takes a tenth of a second.
        from drumline.checks import registry  # noqa: F401

        return max(0.0, told + self._budget.limit_s - time.monotonic())

    def take_in(self, node: int, message: m.NodeChecked) -> None:
        """Take in facts of a node; when all have come, go on."""
        if self._is_over:
            return
        if message.part == "facts":
            task, times = self._plan.nodes[node], (wall_time(), self._asked)
            demand = NodeDemand(len(task.ranks), len(task.cores), task.gpu_count, self._memory_bytes)
            host = self._hosts.get(node, "")
            self._reports[node] = NodeReport(node, host, message.facts, *times, demand)
            if len(self._reports) == len(self._plan.nodes):
                self._check_links()
        elif node in self._reports:
            known = self._reports[node]
            self._reports[node] = known._replace(facts={**known.facts, "connections": message.facts})
            self._measured.add(node)
            if len(self._measured) == len(self._plan.nodes):
                self.conclude()

    def conclude(self) -> None:
        """Judge the facts that have come; nothing when that was done."""
        if self._is_over:
            return
        self._is_over = True
        from drumline.checks import links, registry

        reports = [self._reports[node] for node in sorted(self._reports)]
        found = registry.judge_all(reports)
        most = _MOST_FINDINGS
        if self._plan.checks_only:
            found, most = join_equal(registry.add_unknown(found, reports), len(reports)), _MOST_ALONE
        else:
            found = [one for one in found if one.status != "ok"]
        seconds = round(time.monotonic() - self._began, 3)
        missing = [task.node for task in self._plan.nodes if task.node not in self._reports]
        if missing:
            found.insert(0, _describe_missing(missing))
        findings = [one.to_json(self._hosts) for one in keep_worst(found, most)]
        detail = {"findings": findings, "links": links.list_links(reports, _MOST_LINKS)}
        self._record(e.PreflightEnded(wall_time(), seconds, detail))
        errors = [one for one in found if one.status == "error"]
        node = errors[0].node if errors else None
        self._handle(h.Checked(describe_errors(errors), node, self._plan.checks_only))

    def _choose_settings(self, node: int) -> dict[str, Any]:
        plan = self._plan
        words = plan.nodes[node].ranks[0].argv if plan.nodes[node].ranks else ()
        own = self._hosts.get(node)
        # Pods share no folders, and what they tell as their host is a name of the cluster's.
        hosts = () if plan.engine == "kubernetes" else (self._hosts.get(one, "") for one in self._addresses)
        shared = () if plan.engine == "kubernetes" else (self._folder.path, plan.cwd, *plan.folders)
        return {
            "address": self._addresses[node],
            "addresses": _take_first(self._addresses[one] for one in self._addresses if one != node),
            "host_names": _take_first(host for host in hosts if host and host != own),
            "paths": {"run folder": self._folder.path, "temporary folder": ""},
            "shared": list(dict.fromkeys(shared)),
            "code": plan.cwd,
            "python": next(iter(words or plan.argv), ""),
            "path": plan.user_env.get("PATH") or plan.env.get("PATH"),
        }

    def _check_links(self) -> None:
        from drumline.checks.links import plan_peers, plan_rounds

        count = len(self._plan.nodes)
        places = {
            str(node): [self._addresses[node], one.get("links")["port"]]
            for node, one in self._reports.items()
            if one.get("links")
        }
        peers, rounds, budget = plan_peers(count), plan_rounds(count), self._budget
        for node in self._reports:
            asked = map(str, sorted({*peers[node], *rounds[node]}))
            own = {other: places[other] for other in asked if other in places}
            message = m.CheckLinks(own, peers[node], rounds[node], budget.connect_s, budget.links_s)
            self._connections.send(node, message)


def _take_first(names: Iterable[str]) -> list[str]:
    """Return as many as a node looks up: of thousands of nodes, all would be most of what they are told."""
    return list(islice(names, MOST_NAMES))


def describe_errors(errors: Sequence[Finding]) -> str:
    """Return in one sentence why no rank may start, with the remedy; empty for no errors."""
    if not errors:
        return ""
    first = errors[0]
    where = "" if first.node is None else f"node {first.node}: "
    more = f" (and {len(errors) - 1} more: drumline job show)" if len(errors) > 1 else ""
    return f"not started: {where}{first.finding}; {first.remedy}{more}"


def _describe_missing(nodes: Sequence[int]) -> Finding:
    what = f"{list_nodes(nodes)} told nothing of {'itself' if len(nodes) == 1 else 'themselves'} in time"
    return Finding("answers", "warning", None, what, "check again: drumline doctor --compute NAME")
