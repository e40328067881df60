"""A JobFacts, and a list of jobs, as pages in a notebook."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from drumline.contract import folder, status
from drumline.contract.errors import DrumlineError
from drumline.contract.words import format_count, format_duration, format_number
from drumline.control.facts.job import read_facts
from drumline.control.facts.metrics import draw_course, read_metrics
from drumline.sdk.notebook import look
from drumline.sdk.notebook.look import Markup, join, shorten, tag

if TYPE_CHECKING:
    from collections.abc import Sequence

    from drumline.contract.outcome import Outcome, RankOutcome
    from drumline.control.facts.job import JobFacts
    from drumline.control.facts.jobs import JobOverview
    from drumline.control.facts.parts import StepFacts, TrialFacts
    from drumline.tracking.metrics import Series

_MOST_NUMBERED = 256
"""With more ranks, their cells are small and have no numbers."""

_MOST_CELLS = 2048
_MOST_METRICS = 8
_MOST_TRIALS = 20
_MOST_PARAMETERS = 6
_MOST_STEPS = 200
_MOST_WARNINGS = 10
_COURSE_WIDTH = 20
_METRICS_S = 2.0


def render_current(name: str, workspace: str | None) -> Markup | None:
    """Return the page of a stored job, as it is now; None for one that is gone. ``workspace``: as of ``folder``."""
    with folder.workspace(workspace):
        try:
            facts = read_facts(name)
            # The trials of a sweep have theirs in its table.
            is_sweep = facts.outcome.kind == "sweep"
            series = () if is_sweep else read_metrics(facts.folder, (), _METRICS_S).series
            return render_job(facts, series, facts.failed_rank.last_lines if facts.failed_rank else ())
        except (DrumlineError, OSError):
            return None


def render_job(
    facts: JobFacts, series: Sequence[Series] = (), lines: Sequence[str] = (), preparing: str = ""
) -> Markup:
    """
    Return the page of a job. ``series``: what it has logged. ``lines``: of its log. ``preparing``: what takes long
    before its ranks start.
    """
    outcome = facts.outcome
    reason = outcome.hang or outcome.reason or preparing
    is_multiline = "\n" in reason
    return look.box(
        _head(facts),
        look.block(shorten(reason, 1000), style="white-space:pre-wrap" if is_multiline else "")
        if reason
        else "",
        *(look.block(shorten(f"warning: {text}", 1000)) for text in facts.warnings[:_MOST_WARNINGS]),
        _steps(facts.steps),
        _trials(facts.trials, facts.objective.metric) if facts.trials else "",
        _ranks(outcome),
        _metrics(series) if outcome.kind != "sweep" else "",
        look.lines_of(lines) if lines else "",
        _next(facts),
    )


def _head(facts: JobFacts) -> Markup:
    name, shown, outcome = facts.name, facts.display_name, facts.outcome
    words = [_describe_size(facts), format_duration(outcome.run_seconds(time.time()))]
    words += [f"on {facts.spec['compute']}"] if facts.spec.get("compute") else []
    words += [f"attempt {len(outcome.attempts)}"] if outcome.attempts else []
    return join(
        look.badge(outcome.status),
        " ",
        tag("strong", shorten(name, 80)),
        " ",
        look.quiet(shorten(shown, 80), " · ") if shown != name else "",
        look.quiet(" · ".join(word for word in words if word not in ("", "-"))),
    )


def _describe_size(facts: JobFacts) -> str:
    """Return nodes and processes, trials or steps: ``2 nodes x 4``."""
    if facts.outcome.kind != "command":
        return format_count(len(facts.parts), "trial" if facts.outcome.kind == "sweep" else "step")
    counts = facts.ranks_by_node
    return f"{format_count(len(counts), 'node')} x {max(counts)}" if counts else ""


# the ranks of a job


def _ranks(outcome: Outcome) -> Markup:
    ranks = [rank for _, rank in sorted(outcome.ranks.items())]
    if not ranks:
        return Markup("")
    by_node: dict[int, list[RankOutcome]] = {}
    for rank in ranks[:_MOST_CELLS]:
        by_node.setdefault(rank.node, []).append(rank)
    is_small = len(ranks) > _MOST_NUMBERED
    rows = [
        tag(
            "div",
            tag("span", f"node-{node}", style="display:inline-block;min-width:5em;opacity:.7;font-size:85%"),
            *(_cell(rank, outcome.failed_rank, is_small) for rank in members),
        )
        for node, members in sorted(by_node.items())
    ]
    return look.block(*rows, _more(len(ranks) - _MOST_CELLS, "ranks"), style="line-height:1.3")


def _cell(rank: RankOutcome, failed: int | None, is_small: bool) -> Markup:
    colour = {"running": look.BLUE, "done": look.GREEN}.get(
        rank.state, look.RED if failed in (None, rank.rank) else look.GREY
    )
    size = "width:.7em;height:.7em" if is_small else "min-width:2em;padding:0 .2em;font-size:80%"
    style = f"display:inline-block;{size};margin:1px;border-radius:3px;text-align:center;color:#fff;background:{colour}"
    number = "" if is_small else rank.rank
    return tag("span", number, title=f"rank {rank.rank} on node {rank.node}: {rank.state}", style=style)


def _more(count: int, noun: str) -> Markup:
    return look.quiet(f"and {count} more {noun}") if count > 0 else Markup("")


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
    return join(look.table(heads, rows), _more(len(series) - _MOST_METRICS, "metrics"))


# sweeps and pipelines


def _trials(trials: Sequence[TrialFacts], metric_name: str) -> Markup:
    names = list(dict.fromkeys(str(key) for trial in trials for key in trial.params))[:_MOST_PARAMETERS]
    rows = []
    ranked = sorted(trials, key=lambda trial: (trial.rank is None, trial.rank or 0))
    for trial in ranked[:_MOST_TRIALS]:
        name, metric = shorten(trial.trial, 50), format_number(trial.metric)
        state = "Stopped early" if trial.stopped_early else trial.status
        is_best = trial.rank == 1
        rows.append(
            (
                tag("strong", name) if is_best else name,
                tag("span", state, style=f"color:{look.choose_colour(trial.status)}"),
                trial.rank or "-",
                tag("strong", metric) if is_best else metric,
                *(shorten(_parameter(trial.params.get(name)), 30) for name in names),
            )
        )
    heads = [
        ("trial", False),
        ("status", False),
        ("rank", True),
        (shorten(metric_name or "metric", 30), True),
    ]
    heads += [(shorten(name, 30), True) for name in names]
    return join(look.table(heads, rows), _more(len(trials) - _MOST_TRIALS, "trials"))


def _parameter(value: Any) -> str:
    return format_number(value) if value is None or isinstance(value, float) else str(value)


def _steps(steps: Sequence[StepFacts]) -> Markup:
    if not steps:
        return Markup("")
    rows = [
        (
            shorten(step.step, 50),
            look.badge("Reused" if step.reused else step.status),
            shorten(", ".join(map(str, step.needs)) or "-", 50),
            shorten(step.job or "-", 50),
            shorten(step.reason, 80),
        )
        for step in steps[:_MOST_STEPS]
    ]
    heads = [("step", False), ("status", False), ("needs", False), ("job", False), ("", False)]
    return join(look.table(heads, rows), _more(len(steps) - _MOST_STEPS, "steps"))


def _next(facts: JobFacts) -> Markup:
    outcome = facts.outcome
    if outcome.status == status.FAILED and outcome.kind == "command" and outcome.failed_rank is not None:
        return look.next_step(f'ml_client.jobs.logs("{facts.name}", rank={outcome.failed_rank}, tail=50)')
    return Markup("") if outcome.is_final else look.next_step(f'ml_client.jobs.stream("{facts.name}")')


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
