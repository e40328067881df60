"""
The ranks of an attempt: which began a failure, which were only cut off by it, and with which variables they start.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from drumline.contract import events as e
from drumline.contract import status
from drumline.contract.errors import UsageError
from drumline.contract.hiding import HIDDEN, hide_in_text, is_secret
from drumline.contract.outcome import fold
from drumline.contract.rank_variables import RankVariables
from drumline.contract.record import ABSENT, NamedTuple
from drumline.contract.words import format_count
from drumline.control import terminal
from drumline.control.answer_cache import KeptAnswers, stamp_files
from drumline.control.facts import usage
from drumline.control.facts.steps import may_have_steps, read_steps
from drumline.control.jobs.job_outcome import read_outcome
from drumline.control.jobs.lookup import folder_of, read_plan
from drumline.control.logs.rank_log import find_path, read_end
from drumline.control.times import utc

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from drumline.contract.folder import RunFolder
    from drumline.contract.outcome import Outcome
    from drumline.contract.plan import Plan
    from drumline.contract.record import Absent


WAITING, STARTING, RUNNING, COMPLETED = "waiting", "starting", "running", "completed"
FAILED_FIRST, FAILED, CUT_OFF, STOPPED, LOST = "failed_first", "failed", "cut_off", "stopped", "lost"
_ORDER = (FAILED_FIRST, FAILED, LOST, CUT_OFF, STOPPED, RUNNING, STARTING, WAITING, COMPLETED)
_STATE_WORDS = {FAILED_FIRST: "failed first", CUT_OFF: "cut off"}
_TAIL_BYTES = 4096
_LONGEST_LINE = 300
_MOST_ANSWER_BYTES = 1 << 19
_BEFORE_RANKS = (status.NOT_STARTED, status.QUEUED, status.PREPARING, status.PROVISIONING)


class Attempt(NamedTuple):
    """One attempt of a job. ``outcome``: as it was at its end, or is now."""

    number: int
    latest: int
    outcome: Outcome
    verdict: Mapping[str, Any]
    reason: str
    ended: float | None
    is_over: bool
    was_asked_to_end: bool
    """By a cancel, a preemption, or because it hung."""

    lost_nodes: frozenset[int]

    @property
    def is_latest(self) -> bool:
        return self.number == self.latest


def read_attempt(folder: RunFolder, number: int | None = None) -> Attempt:
    """Return an attempt, counted from 0; None: the latest. Raises NotFoundError, UsageError for one that was not."""
    current = read_outcome(folder)
    latest = len(current.attempts)
    chosen = latest if number is None else number
    if not 0 <= chosen <= latest:
        there = "only attempt 0" if latest == 0 else f"attempts 0 to {latest}"
        raise UsageError(f"job {folder.name} has no attempt {number}", f"it has {there}")
    stops = (e.CancelRequested, e.Preempted, e.JobHung)
    events = list(cut_attempt(folder.read_events(e.AttemptEnded, e.NodeLost, *stops), chosen))
    lost = frozenset(event.node for event in events if isinstance(event, e.NodeLost))
    asked = any(isinstance(event, stops) for event in events)
    if chosen == latest:
        verdict, reason = current.verdict or {}, current.reason
        return Attempt(chosen, latest, current, verdict, reason, current.ended, current.is_final, asked, lost)
    end = current.attempts[chosen]
    before = fold(cut_attempt(folder.read_events(), chosen, with_earlier=True))
    return Attempt(chosen, latest, before, end.verdict or {}, end.reason, end.time, True, asked, lost)


def cut_attempt(events: Iterable[e.Event], number: int, *, with_earlier: bool = False) -> Iterable[e.Event]:
    """Yield the events of an attempt, counted from 0, without the one that ends it."""
    at = 0
    for event in events:
        if isinstance(event, e.AttemptEnded):
            if at == number:
                return
            at += 1
            if with_earlier:
                yield event
        elif at == number or with_earlier:
            yield event


class RankFacts(NamedTuple):
    """
    A rank of an attempt. ``cpu``: percent of a core; ``memory``: bytes; ``gpu``: percent; of a job that has ended they
    are means and peaks. ``lateness`` and ``step``: milliseconds in the last minute.
    """

    rank: int
    label: str
    node: int
    local_rank: int
    state: str
    exit_code: int | None
    signal: int | None
    began: str | None
    ended: str | None
    pid: int | None
    cpu: float | None
    memory: int | None
    gpu: float | None
    lateness: float | None
    step: float | None
    last_line: str


class _Use(NamedTuple):
    cpu: float | None = None
    memory: int | None = None
    gpu: float | None = None


_NO_USE = _Use()


class NodeRanks(NamedTuple):
    index: int  # type: ignore[assignment]
    name: str
    ranks: list[int]


class AttemptRanks(NamedTuple):
    """The ranks of an attempt, and its nodes; ``sentence`` sums them up. ``attempts``: absent without a plan."""

    sentence: str
    attempt: int
    attempts: int | Absent
    nodes: list[NodeRanks]
    ranks: list[RankFacts]


def describe_ranks(name: str, attempt: int | None = None) -> AttemptRanks:
    """Describe the ranks of an attempt. Raises NotFoundError, UsageError."""
    folder = folder_of(name)

    def make() -> tuple[AttemptRanks, float | None]:
        shown = read_attempt(folder, attempt)
        return _describe(folder, shown), None if shown.is_over else 0.0

    return _answers.get_or_make((folder.path, attempt), stamp_files([folder.events, folder.plan]), make)


def _describe(folder: RunFolder, shown: Attempt) -> AttemptRanks:
    outcome = shown.outcome
    if outcome.kind != "command" or not os.path.exists(folder.plan):
        what = f"job {folder.name} is a {outcome.kind}: it has jobs, and those have ranks"
        sentence = what if outcome.kind != "command" else f"job {folder.name} has no plan yet"
        return AttemptRanks(sentence, shown.number, ABSENT, [], [])
    plan = read_plan(folder)
    states = find_states(plan, shown)
    used = _find_use(folder, shown)
    paces = _find_paces(folder, shown)
    ranks = []
    for node in plan.nodes:
        for task in node.ranks:
            known, use = outcome.ranks.get(task.rank), used.get(task.rank, _NO_USE)
            ranks.append(
                RankFacts(
                    *(task.rank, task.label, node.node, task.local_rank, states[task.rank]),
                    *((known.code, known.signal) if known else (None, None)),
                    utc(known.started) if known else None,
                    utc(known.ended) if known else None,
                    known.pid if known else None,
                    use.cpu,
                    use.memory,
                    use.gpu,
                    *paces.get(task.rank, (None, None)),
                    _read_last_line(os.path.join(folder.path, task.log), shown),
                )
            )
    nodes = [
        NodeRanks(
            node.node, outcome.hosts.get(node.node) or f"node {node.node}", [task.rank for task in node.ranks]
        )
        for node in plan.nodes
    ]
    sentence = _summarize(shown, states, len(plan.nodes))
    ranks.sort(key=lambda one: one.rank)
    return AttemptRanks(sentence, shown.number, shown.latest + 1, nodes, ranks)


_answers = KeptAnswers(_MOST_ANSWER_BYTES)
"""Of attempts that are over: 512 ranks are 512 logs to look into."""


# states


def find_states(plan: Plan, shown: Attempt) -> dict[int, str]:
    """Return the state of each rank of the plan."""
    first = _find_first(shown)
    return {
        task.rank: _find_state(shown, task.rank, node.node, first)
        for node in plan.nodes
        for task in node.ranks
    }


def _find_first(shown: Attempt) -> int | None:
    """Return the rank that failed first: by the verdict, else the earliest of those whose exit code is not 0."""
    if shown.verdict:
        return shown.verdict.get("rank")
    if shown.is_over or shown.was_asked_to_end:
        return shown.outcome.failed_rank if shown.is_latest else None
    failed = [rank for rank in shown.outcome.ranks.values() if rank.ended is not None and rank.code != 0]
    return min(failed, key=lambda rank: rank.ended or 0.0).rank if failed else None


def _find_state(shown: Attempt, number: int, node: int, first: int | None) -> str:
    rank = shown.outcome.ranks.get(number)
    if number == first:
        return FAILED_FIRST
    if rank is None:
        if shown.is_over:
            return STOPPED
        return WAITING if shown.outcome.status in _BEFORE_RANKS else STARTING
    if rank.ended is None:
        if not shown.is_over and node not in shown.lost_nodes:
            return STARTING if shown.outcome.status == status.STARTING else RUNNING
        return LOST
    if rank.code == 0:
        return COMPLETED
    for group, state in (("cut_off", CUT_OFF), ("stopped", STOPPED), ("failed_too", FAILED)):
        if number in (shown.verdict.get(group) or ()):
            return state
    return STOPPED if shown.was_asked_to_end and not shown.verdict else FAILED


def _summarize(shown: Attempt, states: Mapping[int, str], nodes: int) -> str:
    if shown.is_over and shown.reason:
        return shown.reason
    if shown.outcome.hang:
        return shown.outcome.hang
    counts = {state: list(states.values()).count(state) for state in _ORDER}
    said = [f"{count} {_STATE_WORDS.get(state, state)}" for state, count in counts.items() if count]
    return f"{format_count(len(states), 'rank')} on {format_count(nodes, 'node')}: {', '.join(said)}"


# use and lines


def _find_use(folder: RunFolder, shown: Attempt) -> dict[int, _Use]:
    """Return what each rank of the latest attempt uses, or has used."""
    if not shown.is_latest or not shown.outcome.ranks:
        return {}

    cpu, memory = (
        ("mean_cpu_percent", "peak_memory_bytes") if shown.is_over else ("cpu_percent", "memory_bytes")
    )
    return {
        one["rank"]: _Use(one.get(cpu), one.get(memory), one.get("gpu_busy_percent"))
        for one in usage.describe_usage(folder, shown.outcome).ranks or ()
    }


def _find_paces(folder: RunFolder, shown: Attempt) -> dict[int, tuple[float | None, float | None]]:
    """Return by how much each rank is later than the others, and what its steps take, in milliseconds."""
    if not shown.outcome.ranks or not may_have_steps(folder):
        return {}
    paces = read_steps(folder.path, shown.number, is_recent=True).keep_recent().find_paces()
    return {
        rank: (
            None if pace.late_s is None else round(max(0.0, 1000 * pace.late_s), 3),
            None if pace.step_s is None else round(1000 * pace.step_s, 3),
        )
        for rank, pace in paces.items()
    }


def _read_last_line(path: str, shown: Attempt) -> str:
    """Return the end of a log that is not blank, as a person is shown it."""
    path = find_path(path, None if shown.is_latest else shown.number)
    lines = read_end(path, _TAIL_BYTES).replace(b"\r", b"\n").split(b"\n")
    last = next((line for line in reversed(lines) if line.strip()), b"")
    return terminal.clean_lines(last)[:_LONGEST_LINE]


# variables


_MOST_TEXT = 1 << 20
"""Characters of the plan's texts in the variables of all ranks; of more the references are shown."""


