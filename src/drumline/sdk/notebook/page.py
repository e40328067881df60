"""A job as a page in a notebook."""

from __future__ import annotations

import time
from datetime import datetime
from typing import TYPE_CHECKING, Any

from drumline.contract import status
from drumline.contract.words import format_count, format_duration, format_number
from drumline.control.facts.metrics import draw_course
from drumline.sdk.notebook import look
from drumline.sdk.notebook.markup import Markup, join, shorten, tag

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from drumline.control.facts.jobs import JobOverview
    from drumline.tracking.series import Series

_MOST_NUMBERED = 256
"""With more ranks, their cells are small and have no numbers."""

_MOST_CELLS = 2048
_MOST_METRICS = 8
_MOST_TRIALS = 20
_MOST_PARAMETERS = 6
_MOST_STEPS = 200
_COURSE_WIDTH = 20


def render_job(
    described: Mapping[str, Any], series: Sequence[Series] = (), lines: Sequence[str] = ()
) -> Markup:
    """
    Return the page of a job.

    ``described``: as ``description.describe`` returns it. ``series``: what it has logged. ``lines``: of its log.
    """
    parts = [_head(described), _reason(described)]
    if described["type"] == "pipeline":
        parts.append(_steps(described.get("steps") or ()))
    elif described["type"] == "sweep":
        parts.append(_trials(described))
    else:
        parts.append(_ranks(described))
    if described["type"] != "sweep":
        parts.append(_metrics(series))
    if lines:
        parts.append(look.lines_of(lines))
    parts.append(_next(described))
    return look.box(*parts)


def _head(described: Mapping[str, Any]) -> Markup:
    name = str(described["name"])
    shown = str(described.get("display_name") or name)
    facts = [describe_size(described), format_duration(run_seconds(described))]
    facts += [f"on {described['compute']}"] if described.get("compute") else []
    facts += [f"attempt {described['attempt']}"] if described.get("attempt") else []
    return join(
        look.badge(str(described["status"])),
        " ",
        tag("strong", shorten(name, 80)),
        " ",
        look.quiet(shorten(shown, 80), " · ") if shown != name else "",
        look.quiet(" · ".join(fact for fact in facts if fact not in ("", "-"))),
    )


def _reason(described: Mapping[str, Any]) -> Markup:
    """Return the verdict of a job that failed; of another why it waits, hangs or how it ended."""
    said = str(described.get("hang") or described.get("reason") or "")
    if not said:
        return Markup("")
    return look.block(shorten(said, 1000), style="white-space:pre-wrap" if "\n" in said else "")


