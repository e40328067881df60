"""The variables with which the ranks of a job start: those that all have, and those in which they differ."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from drumline.contract.hiding import HIDDEN, hide_in_text, is_secret
from drumline.contract.rank_variables import RankVariables
from drumline.control.jobs.lookup import folder_of, read_plan
from drumline.control.jobs.outcome import read_outcome

if TYPE_CHECKING:
    from drumline.contract.outcome import Outcome
    from drumline.contract.plan import Plan


_MOST_TEXT = 1 << 20
"""Characters of the plan's texts in the variables of all ranks; of more the references are shown."""


class _Facts(dict[str, str]):
    """Facts about placed nodes; an unknown name stays as it stands in the plan."""

    def __missing__(self, name: str) -> str:
        return f"${{{name}}}"


def describe_variables(name: str) -> dict[str, Any]:
    """
    Return the variables that the plan gives to the ranks: ``common``, and ``differing`` with the ranks of each value.

    A rank inherits others from the machine. Values of secrets are hidden. Raises NotFoundError.
    """
    folder = folder_of(name)
    if not os.path.exists(folder.plan):
        return {"sentence": f"job {name} has no ranks of its own", "ranks": [], "common": {}, "differing": []}
    plan = read_plan(folder)
    facts = _find_facts(read_outcome(folder))
    if sum(map(len, plan.texts.values())) * len(plan.ranks) > _MOST_TEXT:
        plan = plan._replace(texts={})
    variables = RankVariables(plan, facts)
    by_rank = {task.rank: variables.of_rank(node, task) for node in plan.nodes for task in node.ranks}
    names = sorted({name for environment in by_rank.values() for name in environment} | set(plan.secrets))
    common: dict[str, str] = {}
    differing = []
    for variable in names:
        values: dict[str | None, list[int]] = {}
        for rank, environment in sorted(by_rank.items()):
            values.setdefault(_show(variable, environment.get(variable), plan), []).append(rank)
        if len(values) == 1:
            common[variable] = str(next(iter(values)))
        else:
            differing.append(
                {
                    "name": variable,
                    "values": [{"ranks": ranks, "value": value} for value, ranks in values.items()],
                }
            )
    count = len(by_rank)
    sentence = f"{len(common)} variables are the same for all {count} ranks, {len(differing)} differ"
    if count == 1:
        sentence = f"the plan gives {len(common)} variables to the rank"
    return {"sentence": sentence, "ranks": sorted(by_rank), "common": common, "differing": differing}


def _find_facts(outcome: Outcome) -> _Facts:
    facts = _Facts()
    if outcome.network is not None:
        facts |= {f"node_{node}": address for node, address in enumerate(outcome.network.addresses)}
    return facts


def _show(name: str, value: str | None, plan: Plan) -> str | None:
    if name in plan.secrets or (value is not None and is_secret(name)):
        return HIDDEN
    return value if value is None else hide_in_text(value)
