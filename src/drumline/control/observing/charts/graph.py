"""The steps of a pipeline as a graph, and the trials of a sweep with their parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drumline.contract.errors import UsageError
from drumline.contract.words import format_count
from drumline.control.facts import job
from drumline.control.jobs.lookup import folder_of
from drumline.control.jobs.recovery import recover

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def describe_graph(name: str) -> dict[str, Any]:
    """Return the steps of a pipeline, in their order, and which needs which. Raises NotFoundError, UsageError."""
    folder = folder_of(name)
    outcome = recover(folder)
    if outcome.kind != "pipeline":
        raise UsageError(f"job {name} is a {outcome.kind}: it has no steps", f"drumline job show -n {name}")
    planned = {
        str(step.get("name")): step for step in (folder.read_json(folder.graph) or {}).get("steps") or ()
    }
    nodes = [
        {
            "name": step["step"],
            "job": step["job"],
            "status": step["status"],
            "type": str((planned.get(step["step"], {}).get("job") or {}).get("type") or "command"),
            "sentence": step["reason"],
            "began": step["started_at"],
            "ended": step["ended_at"],
            "seconds": step["seconds"],
            "reused": step["reused"],
        }
        for step in job.describe_parts(folder, outcome)["steps"]
    ]
    known = {node["name"] for node in nodes}
    edges = [
        [need, step]
        for step, told in planned.items()
        for need in told.get("needs") or ()
        if {need, step} <= known
    ]
    return {"nodes": nodes, "edges": edges}


def describe_trials(name: str) -> dict[str, Any]:
    """Return the trials of a sweep, the best first, and its parameters. Raises NotFoundError, UsageError."""
    folder = folder_of(name)
    outcome = recover(folder)
    if outcome.kind != "sweep":
        raise UsageError(f"job {name} is a {outcome.kind}: it has no trials", f"drumline job show -n {name}")
    told = job.describe_parts(folder, outcome)
    trials = [
        {
            "name": trial["trial"],
            "job": trial["trial"],
            "status": trial["status"],
            "parameters": trial["params"],
            "metric": trial["metric"],
            "rank": trial["rank"],
            "duration": trial["seconds"],
            "stopped_early": trial["stopped_early"],
            "sentence": trial["reason"],
            "began": trial["started_at"],
            "ended": trial["ended_at"],
        }
        for trial in told["trials"]
    ]
    best = next((trial for trial in trials if trial["rank"] == 1), None)
    return {
        "sentence": _summarize(told, trials, best),
        "goal": told["goal"],
        "metric": told["metric"],
        "parameters": _list_parameters(trials),
        "trials": trials,
        "best": best and best["job"],
        "most": told["trials_most"],
    }


def _list_parameters(trials: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return each parameter with its kind: ``number`` if all of its values are, else ``choice``."""
    values: dict[str, list[Any]] = {}
    for trial in trials:
        for parameter, value in trial["parameters"].items():
            values.setdefault(str(parameter), []).append(value)
    return [{"name": parameter, "kind": _kind_of(given)} for parameter, given in values.items()]


def _kind_of(values: Iterable[Any]) -> str:
    is_number = all(isinstance(one, (int, float)) and not isinstance(one, bool) for one in values)
    return "number" if is_number else "choice"


def _summarize(told: Mapping[str, Any], trials: list[dict[str, Any]], best: Mapping[str, Any] | None) -> str:
    counts: dict[str, int] = {}
    for trial in trials:
        counts[trial["status"]] = counts.get(trial["status"], 0) + 1
    most = f" of at most {told['trials_most']}" if told["trials_most"] else ""
    listed = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    sentence = f"{format_count(len(trials), 'trial')}{most}: {listed}" if trials else "no trial yet"
    return sentence if best is None else f"{sentence}; the best has {told['metric']} {best['metric']:.6g}"
