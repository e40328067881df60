"""
What a job is warned of: what its supervisor and its agents have seen, and of one that has completed, what says that it
did less than was asked. All surfaces have it from here.
"""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from typing import TYPE_CHECKING

from drumline.contract import events as e
from drumline.contract import status
from drumline.contract.plan import OUTPUT_VARIABLE
from drumline.contract.words import format_count, format_seconds, name_several
from drumline.control.jobs.lookup import find_plan

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from drumline.contract.folder import RunFolder
    from drumline.contract.outcome import Outcome
    from drumline.contract.plan import Plan

_SHORT_S = 1.0
"""In which a program hardly imports what it needs to train, unless it starts warm."""

_MOST_GROUPS = 3
_MOST_NAMED = 3
_EVENTS_S = 0.5


def list_warnings(folder: RunFolder, outcome: Outcome) -> list[e.JobWarned]:
    """
    List what the job is warned of.

    ``kind`` of what is only told of a job that has completed: ranks (they trained apart), signal (SIGTERM came),
    output (nobody wrote to it), nothing (no rank did anything that can be seen), metric (its last value is no finite
    number).
    """
    plan = find_plan(folder) if outcome.status == status.COMPLETED and outcome.ranks else None
    doubts = _list_doubts(folder, outcome, plan) if plan else ()
    return [*outcome.warnings, *(e.JobWarned(outcome.ended or 0.0, kind, text) for kind, text in doubts)]


def _list_doubts(folder: RunFolder, outcome: Outcome, plan: Plan) -> Iterator[tuple[str, str]]:
    apart = _compare_ranks(folder, outcome, len(plan.ranks))
    if apart:
        yield "ranks", apart
    stopped = [rank for rank in outcome.ranks.values() if rank.is_stopped]
    if stopped:
        where = f" on node {stopped[0].node}" if len(stopped) == 1 else ""
        who = name_several("rank", sorted(rank.rank for rank in stopped)) + where
        yield "signal", f"{who} ended with exit code 0 after SIGTERM; it is not known who sent it"
    for name in _list_unwritten(folder, outcome, plan):
        yield "output", f"no rank wrote to output {name}"
    took_s = max((rank.ended or math.inf) - (rank.started or 0.0) for rank in outcome.ranks.values())
    has_tracked = _has_tracked(plan)
    if took_s >= _SHORT_S or has_tracked:
        yield from _list_lost_metrics(folder, outcome)
    elif _is_to_train(plan) and not _has_written(folder, outcome, plan):
        who = "the rank" if len(plan.ranks) == 1 else f"all {len(plan.ranks)} ranks"
        yield "nothing", f"{who} ended within {format_seconds(took_s)}, without a line of log or an output"


def _is_to_train(plan: Plan) -> bool:
    """Return whether a job is to leave a trace: of a job file, and with several ranks or a Python program."""
    # What `drumline run` starts is no command of a shell.
    is_command = plan.argv[-3:-1] == ("/bin/bash", "-c")
    is_python = re.search(r"\bpython[\d.]*\b", plan.argv[-1]) is not None
    return is_command and not plan.launcher and (is_python or len(plan.ranks) > 1)


# ranks that did not train alike


def _compare_ranks(folder: RunFolder, outcome: Outcome, count: int) -> str:
    """
    Return the sentence about ranks that train one model and did not do the same; empty where nothing says so.

    Each rank of a process group enters the collectives of all its ranks as often as any other, unless another has left.
    Numbers of steps alone say nothing: programs may have several roles, or ranks that train apart for a while.
    """
    entered = {
        number: rank.collectives for number, rank in outcome.ranks.items() if rank.collectives is not None
    }
    worlds = {rank.world for rank in outcome.ranks.values() if rank.world}
    if len(entered) < count or len(worlds) != 1 or min(worlds) < count or len(set(entered.values())) == 1:
        return ""
    steps = _count_steps(folder, len(outcome.attempts))
    if len(steps) == count and len(set(steps.values())) > 1:
        said = _describe_counts(steps, "step")
        return f"ranks that train one model made different numbers of steps: {said}"
    least = min(entered.values())
    left = [rank for rank, times in entered.items() if times == least]
    them = "it" if len(left) == 1 else "them"
    said = _describe_counts(entered, "collective")
    return f"{name_several('rank', left)} ended while others still waited for {them}: {said}"


def _count_steps(folder: RunFolder, attempt: int) -> dict[int, int]:
    """Return the steps that each rank made, of those that made any."""
    from drumline.control.facts.steps import read_steps

    ranks = read_steps(folder.path, attempt, is_recent=True).ranks
    return {rank: windows[-1].done for rank, windows in ranks.items()}


