"""A report as JSON can hold it, also in the run folders of the jobs that were measured for it, for the studio."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drumline.contract.errors import NotFoundError
from drumline.control.facts import parts
from drumline.control.scaling.sentences import PHASES, list_phases, list_sentences
from drumline.control.times import utc

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drumline.control.scaling.model import StepModel
    from drumline.control.scaling.report import MeasuredSize, PredictedSize, ScaleReport


_WHOLE = 1000.0


def to_values(report: ScaleReport) -> dict[str, Any]:
    """Return a report as JSON can hold it."""
    model = report.model
    return {
        "job": report.title,
        "at": utc(report.at, "seconds"),
        "scaling": "strong" if report.strong else "weak",
        "measured": [_describe_measured(one, report) for one in report.measured],
        "predicted": [_describe_predicted(one) for one in report.predicted],
        "model": None if model is None else _describe_model(report, model),
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


def _describe_predicted(one: PredictedSize) -> dict[str, Any]:
    return {
        "nodes": one.nodes,
        "ranks": one.ranks,
        "step_s": round(one.step_s, 6),
        "low_s": round(one.low_s, 6),
        "high_s": round(one.high_s, 6),
        "speed_up": _round(one.speed_up),
        "efficiency": _round(one.efficiency),
        "guess": one.is_guess,
    }


def _describe_model(report: ScaleReport, model: StepModel) -> dict[str, Any]:
    return {
        "own_s": _round(model.own_s),
        "shared_s": _round(model.shared_s),
        "overlap_s": _round(model.overlap_s),
        "latency_s": _round(model.link.latency_s),
        "bytes_per_s": round(model.link.bytes_per_s) if report.knows_link else None,
        "bucket_bytes": [] if report.is_assumed else list(model.bucket_bytes),
        "doubt": _round(model.doubt),
    }


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
