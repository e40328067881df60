"""Reports in the run folders of the jobs that were measured for them, for the studio."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drumline.contract.errors import NotFoundError
from drumline.control.jobs.lookup import folder_of
from drumline.control.observing.parts import kept_reports
from drumline.control.observing.parts.kept_reports import to_list, to_number, to_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drumline.contract.folder import RunFolder

_FILE = "scale.json"
_MOST_SIZES, _MOST_SENTENCES = 100, 200
_MOST_NODES = 1_000_000
_NUMBERS = ("step_s", "low_s", "high_s", "speed_up", "efficiency")


def keep_report(values: Mapping[str, Any]) -> None:
    """Write a report, as ``to_values`` returns it, into the run folder of each job that was measured for it."""
    kept_reports.keep_report(_FILE, values, [one["job"] for one in values["measured"]])


def read_report(name: str) -> dict[str, Any]:
    """
    Return the report that a job was measured for, and no more than a report has: the job can write the file too.

    Raises NotFoundError.
    """
    folder = folder_of(name)
    data = folder.read_json(folder.scale)
    if data is None:
        raise NotFoundError(f"job {name} was not measured by drumline scale", "drumline scale -f job.yml")
    return _describe_report(data)


def list_scalings() -> list[dict[str, Any]]:
    """List the newest reports of a home, each with a job that has it."""
    return kept_reports.list_reports(_FILE, _summarize)


def _summarize(folder: RunFolder) -> tuple[dict[str, Any], list[str]]:
    made = _describe_report(folder.read_json(folder.scale) or {})
    measured = made["measured"]
    known = [one["efficiency"] for one in measured if one["efficiency"] is not None]
    listed = {
        "title": made["title"],
        "scaling": made["scaling"],
        "nodes": [one["nodes"] for one in measured],
        "efficiency": known[-1] if known else None,
        "refused": sum(bool(one["refused"]) for one in measured),
    }
    return listed, [one["job"] for one in measured]


def _describe_report(data: Mapping[str, Any]) -> dict[str, Any]:
    sentences = data.get("sentences")
    return {
        "title": to_text(data.get("job")),
        "scaling": "strong" if data.get("scaling") == "strong" else "weak",
        "sentences": [to_text(one) for one in to_list(sentences)[:_MOST_SENTENCES]],
        "measured": _list_sizes(data.get("measured")),
        "predicted": _list_sizes(data.get("predicted")),
    }


def _list_sizes(given: Any) -> list[dict[str, Any]]:
    return [_describe_size(one) for one in to_list(given)[:_MOST_SIZES] if _is_size(one)]


def _is_size(one: Any) -> bool:
    counts = (one.get("nodes"), one.get("ranks")) if isinstance(one, dict) else ()
    return bool(counts) and all(type(count) is int and 0 < count <= _MOST_NODES for count in counts)


def _describe_size(one: Mapping[str, Any]) -> dict[str, Any]:
    # The sentences are made by what computes, which the studio's server has no use for until it shows a report.
    from drumline.control.scaling.sentences import PHASES

    phases = one.get("phases")
    known = phases if isinstance(phases, dict) else {}
    return {
        "nodes": one["nodes"],
        "ranks": one["ranks"],
        "job": to_text(one.get("job")),
        "refused": to_text(one.get("refused")),
        "is_guess": one.get("guess") is True,
        **{name: to_number(one.get(name), least=0.0) for name in _NUMBERS},
        "phases": [
            {"key": key, "title": title, "seconds": seconds}
            for key, title in PHASES.items()
            if (seconds := to_number(known.get(key), least=0.0)) is not None
        ],
    }
