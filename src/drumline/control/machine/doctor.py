"""The checks of this machine, and the repair of what is Drumline's own."""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING, Any

from drumline.checks import checker, registry
from drumline.checks.findings import Finding, NodeReport
from drumline.contract.folder import base_home, home
from drumline.control.machine import own_checks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_DEADLINE_S = 15.0
"""For all facts together: a look-up of a name takes ten seconds where no server answers."""

OWN_CHECKS: dict[str, tuple[str, Callable[[], Finding]]] = {
    "home": ("the folder of jobs", own_checks.check_home),
    "index": ("the index of jobs", own_checks.check_index),
    "sockets": ("sockets of ended processes", own_checks.check_sockets),
}
"""By id: title, and what checks it. They follow those of the registry that are for one machine."""

FIXES: dict[str, Callable[[], str]] = {
    "index": own_checks.fix_index,
    "sockets": own_checks.fix_sockets,
    "leftovers": own_checks.fix_leftovers,
}
"""By id of the check, what mends it and says what it did."""


def examine_machine() -> list[Finding]:
    """Check this machine. Blocks, for as long as the slowest fact takes, 15 s at most."""
    checks = [check for check in registry.CHECKS if not check.needs_nodes]
    facts = checker.gather(registry.list_groups(checks), choose_settings(), _DEADLINE_S)
    report = NodeReport(0, "", facts)
    groups = {check.id: check.groups for check in checks}
    judged = (one._replace(node=None) for one in registry.judge_all([report], checks=checks))
    found = [_admit_unknown(one, [facts[group] for group in groups[one.check]]) for one in judged]
    return [*found, *(check() for _, check in OWN_CHECKS.values())]


def _admit_unknown(finding: Finding, facts: Iterable[Mapping[str, Any]]) -> Finding:
    """Return the finding, or that it is none: nothing is wrong as far as is known, and its facts are not."""
    if finding.status != "ok" or finding.finding:
        return finding
    for one in facts:
        if checker.LATE in one or checker.FAILED in one:
            why = one.get(checker.FAILED) or f"that takes longer than {one[checker.LATE]:g} s"
            return Finding(
                finding.check, "warning", None, f"it was not checked: {why}", "run drumline doctor again"
            )
    return finding


def choose_settings() -> dict[str, Any]:
    """Return what the facts of this machine are gathered of."""
    folders = {"folder of jobs": own_checks.find_existing(home()), "temporary folder": tempfile.gettempdir()}
    return {"paths": folders, "path": os.environ.get("PATH", ""), "home": base_home()}


def fix(findings: Iterable[Finding]) -> dict[str, str]:
    """Mend what is Drumline's own of these findings; return what was done by id. Raises DrumlineError."""
    wanted = dict.fromkeys(one.check for one in findings if one.status != "ok" and one.check in FIXES)
    return {name: FIXES[name]() for name in wanted}


def describe(findings: Iterable[Finding], hosts: dict[int, str] | None = None) -> list[dict[str, Any]]:
    """Return findings as JSON shows them. ``hosts``: names of nodes."""
    return [
        {
            "id": one.check,
            "status": one.status,
            "node": (hosts or {}).get(one.node) or one.node if one.node is not None else None,
            "finding": one.finding,
            "remedy": one.remedy,
        }
        for one in findings
    ]