def describe_size(described: Mapping[str, Any]) -> str:
    """Return nodes and processes, trials or steps: ``2 nodes x 4``."""
    for key, word in (("trials", "trial"), ("steps", "step")):
        if described["type"] in ("sweep", "pipeline") and key in described:
            count = len(described[key] or ())
            return format_count(count, word)
    ranks = described.get("ranks") or ()
    if ranks:
        nodes = len({rank["node"] for rank in ranks})
        each = -(-len(ranks) // nodes)
    else:
        nodes = _count(described.get("resources"), "instance_count")
        each = _count(described.get("distribution"), "process_count_per_instance")
    return f"{format_count(nodes, 'node')} x {each}"


def _count(part: object, name: str) -> int:
    value = part.get(name) if isinstance(part, dict) else None
    return value if isinstance(value, int) and value > 0 else 1


def run_seconds(described: Mapping[str, Any]) -> float | None:
    """Return for how long its ranks ran, or have run; None before that."""
    begun, ended = (_seconds_of(described.get(key)) for key in ("started_at", "ended_at"))
    if begun is None or (ended is None and described["status"] in status.TERMINAL):
        return None
    return (time.time() if ended is None else ended) - begun


def _seconds_of(when: object) -> float | None:
    try:
        return datetime.fromisoformat(str(when)).timestamp() if when else None
    except ValueError:
        return None


# the ranks of a job


def _ranks(described: Mapping[str, Any]) -> Markup:
    ranks = described.get("ranks") or ()
    if not ranks:
        return Markup("")
    by_node: dict[int, list[Mapping[str, Any]]] = {}
    for rank in ranks[:_MOST_CELLS]:
        by_node.setdefault(rank["node"], []).append(rank)
    is_small = len(ranks) > _MOST_NUMBERED
    rows = [
        tag(
            "div",
            tag("span", f"node-{node}", style="display:inline-block;min-width:5em;opacity:.7;font-size:85%"),
            *(_cell(rank, described.get("failed_rank"), is_small) for rank in members),
        )
        for node, members in sorted(by_node.items())
    ]
    more = len(ranks) - _MOST_CELLS
    return look.block(
        *rows, look.quiet(f"and {more} more ranks") if more > 0 else "", style="line-height:1.3"
    )


def _cell(rank: Mapping[str, Any], failed: int | None, is_small: bool) -> Markup:
    state = str(rank["state"])
    if state == "running":
        colour = look.BLUE
    elif state == "done":
        colour = look.GREEN
    else:
        colour = look.RED if failed in (None, rank["rank"]) else look.GREY
    size = "width:.7em;height:.7em" if is_small else "min-width:2em;padding:0 .2em;font-size:80%"
    style = f"display:inline-block;{size};margin:1px;border-radius:3px;text-align:center;color:#fff;background:{colour}"
    number = "" if is_small else rank["rank"]
    return tag("span", number, title=f"rank {rank['rank']} on node {rank['node']}: {state}", style=style)


# metrics


def _metrics(series: Sequence[Series]) -> Markup:
    if not series:
        return Markup("")
    rows = []
    for one in series[:_MOST_METRICS]:
        figures = one.figures()
        name = f"{one.name} ({one.run})" if one.run else one.name
        last = figures.last
        rows.append(
            (
                shorten(name, 60),
                draw_course(one, _COURSE_WIDTH, in_blocks=True),
                format_number(last.value if last else None),
                last.step if last else "-",
                format_number(figures.lowest),
                format_number(figures.highest),
            )
        )
    heads = [("metric", False), ("", False), ("last", True), ("step", True), ("min", True), ("max", True)]
    more = len(series) - _MOST_METRICS
    return join(look.table(heads, rows), look.quiet(f"and {more} more metrics") if more > 0 else "")


# sweeps and pipelines


def _trials(described: Mapping[str, Any]) -> Markup:
    trials = sorted(
        described.get("trials") or (), key=lambda one: (one.get("rank") is None, one.get("rank") or 0)
    )
    if not trials:
        return Markup("")
    names = list(dict.fromkeys(str(key) for trial in trials for key in trial.get("params") or ()))[
        :_MOST_PARAMETERS
    ]
    rows = []
    for trial in trials[:_MOST_TRIALS]:
        params = trial.get("params") or {}
        is_best = trial.get("rank") == 1
        metric = format_number(trial.get("metric"))
        state = "Stopped early" if trial.get("stopped_early") else str(trial.get("status") or "")
        rows.append(
            (
                tag("strong", shorten(trial["trial"], 50)) if is_best else shorten(trial["trial"], 50),
                tag("span", state, style=f"color:{look.choose_colour(str(trial.get('status')))}"),
                trial.get("rank") or "-",
                tag("strong", metric) if is_best else metric,
                *(shorten(_parameter(params, name), 30) for name in names),
            )
        )
    metric_name = "metric"
    objective = described.get("objective")
    if isinstance(objective, dict) and objective.get("primary_metric"):
        metric_name = shorten(objective["primary_metric"], 30)
    heads = [("trial", False), ("status", False), ("rank", True), (metric_name, True)]
    heads += [(shorten(name, 30), True) for name in names]
    more = len(trials) - _MOST_TRIALS
    return join(look.table(heads, rows), look.quiet(f"and {more} more trials") if more > 0 else "")


def _parameter(params: Mapping[str, Any], name: str) -> str:
    value = params.get(name)
    return format_number(value) if value is None or isinstance(value, float) else str(value)


def _steps(steps: Sequence[Mapping[str, Any]]) -> Markup:
    if not steps:
        return Markup("")
    rows = [
        (
            shorten(step["step"], 50),
            look.badge("Reused" if step.get("reused") else str(step["status"])),
            shorten(", ".join(map(str, step.get("needs") or ())) or "-", 50),
            shorten(step.get("job") or "-", 50),
            shorten(step.get("reason") or "", 80),
        )
        for step in steps[:_MOST_STEPS]
    ]
    more = len(steps) - _MOST_STEPS
    heads = [("step", False), ("status", False), ("needs", False), ("job", False), ("", False)]
    return join(look.table(heads, rows), look.quiet(f"and {more} more steps") if more > 0 else "")


def _next(described: Mapping[str, Any]) -> Markup:
    name, state = described["name"], described["status"]
    if state == status.FAILED and described["type"] == "command" and described.get("failed_rank") is not None:
        return look.next_step(f'ml_client.jobs.logs("{name}", rank={described["failed_rank"]}, tail=50)')
    if state not in status.TERMINAL:
        return look.next_step(f'ml_client.jobs.stream("{name}")')
    return Markup("")


# lists


def render_jobs(jobs: Sequence[JobOverview], total: int) -> Markup:
    """Return a table of jobs. ``total``: how many the list has."""
    if not jobs:
        return look.quiet("no jobs")
    now = time.time()
    rows = [
        (
            tag("strong", shorten(job.name, 60)),
            format_duration(None if job.created is None else now - job.created),
            format_duration(None if job.started is None else (job.ended or now) - job.started),
            shorten(job.size, 20),
            shorten(job.compute, 30),
            shorten(f"{job.metric[0]} {format_number(job.metric[1])}", 40) if job.metric else "-",
            look.badge(job.status),
            shorten(job.reason, 80),
        )
        for job in jobs
    ]
    heads = [("name", False), ("age", True), ("time", True), ("size", True), ("compute", False)]
    heads += [("metric", False), ("status", False), ("", False)]
    note = f"{len(jobs)} of {total} jobs" if total > len(jobs) else ""
    return join(look.table(heads, rows), look.quiet(note) if note else "")
