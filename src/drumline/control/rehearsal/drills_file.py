"""The drills of a rehearsal: those of a file, or the usual ones."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from drumline.contract.drills import KINDS, DrillRequest
from drumline.contract.errors import Problem, SpecError, UsageError
from drumline.contract.record import NamedTuple
from drumline.control.drills.request import check_settings
from drumline.supervisor.drills import explain_refusal, explain_target

if TYPE_CHECKING:
    from drumline.contract.plan import Plan
    from drumline.spec.reading.source import Mapping

DEFAULT = "default"
_USUAL = ("preempt", "kill-rank", "kill-agent", "wedge", "power-off", "partition", "slow-link", "slow-cpu")
_USUAL_LENGTH_S = 3.0
_SETTINGS = ("between", "rate", "latency", "loss", "cpus", "limit")
_EARLIEST, _LATEST = 0.3, 0.7
"""The part of the undisturbed run in which a drill begins whose file does not say when."""


class PlannedDrill(NamedTuple):
    """One drill of a rehearsal. ``is_to_survive``: whether the job is expected to complete all the same."""

    title: str
    request: DrillRequest
    is_to_survive: bool = True


class Rehearsal(NamedTuple):
    """
    What is to be rehearsed. ``steps``: how many the job is shortened to; None: it is as long as it is. ``metric``:
    whose final value is compared; empty: the job's main one. ``tolerance``: how much it may differ, as a share.
    """

    drills: tuple[PlannedDrill, ...]
    steps: int | None = None
    seed: int = 0
    metric: str = ""
    tolerance: float = 0.0
    for_s: float | None = None
    """How long each run is, counted from when its ranks run; None: until the job ends."""

    left_out: tuple[str, ...] = ()
    """Of the usual drills those that this job cannot have, each with the reason."""


def choose_usual(plan: Plan, seed: int) -> Rehearsal:
    """Return the usual drills that a job can have: one of each kind, on a node and a rank that ``seed`` chooses."""
    chooser = random.Random(seed)  # noqa: S311 - the same choice for the same seed
    drills, left_out = [], []
    for kind in _USUAL:
        node = chooser.randrange(len(plan.nodes))
        rank = chooser.choice(plan.nodes[node].ranks).rank if KINDS[kind].aims_at == "rank" else None
        why_not = explain_refusal(kind, plan)
        if why_not:
            left_out.append(f"{kind}: {why_not}")
            continue
        length = _USUAL_LENGTH_S if KINDS[kind].lasts else None
        drills.append(PlannedDrill(kind, DrillRequest("", kind, "", node, rank, length)))
    return Rehearsal(tuple(drills), seed=seed, left_out=tuple(left_out))


def read_file(path: str, plan: Plan) -> Rehearsal:
    """Read a file of drills for a job with that plan. Raises SpecError with every mistake."""
    from drumline.spec.kinds.values import Report
    from drumline.spec.reading.files import read_yaml
    from drumline.spec.rehearsal import DRILLS, FAIL

    root = read_yaml(path, path)
    report = Report("")
    values = DRILLS.check(root, "", report)
    if report.problems:
        raise SpecError(report.problems)
    drills = []
    for index, given in enumerate(values["drills"]):
        request = _make_request(given)
        what = _explain_mistake(request, plan)
        if what:
            report.put(_locate(root, index, what))
        title = str(given.get("name") or request.kind)
        drills.append(PlannedDrill(title, request, given.get("expect") != FAIL))
    if not drills:
        report.put(_locate(root, None, "there is no drill in the file"))
    if report.problems:
        raise SpecError(report.problems)
    return Rehearsal(
        tuple(drills),
        values.get("steps"),
        values.get("seed") or 0,
        values.get("metric") or "",
        values.get("tolerance") or 0.0,
        values.get("for"),
    )


def _make_request(given: dict[str, Any]) -> DrillRequest:
    where = (given.get("node"), given.get("rank"))
    when = (given.get("for"), given.get("after"), given.get("at_step"))
    settings = {key: given[key] for key in _SETTINGS if key in given}
    return DrillRequest("", given["kind"], "", *where, *when, settings or None)


def _explain_mistake(request: DrillRequest, plan: Plan) -> str:
    kind = request.kind
    if request.at_step is not None and request.after_s is not None:
        return "a drill has 'at_step' or 'after', not both"
    if request.for_s is not None and not KINDS[kind].lasts:
        return f"a drill {kind!r} does not last: 'for' has no meaning"
    if request.for_s is None and KINDS[kind].lasts:
        return f"a drill {kind!r} lasts: say for how long by 'for'"
    node = 0 if request.node is None and request.rank is None and len(plan.nodes) == 1 else request.node
    why_not = explain_refusal(kind, plan)
    if why_not:
        return f"there can be no drill {kind!r} of this job: {why_not}"
    why_not = explain_target(kind, plan, node, request.rank, request.settings)
    if why_not:
        return f"drill {kind!r}: {why_not}"
    try:
        check_settings(kind, request.settings or {}, len(plan.nodes))
    except UsageError as error:
        return error.message
    return ""


def _locate(root: Mapping, index: int | None, what: str) -> Problem:
    from drumline.spec.reading.source import Sequence, problem_at

    node = root.get("drills")
    if index is not None and isinstance(node, Sequence):
        return problem_at(node.items[index], what, path=f"drills.{index}")
    return problem_at(node or root, what, path="drills")


def choose_begins(rehearsal: Rehearsal, last_step: int | None, seconds: float) -> Rehearsal:
    """
    Return the rehearsal with a begin for every drill: those that have none begin in the middle of the job, at a step
    where it logs steps, else at a time. ``last_step`` and ``seconds`` are of the undisturbed run.
    """
    chooser = random.Random(f"{rehearsal.seed} begins")  # noqa: S311 - the same choice for the same seed
    drills = []
    for one in rehearsal.drills:
        part = chooser.uniform(_EARLIEST, _LATEST)
        request = one.request
        if request.at_step is None and request.after_s is None:
            if last_step:
                request = request._replace(at_step=max(1, round(part * last_step)))
            else:
                request = request._replace(after_s=round(part * seconds, 3))
        drills.append(one._replace(request=request))
    return rehearsal._replace(drills=tuple(drills))
