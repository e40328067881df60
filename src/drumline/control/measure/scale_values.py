"""
A report in sentences, each about one question, and as JSON can hold it; also in the run folders of the jobs that were
measured for it, for the studio.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drumline.contract.errors import NotFoundError
from drumline.contract.words import format_count, format_link, format_ms, format_size
from drumline.control.facts import parts
from drumline.control.measure import stragglers
from drumline.control.measure.refusals import GUESS_FACTOR, NO_PREDICTION
from drumline.control.measure.scale_prediction import is_hidden
from drumline.control.times import utc

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drumline.control.measure.measured_sizes import SizeFacts
    from drumline.control.measure.scale_report import Limit, MeasuredSize, PredictedSize, ScaleReport
    from drumline.control.measure.stragglers import Straggler


_WHOLE = 1000.0


def to_values(report: ScaleReport) -> dict[str, Any]:
    """Return a report as JSON can hold it."""
    model = report.model
    return {
        "job": report.title,
        "at": utc(report.at, "seconds"),
        "scaling": "strong" if report.strong else "weak",
        "measured": [_describe_measured(one, report) for one in report.measured],
        "predicted": [
            {
                "nodes": one.nodes,
                "ranks": one.ranks,
                "step_s": round(one.step_s, 6),
                "low_s": round(one.low_s, 6),
                "high_s": round(one.high_s, 6),
                "speed_up": _round(one.speed_up),
                "efficiency": _round(one.efficiency),
                "guess": one.is_guess,
            }
            for one in report.predicted
        ],
        "model": model
        and {
            "own_s": _round(model.own_s),
            "shared_s": _round(model.shared_s),
            "overlap_s": _round(model.overlap_s),
            "latency_s": _round(model.link.latency_s),
            "bytes_per_s": round(model.link.bytes_per_s) if report.knows_link else None,
            "bucket_bytes": [] if report.is_assumed else list(model.bucket_bytes),
            "doubt": _round(model.doubt),
        },
        "limit": None if report.limit is None else _round_all(report.limit._asdict()),
        "slowest_pair": None if report.slowest_pair is None else _round_all(report.slowest_pair._asdict()),
        "stragglers": [_round_all(one._asdict()) for one in report.stragglers],
        "refused": list(report.refused),
        "sentences": list_sentences(report),
    }


def _describe_measured(one: MeasuredSize, report: ScaleReport) -> dict[str, Any]:
    facts = one.facts
    described: dict[str, Any] = {
        "nodes": one.run.nodes,
        "ranks": one.run.ranks,
        "job": one.run.job,
        "refused": one.refused,
        "step_s": None if facts is None else round(facts.step_s, 6),
        "speed_up": _round(one.speed_up),
        "efficiency": _round(one.efficiency),
        "model_s": _round(one.model_s),
        "cpu_share": _round(one.run.cpu_share),
        "source": one.run.source,
        "stragglers": [_round_all(found._asdict()) for found in one.stragglers],
    }
    if facts is not None:
        described |= {
            "steps": facts.steps,
            "low_s": round(facts.band_s[0], 6),
            "high_s": round(facts.band_s[1], 6),
            "phases": {name: round(seconds, 6) for name, seconds in list_phases(facts)},
            "reduce_s": _round(facts.reduce_s),
            "overlap_s": _round(facts.overlap_s),
            "bytes": facts.size_bytes,
            "buckets": len(facts.bucket_bytes),
            "bytes_per_s": None if one.bytes_per_s is None or report.is_loopback else round(one.bytes_per_s),
        }
    return described


def _round_all(values: dict[str, Any]) -> dict[str, Any]:
    """Round the numbers that are no counts: seconds and shares to millionths, bytes a second to whole ones."""
    return {
        name: (round(value, 6) if abs(value) < _WHOLE else round(value))
        if isinstance(value, float)
        else value
        for name, value in values.items()
    }


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


_FILE = "scale.json"
_NUMBERS = ("step_s", "low_s", "high_s", "speed_up", "efficiency")


def keep_report(values: Mapping[str, Any]) -> None:
    """Write a report, as ``to_values`` returns it, into the run folder of each job that was measured for it."""
    parts.keep_report(_FILE, values, [size["job"] for size in values["measured"]])


def read_report(name: str) -> dict[str, Any]:
    """Return the report that a job was measured for. Raises NotFoundError, DamagedError."""
    missing = NotFoundError(f"job {name} was not measured by drumline scale", "drumline scale -f job.yml")
    return parts.read_report(name, _FILE, _describe_report, missing)


def list_scalings() -> list[dict[str, Any]]:
    """List the newest reports of a home, each with a job that has it."""
    return parts.list_reports(_FILE, _summarize)


def _summarize(report: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    measured = report["measured"]
    known = [size["efficiency"] for size in measured if size.get("efficiency") is not None]
    listed = {
        "title": report["job"],
        "scaling": report["scaling"],
        "nodes": [size["nodes"] for size in measured],
        "efficiency": known[-1] if known else None,
        "refused": sum(bool(size["refused"]) for size in measured),
    }
    return listed, [size["job"] for size in measured]


def _describe_report(report: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "title": report["job"],
        "scaling": report["scaling"],
        "sentences": report["sentences"],
        "measured": [_describe_size(size) for size in report["measured"]],
        "predicted": [_describe_size(size) for size in report["predicted"]],
    }


def _describe_size(size: Mapping[str, Any]) -> dict[str, Any]:
    seconds = size.get("phases") or {}
    return {
        "nodes": size["nodes"],
        "ranks": size["ranks"],
        "job": size.get("job") or "",
        "refused": size.get("refused") or "",
        "is_guess": size.get("guess", False),
        **{name: size.get(name) for name in _NUMBERS},
        "phases": [
            {"key": key, "title": title, "seconds": seconds[key]}
            for key, title in PHASES.items()
            if seconds.get(key) is not None
        ],
    }


# The sentences of a report, each about one question.


PHASES = {
    "input": "waiting for input",
    "forward": "forward",
    "backward": "backward",
    "exchange": "waiting for the all-reduce",
    "waiting": "waiting for later ranks",
    "other": "other",
}


def list_phases(facts: SizeFacts) -> list[tuple[str, float]]:
    """
    List the parts of a step in their order, with their seconds. They are medians each, and may be a little more
    together than the median of the whole.
    """
    return [
        ("input", facts.input_s),
        ("forward", facts.forward_s),
        ("backward", facts.backward_s),
        ("exchange", facts.exposed_s),
        ("waiting", facts.late_s),
        ("other", facts.other_s),
    ]


def list_sentences(report: ScaleReport) -> list[str]:
    """List the sentences of a report, those about measured sizes first."""
    found = _list_speeds(report)
    largest = report.reliable[-1] if report.reliable else None
    if largest is not None:
        found.append(_describe_step(largest))
        found += _list_traffic(report, largest)
    if report.is_separate:
        found.append("no exchange between ranks was seen: ranks that train separate models scale like this")
    found += [_describe_straggler(one) for one in report.stragglers]
    found += _list_predictions(report)
    if report.limit is not None:
        found += _list_limits(report, report.limit)
    return found + [one if one.startswith(NO_PREDICTION) else f"not trusted: {one}" for one in report.refused]


def _list_speeds(report: ScaleReport) -> list[str]:
    rows = report.reliable
    if not rows:
        return []
    first = rows[0]
    found = [
        f"{format_count(one.run.nodes, 'node')}: {one.speed_up:.2f} times as fast as "
        f"{format_count(first.run.nodes, 'node')}, {100 * one.efficiency:.0f} % efficiency"
        for one in rows[1:]
        if one.speed_up is not None and one.efficiency is not None
    ]
    how = "every size has the whole batch" if report.strong else "every rank has a batch of its own"
    heads = [f"{how} ({'strong' if report.strong else 'weak'} scaling)"]
    if report.by_mean:
        heads.append(
            "steps are uneven, as with checkpoints, a slow loader or batches that differ: all times are means, without "
            "the slowest step"
        )
    return [*heads, *found]


def _describe_step(one: MeasuredSize) -> str:
    assert one.facts is not None, "of sizes that were measured alone"
    parts = [
        f"{PHASES[name]} {format_ms(seconds)} ({100 * seconds / one.facts.step_s:.0f} %)"
        for name, seconds in list_phases(one.facts)
        if seconds >= 0.0005 * one.facts.step_s
    ]
    where = format_count(one.run.nodes, "node")
    return f"a step at {where} takes {format_ms(one.facts.step_s)}: {', '.join(parts)}"


def _list_traffic(report: ScaleReport, one: MeasuredSize) -> list[str]:
    facts, model = one.facts, report.model
    if report.is_assumed or facts is None or not facts.size_bytes or facts.ranks < 2:
        return []
    buckets = format_count(len(facts.bucket_bytes), "bucket")
    found = [f"each step reduces {format_size(facts.size_bytes)} in {buckets}"]
    if model is not None and not report.is_loopback and not is_hidden(model.link.bytes_per_s):
        pair = report.slowest_pair
        slowest = (
            f"; the slowest link, from node {pair.source} to node {pair.target}, carried "
            f"{format_link(pair.bytes_per_s)} before the job"
            if pair is not None
            else ""
        )
        found.append(
            f"the link: {format_link(model.link.bytes_per_s)} in all-reduces, "
            f"{format_ms(model.link.latency_s)} a message{slowest}"
        )
    if facts.reduce_s:
        hidden = min(facts.overlap_s, facts.reduce_s)
        found.append(
            f"backward hides {format_ms(hidden)} of the {format_ms(facts.reduce_s)} that the all-reduce takes"
        )
    return found


def _describe_straggler(one: Straggler) -> str:
    where = f" at {format_count(one.nodes, 'node')}"
    if one.kind == stragglers.HANG:
        return f"hang{where}: {one.text}"
    faster = f"this job would be {100 * one.gain:.0f} % faster{where}"
    if one.kind == stragglers.LINK:
        return f"link: without the slow link of node {one.node} {faster}"
    last = f"the last by {format_ms(one.late_s)} in {100 * one.share:.0f} % of steps"
    if one.rank is None:
        why = "wait longer for their input" if one.kind == stragglers.INPUT else "compute longer"
        return f"{one.kind}: without node {one.node} {faster}; its ranks {why}, and are {last}"
    why = "waits longer for its input" if one.kind == stragglers.INPUT else "computes longer"
    return f"{one.kind}: without rank {one.rank} {faster}; on node {one.node} it {why}, and is {last}"


def _list_predictions(report: ScaleReport) -> list[str]:
    predicted = [describe_prediction(one) for one in report.predicted]
    if predicted and report.is_loopback:
        predicted.insert(
            0,
            "all nodes share this machine, so what follows is of nodes without a network between them; isolated nodes "
            "with a link, or a cluster, tell more",
        )
    return predicted


def describe_prediction(one: PredictedSize) -> str:
    """Return a prediction with its band; what is too far away is called a guess."""
    word = "a guess" if one.is_guess else "predicted"
    return (
        f"{word} for {format_count(one.nodes, 'node')}: {format_ms(one.step_s)} a step ({format_ms(one.low_s)} to "
        f"{format_ms(one.high_s)}), {one.speed_up:.2f} times as fast, {100 * one.efficiency:.0f} % efficiency"
    )


def _list_limits(report: ScaleReport, limit: Limit) -> list[str]:
    first = report.reliable[0].run.nodes
    last = report.reliable[-1].run.nodes
    guess = " (a guess)" if limit.nodes > GUESS_FACTOR * last else ""
    if limit.nodes >= limit.most:
        return [
            f"80 % efficiency lasts to {format_count(limit.most, 'node')} at least, as far as was looked{guess}"
        ]
    if limit.nodes <= first:
        ends = f"no size above {format_count(first, 'node')} reaches 80 % efficiency"
        ends += " on this link" if report.knows_link else ""
    else:
        ends = f"80 % efficiency ends at {format_count(limit.nodes, 'node')}{guess}"
    if not report.knows_link:
        return [ends]
    if limit.rate is None:
        return [
            ends,
            f"no faster link would bring {format_count(limit.wanted, 'node')} to 80 %: something else is the limit",
        ]
    return [
        ends,
        f"{format_count(limit.wanted, 'node')} would reach 80 % with a link of {format_link(limit.rate)}",
    ]
