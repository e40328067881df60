"""Chosen lines of a job's logs on a text stream: those written so far, and if wanted those that follow."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from drumline.contract.errors import UsageError
from drumline.contract.folder import RunFolder
from drumline.contract.plan import Plan
from drumline.contract.words import is_number, name_several, parse_ranges
from drumline.control.jobs.recovery import recover
from drumline.control.logs.follow import Follower
from drumline.control.logs.log_history import History
from drumline.control.logs.stream import Notices, has_ranks, labels_of, show_growth
from drumline.control.logs.stream_steps import show_steps

if TYPE_CHECKING:
    from drumline.contract.outcome import Outcome
    from drumline.control.logs.log_history import LogChoice
    from drumline.control.logs.stream_steps import LogView

_DEEPEST = 8


def check_choice(folder: RunFolder, choice: LogChoice, ranks: str, nodes: str) -> LogChoice:
    """Return the choice of these ranks and nodes. Raises UsageError for what the job lacks."""
    if has_ranks(folder):
        latest = len(recover(folder).attempts)
        if choice.attempt is not None and not 0 <= choice.attempt <= latest:
            there = "only attempt 0" if latest == 0 else f"attempts 0 to {latest}"
            raise UsageError(f"--attempt: there is no attempt {choice.attempt}", f"this job has {there}")
        return choose_ranks(Plan.read(folder.plan), choice, ranks, nodes)
    for option, value in (("rank", ranks), ("node", nodes), ("attempt", choice.attempt)):
        if value not in ("", None):
            raise UsageError(
                f"--{option}: this job has no ranks, its steps have", "drumline job logs NAME_OF_A_STEPS_JOB"
            )
    return choice


def choose_ranks(plan: Plan, choice: LogChoice, ranks: str, nodes: str) -> LogChoice:
    """Return the choice of these ranks and nodes: ``0,3-5``; empty: all. Raises UsageError for one it lacks."""
    return choice._replace(labels=labels_of(ranks, plan, "--rank"), nodes=_nodes_of(nodes, plan))


def print_logs(folder: RunFolder, view: LogView, prefix: str = "", depth: int = 0) -> None:
    """Write what was written so far; of a pipeline or a sweep, step after step. Raises BrokenPipeError."""
    outcome = recover(folder)
    if has_ranks(folder):
        plan = Plan.read(folder.plan)
        history = History(folder, plan, view.choice, len(outcome.attempts), raw=view.is_raw)
        _write_history(history, view, prefix, many=len(plan.ranks) > 1)
        return
    for step in list(outcome.steps.values()):
        inner = RunFolder.for_job(step.job) if step.job and not step.detail.get("reused") else None
        if inner is not None and inner.exists() and depth < _DEEPEST:
            print_logs(inner, view, f"{prefix}[{step.step}] ", depth + 1)


def follow_logs(folder: RunFolder, view: LogView) -> Outcome:
    """Write what was written so far, then every line until the job has ended. Blocks. Raises BrokenPipeError."""
    if not has_ranks(folder):
        return show_steps(folder, view)
    plan = Plan.read(folder.plan)
    known = recover(folder)
    many = len(plan.ranks) > 1
    history = History(folder, plan, view.choice, len(known.attempts), raw=view.is_raw, follows=True)
    follower = Follower(folder, plan, history.labels, raw=view.is_raw)
    follower.begin_at(history.take_open())
    notices = Notices(folder, told=len(known.attempts))
    _write_history(history, view, "", many=many)
    return show_growth(
        folder,
        follower,
        notices,
        lambda block: view.write(view.choose_prefix(block, many=many), block.lines),
        view.flush,
    )


def _write_history(history: History, view: LogView, prefix: str, *, many: bool) -> None:
    for block in history.blocks():
        view.write(prefix + view.choose_prefix(block, many=many), block.lines, block.time)
    view.flush()


def explain_link(folder: RunFolder) -> str:
    """Return why no line is shown although there may be some; empty if the logs are where the job was to write them."""
    if os.path.islink(folder.user_logs):
        return f"user_logs of job {folder.name} is a link, which is not followed"
    return ""


def _nodes_of(nodes: str, plan: Plan) -> frozenset[int] | None:
    """Return the nodes that ``0,2-3`` names; None for all. Raises UsageError."""
    if not nodes:
        return None
    labels = parse_ranges(nodes)
    for label in labels:
        if not is_number(label):
            raise UsageError(f"--node: {label!r} is not a node", "--node 0,2-3")
    chosen = set(map(int, labels))
    missing = sorted(chosen - {node.node for node in plan.nodes})
    if missing:
        there = name_several("node", [node.node for node in plan.nodes])
        raise UsageError(f"--node: there is no node {missing[0]}", f"this job has {there}")
    return frozenset(chosen)