def _describe_counts(counts: Mapping[int, int], noun: str) -> str:
    """
    Describe counts, those of most ranks first.

    >>> _describe_counts({0: 36, 1: 36, 2: 36, 3: 34}, "step")
    'ranks 0-2 made 36 steps, rank 3 made 34'
    """
    verb = "made" if noun == "step" else "entered"
    groups = Counter(counts.values()).most_common(_MOST_GROUPS)
    said: list[str] = []
    for count, _ in groups:
        ranks = [rank for rank, other in sorted(counts.items()) if other == count]
        number = f"{count:,}" if said else format_count(count, noun)
        said.append(f"{name_several('rank', ranks)} {verb} {number}")
    more = len(set(counts.values())) - len(groups)
    return ", ".join(
        [*said, *([f"others between {min(counts.values()):,} and {max(counts.values()):,}"] if more else [])]
    )


# outputs and metrics


def _list_unwritten(folder: RunFolder, outcome: Outcome, plan: Plan) -> Iterator[str]:
    """
    Yield the names of declared outputs to which no rank wrote; ``default`` is one of every job of Azure's.

    A folder that is gone may have been moved or unmounted since.
    """
    for name, path in _list_places(plan).items():
        if name == "default" or "named-outputs" in outcome.pruned:
            continue
        uploaded = outcome.transfers.get(f"outputs.{name}")
        if any(upload.name == f"outputs.{name}" for upload in plan.uploads):
            # What was mounted is not there any more.
            if isinstance(uploaded, e.Transferred) and not uploaded.file_count and not uploaded.note:
                yield name
        elif os.path.isdir(path) and not _has_files(path):
            yield name


def _list_places(plan: Plan) -> dict[str, str]:
    """Return where declared outputs are on this machine; those of pods are on volumes, or too large to come here."""
    if plan.engine == "kubernetes":
        return {}
    places = {
        name.removeprefix(OUTPUT_VARIABLE): path
        for name, path in plan.user_env.items()
        if name.startswith(OUTPUT_VARIABLE)
    }
    return {name: path for name, path in places.items() if os.path.isabs(path)}


def _has_files(path: str) -> bool:
    """Return whether a path is a file, or a folder with one or a link in it, as far as is known."""
    if not os.path.isdir(path):
        return os.path.lexists(path)
    try:
        return any(
            files or any(os.path.islink(os.path.join(place, name)) for name in folders)
            for place, folders, files in os.walk(path, onerror=_raise)
        )
    except OSError:
        return True


def _raise(error: OSError) -> None:
    raise error


def _has_written(folder: RunFolder, outcome: Outcome, plan: Plan) -> bool:
    """Return whether a rank has written anything, as far as is known."""
    logs = (os.path.join(folder.path, task.log) for task in plan.ranks)
    places = {folder.outputs, *_list_places(plan).values()}
    is_unknown = outcome.pruned or plan.engine == "kubernetes"
    return bool(is_unknown) or any(map(_is_filled, logs)) or any(map(_has_files, places))


def _is_filled(path: str) -> bool:
    try:
        return os.stat(path).st_size > 0
    except OSError:
        return True


def _has_tracked(plan: Plan) -> bool:
    """Return whether the job's own run of MLflow has anything that a rank logged, or may have it at a server."""
    from drumline.contract.mlflow_variables import is_server
    from drumline.tracking import mlflow_files

    run_dir = mlflow_files.run_folder(plan.job, plan.user_env)
    places = (os.path.join(run_dir, name) for name in ("metrics", "params", "artifacts")) if run_dir else ()
    return is_server(plan.user_env.get("MLFLOW_TRACKING_URI", "")) or any(map(_has_files, places))


def _list_lost_metrics(folder: RunFolder, outcome: Outcome) -> Iterator[tuple[str, str]]:
    """Yield a sentence about metrics that ended as no finite number, of those that are in files."""
    from drumline.control.facts.metrics import read_event_points, read_latest

    latest: dict[str, float | str] = dict(read_latest(folder, in_files=True, outcome=outcome)[0])
    for name, points in read_event_points(folder, _EVENTS_S).items():
        latest.setdefault(name, points[-1].value)
    lost = [
        name for name, value in sorted(latest.items()) if isinstance(value, str) or not math.isfinite(value)
    ]
    if lost:
        more = f" and {len(lost) - _MOST_NAMED} more" if len(lost) > _MOST_NAMED else ""
        named = ", ".join(lost[:_MOST_NAMED]) + more
        yield "metric", f"the last value of {named} is no finite number"