class _Facts(dict[str, str]):
    """Facts about placed nodes; an unknown name stays as it stands in the plan."""

    def __missing__(self, name: str) -> str:
        return f"${{{name}}}"


class VariableValue(NamedTuple):
    ranks: list[int]
    value: str | None


class DifferingVariable(NamedTuple):
    name: str
    values: list[VariableValue]


class JobVariables(NamedTuple):
    """The variables that the plan gives to the ranks; a rank inherits others from the machine."""

    sentence: str
    ranks: Sequence[int] = ()
    common: Mapping[str, str] = {}
    differing: Sequence[DifferingVariable] = ()


def describe_variables(name: str) -> JobVariables:
    """Return the variables of the ranks, with those of secrets hidden. Raises NotFoundError."""
    folder = folder_of(name)
    if not os.path.exists(folder.plan):
        return JobVariables(f"job {name} has no ranks of its own")
    plan = read_plan(folder)
    network = read_outcome(folder).network
    facts = _Facts({f"node_{node}": at for node, at in enumerate(network.addresses)} if network else {})
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
                DifferingVariable(variable, [VariableValue(ranks, value) for value, ranks in values.items()])
            )
    count = len(by_rank)
    sentence = f"{len(common)} variables are the same for all {count} ranks, {len(differing)} differ"
    if count == 1:
        sentence = f"the plan gives {len(common)} variables to the rank"
    return JobVariables(sentence, sorted(by_rank), common, differing)


def _show(name: str, value: str | None, plan: Plan) -> str | None:
    if name in plan.secrets or (value is not None and is_secret(name)):
        return HIDDEN
    return value if value is None else hide_in_text(value)
