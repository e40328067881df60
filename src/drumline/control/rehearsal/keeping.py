"""Tables of rehearsals in the run folders of the jobs that ran for them, for the studio."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drumline.contract.errors import NotFoundError
from drumline.control.jobs.lookup import folder_of
from drumline.control.observing.parts import kept_reports
from drumline.control.observing.parts.kept_reports import to_list, to_number, to_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drumline.contract.folder import RunFolder

_FILE = "rehearsal.json"
_MOST_DRILLS, _MOST_SENTENCES = 200, 50


def keep_table(title: str, values: Mapping[str, Any]) -> None:
    """Write a table, as ``drumline rehearse -o json`` shows it, into the run folder of each of its jobs."""
    jobs = [one["job"] for one in (values["undisturbed"], *values["drills"])]
    kept_reports.keep_report(_FILE, {"title": title, **values}, jobs)


def read_table(name: str) -> dict[str, Any]:
    """
    Return the table that a job ran for, and no more than a table has: the job can write the file too.

    Raises NotFoundError.
    """
    folder = folder_of(name)
    data = folder.read_json(folder.rehearsal)
    if data is None:
        raise NotFoundError(f"job {name} ran for no rehearsal", "drumline rehearse -f job.yml")
    return _describe_table(data)


def list_tables() -> list[dict[str, Any]]:
    """List the newest tables of a home, each with a job that has it."""
    return kept_reports.list_reports(_FILE, _summarize)


def _summarize(folder: RunFolder) -> tuple[dict[str, Any], list[str]]:
    made = _describe_table(folder.read_json(folder.rehearsal) or {})
    drills = made["drills"]
    survived = sum(one["result"] == "survived" for one in drills)
    listed = {"title": made["title"], "ok": made["ok"], "drills": len(drills), "survived": survived}
    return listed, [made["undisturbed"]["job"], *(one["job"] for one in drills)]


def _describe_table(data: Mapping[str, Any]) -> dict[str, Any]:
    calm = data.get("undisturbed")
    return {
        "title": to_text(data.get("title")),
        "ok": data.get("ok") is True,
        "undisturbed": _describe_calm(calm if isinstance(calm, dict) else {}),
        "drills": [
            _describe_drill(one)
            for one in to_list(data.get("drills"))[:_MOST_DRILLS]
            if isinstance(one, dict)
        ],
        "left_out": _to_texts(data.get("left_out")),
    }


def _describe_calm(one: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "job": to_text(one.get("job")),
        "status": to_text(one.get("status")),
        "seconds": to_number(one.get("seconds")),
        "metric": to_text(one.get("metric")),
        "final": to_number(one.get("final")),
        "sentences": _to_texts(one.get("sentences")),
    }


def _describe_drill(one: Mapping[str, Any]) -> dict[str, Any]:
    same = one.get("same_metric")
    return {
        **{key: to_text(one.get(key)) for key in ("drill", "what", "job", "result")},
        "ok": one.get("is_ok") is True,
        "lost_s": to_number(one.get("lost_s")),
        "repeated": to_number(one.get("repeated")),
        "same_metric": same if isinstance(same, bool) else None,
        "left_behind": _to_texts(one.get("left_behind")),
        "sentences": _to_texts(one.get("sentences")),
    }


def _to_texts(value: Any) -> list[str]:
    return [to_text(one) for one in to_list(value)[:_MOST_SENTENCES]]
