"""
The facts of a job's page: how it stands, why, where the time went, what it logged and wrote, and what to do next.

Values for programs to draw, in a terminal, a notebook or a web page: times are seconds, sizes bytes, text is as the
job wrote it and not safe for a terminal.
"""

from __future__ import annotations

import os
import re
import time
from typing import TYPE_CHECKING, Any

from drumline.contract import events as e
from drumline.contract import status
from drumline.contract.errors import DAMAGED, DamagedError
from drumline.contract.folder import RunFolder, load_plain
from drumline.contract.hiding import hide_in, hide_in_job
from drumline.control.facts import description
from drumline.control.facts.jobs import KnownJobs, compute_of, describe_row, main_metric
from drumline.control.jobs.lookup import as_arguments, folder_of, load_yaml, read_spec
from drumline.control.jobs.recovery import recover
from drumline.control.observing.steps.telling import describe_steps
from drumline.control.times import utc

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from drumline.contract.outcome import Outcome
    from drumline.tracking.series import Series


_LAST_LINES = 10
_MOST_METRICS = 8
_METRICS_LIMIT_S = 2.0
_MOST_FILES = 5000
"""Of a folder, that are counted; a folder with more is said to have more."""

_MOST_SAID = 100
"""Warnings and drills that the head of a page has."""

_SHORTEST_PHASE_S = 0.005
_NOTES = "link: "
"""The beginning of a plan's warnings that a reader of the job's times must know."""

_NEW_SENTENCE = re.compile(
    r"; (?=(?:ranks? [\w, -]+ (?:failed the same way|failed too|(?:was|were) then (?:cut off|stopped))))"
    r"| \((?=attempt \d+; not restarted: )"
)
"""Where a verdict goes on to the other ranks: a sentence each reads better than one of five lines."""

_LOW_IS_GOOD = re.compile(r"(^|[^a-z])(loss|error|err|perplexity|ppl|wer|cer|mae|mse|rmse)($|[^a-z])")
_HIGH_IS_GOOD = re.compile(r"(^|[^a-z])(acc|accuracy|f1|auc|bleu|reward)($|[^a-z])")


def describe_page(name: str) -> dict[str, Any]:
    """Recover the job where that is necessary, and return the facts of its page. Raises NotFoundError."""
    folder = folder_of(name)
    return describe_folder(folder, recover(folder))


def describe_folder(folder: RunFolder, outcome: Outcome) -> dict[str, Any]:
    """Return the facts of the page of a job whose outcome is known."""
    spec = hide_in_job({**read_spec(folder), **outcome.edits})
    now = outcome.ended or time.time()
    page: dict[str, Any] = {
        "name": folder.name,
        "display_name": str(spec.get("display_name") or folder.name),
        "experiment": str(spec.get("experiment_name") or "Default"),
        "parent": str(spec.get("parent_job_name") or ""),
        "type": outcome.kind,
        "status": outcome.status,
        "sentences": split_reason(outcome.reason),
        "hang": outcome.hang,
        "drills": _list_drills(outcome),
        "warnings": _list_warnings(outcome),
        "compute": compute_of(spec, outcome),
        "created": outcome.created,
        "started": outcome.started,
        "ended": outcome.ended,
        "seconds": None if outcome.started is None else max(0.0, now - outcome.started),
        "waited_s": None if outcome.created is None else max(0.0, (outcome.started or now) - outcome.created),
        "run_folder": folder.path,
        "pruned": sorted(outcome.pruned),
        "pruned_at": utc(min(outcome.pruned.values(), default=None)),
    }
    if outcome.kind == "command":
        page |= _describe_command(folder, outcome, spec)
    else:
        page |= describe_parts(folder, outcome)
    page["next"] = _choose_next(folder, outcome, page)
    return page


def describe_head(folder: RunFolder, outcome: Outcome, *, has_metrics: bool) -> dict[str, Any]:
    """Return the facts with which a page begins: those that take no longer where a job has logged and written much."""
    head: dict[str, Any] = {
        "sentences": split_reason(outcome.reason),
        "hang": outcome.hang,
        "drills": _list_drills(outcome)[:_MOST_SAID],
        "warnings": _list_warnings(outcome)[:_MOST_SAID],
        "pruned": sorted(outcome.pruned),
        "pruned_at": utc(min(outcome.pruned.values(), default=None)),
    }
    if outcome.kind == "command":
        labels = {rank: label for rank, label, _ in _list_tasks(folder.read_json(folder.plan) or {})}
        head["failed_rank"] = _describe_failed(folder, outcome, labels)
        places = (("outputs", folder.outputs), ("named-outputs", folder.named_outputs))
        known = {
            "files": [{"what": what} for what, path in places if _has_files(path)],
            "metrics": ["logged"] if has_metrics else [],
        }
    else:
        known = describe_parts(folder, outcome)
    head["next"] = _choose_next(folder, outcome, {**head, **known})
    return head


def split_reason(reason: str) -> list[str]:
    """
    Split a verdict where it goes on to the other ranks.

    >>> split_reason("rank 3 failed first: x; ranks 0-2 were then cut off (gone) (attempt 2; not restarted: alike)")
    ['rank 3 failed first: x', 'ranks 0-2 were then cut off (gone)', 'attempt 2; not restarted: alike']
    """
    parts = [part for part in _NEW_SENTENCE.split(reason) if part]
    return [part.removesuffix(")") if part.startswith("attempt ") else part for part in parts]


# a job with ranks


def _describe_command(folder: RunFolder, outcome: Outcome, spec: Mapping[str, Any]) -> dict[str, Any]:
    plan = folder.read_json(folder.plan) or {}
    tasks = _list_tasks(plan)
    labels = {rank: label for rank, label, _ in tasks}
    most = plan.get("max_restarts")
    return {
        "command": str(spec.get("command") or ""),
        "inputs": _list_inputs(spec.get("inputs")),
        "ranks_by_node": _count_by_node(plan),
        "attempt": len(outcome.attempts),
        "attempts_most": most + 1 if isinstance(most, int) and most else None,
        "earlier_attempts": [
            {
                "attempt": one.attempt,
                "reason": one.reason,
                "kind": one.kind,
                "drills": _list_drills(outcome, one.attempt),
            }
            for one in outcome.attempts
        ],
        "notes": [one for one in plan.get("warnings") or () if str(one).startswith(_NOTES)],
        "rank_states": _group_ranks(outcome, labels),
        "failed_rank": _describe_failed(folder, outcome, labels),
        "start": _describe_start(folder),
        **_describe_metrics(folder, outcome),
        "training": describe_steps(folder, outcome),
        "usage": _describe_usage(folder, outcome),
        "files": _describe_files(folder, plan, spec),
    }


def _list_drills(outcome: Outcome, attempt: int | None = None) -> list[str]:
    """List the sentences about failures that were made on purpose in an attempt; None: in the latest."""
    if not outcome.drills:
        return []
    from drumline.control.drills import words

    return words.list_sentences(outcome, attempt)


def _list_warnings(outcome: Outcome) -> list[str]:
    """List what is likely wrong with the job, and the experiments of an autotuner that failed."""
    return [one.text for one in outcome.warnings] + outcome.list_failed_experiments()


def _list_inputs(given: Any) -> list[dict[str, str]]:
    """Return name and value of each input; of data its path."""
    if not isinstance(given, dict):
        return []
    values = {
        name: value.get("path", value.get("value")) if isinstance(value, dict) else value
        for name, value in given.items()
    }
    return [{"name": str(name), "value": str(value)} for name, value in values.items() if value is not None]


def _list_tasks(plan: Mapping[str, Any]) -> list[tuple[int, str, int]]:
    """Return number, label and node of each rank of a plan; none of one that is damaged."""
    try:
        return [
            (int(task["rank"]), str(task["label"]), int(node["node"]))
            for node in plan["nodes"]
            for task in node["ranks"]
        ]
    except (LookupError, TypeError, ValueError):
        return []


def _count_by_node(plan: Mapping[str, Any]) -> list[int]:
    counts: dict[int, int] = {}
    for _, _, node in _list_tasks(plan):
        counts[node] = counts.get(node, 0) + 1
    return list(counts.values())


def _group_ranks(outcome: Outcome, labels: Mapping[int, str]) -> list[dict[str, Any]]:
    """Group the ranks of the latest attempt by state: failures first, those that are done last."""
    groups: dict[str, list[str]] = {}
    for number, rank in sorted(outcome.ranks.items()):
        groups.setdefault(rank.state, []).append(labels.get(number, str(number)))
    order = ("exit", "signal", "lost", "running", "done")
    ordered = sorted(groups, key=lambda state: (order.index(state.partition(" ")[0]), state))
    return [{"state": state, "ranks": groups[state]} for state in ordered]


def _describe_failed(folder: RunFolder, outcome: Outcome, labels: Mapping[int, str]) -> dict[str, Any] | None:
    """Describe the rank that failed first, with the last lines of its log."""
    number = outcome.failed_rank
    if number is None:
        return None
    verdict = outcome.verdict or {}
    return {
        "rank": number,
        "label": labels.get(number, str(number)),
        "node": outcome.failed_node,
        "file": verdict.get("file"),
        "line": verdict.get("line"),
        "function": verdict.get("function"),
        "last_lines": _read_last_lines(folder, number),
    }


def _read_last_lines(folder: RunFolder, rank: int) -> list[str]:
    from drumline.contract.plan import Plan
    from drumline.control.logs.follow import last_lines
    from drumline.control.terminal import decode

    try:
        plan = Plan.read(folder.plan)
    except (OSError, ValueError, TypeError, KeyError):
        return []
    return [decode(line) for line in last_lines(folder, plan, rank, _LAST_LINES)]


def _describe_start(folder: RunFolder) -> dict[str, Any] | None:
    """Describe how long the phases of the latest attempt's start took; None if nothing is known of it."""
    from drumline.control.observing import timeline
    from drumline.control.observing.charts.attempt_starts import read_starts

    starts = read_starts(folder)
    if not len(starts):
        return None
    told = timeline.describe_attempt(starts.find(folder, len(starts) - 1), len(starts), starts.find_zero(0))
    phases = [
        {"phase": one["phase"], "seconds": one["took_s"]}
        for one in told["phases"]
        if not one["part_of"] and (one["took_s"] is None or one["took_s"] >= _SHORTEST_PHASE_S)
    ]
    return {"total_s": told["total_s"], "phases": phases} if phases and told["total_s"] else None


def _describe_usage(folder: RunFolder, outcome: Outcome) -> dict[str, Any] | None:
    """Describe what the ranks have used in all; None if that was not sampled."""
    if not outcome.ranks:
        return None
    from drumline.control.observing import usage

    found = usage.summarize_usage(folder, outcome)
    if not found:
        return None
    means = [one["mean_cpu_percent"] for one in found["ranks"] if one["mean_cpu_percent"] is not None]
    return {
        "peak_memory_bytes": max(one["peak_memory_bytes"] or 0 for one in found["ranks"]),
        "mean_cpu_percent": round(sum(means) / len(means), 1) if means else None,
    }


# metrics


def _describe_metrics(folder: RunFolder, outcome: Outcome) -> dict[str, Any]:
    if outcome.started is None:
        return {"metrics": [], "metrics_left_out": 0}
    from drumline.control.observing.metrics import read_metrics

    found = read_metrics(folder, limit_s=_METRICS_LIMIT_S)
    own = {one.name: one for one in reversed(found.series) if len(one)}
    first = main_metric(own)
    names = sorted(own, key=lambda name: (name != first, name))
    return {
        "metrics": [_describe_series(own[name]) for name in names[:_MOST_METRICS]],
        "metrics_left_out": found.left_out + max(0, len(names) - _MOST_METRICS),
    }


def _describe_series(one: Series) -> dict[str, Any]:
    """Describe a metric. ``best``: of a metric whose name says which values are good."""
    figures = one.figures()
    name = one.name.lower()
    wanted = (
        figures.lowest
        if _LOW_IS_GOOD.search(name)
        else figures.highest
        if _HIGH_IS_GOOD.search(name)
        else None
    )
    best = None if wanted is None else next((point for point in one if point.value == wanted), None)
    return {
        "metric": one.name,
        "run": one.run,
        "last": figures.last.value if figures.last else None,
        "step": figures.last.step if figures.last else None,
        "lowest": figures.lowest,
        "highest": figures.highest,
        "best": None if best is None else {"value": best.value, "step": best.step},
    }


# files


def _describe_files(
    folder: RunFolder, plan: Mapping[str, Any], spec: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Measure what the job wrote, and its code. ``path``: absolute."""
    properties = spec.get("properties")
    in_place = properties.get("drumline.working_folder") if isinstance(properties, dict) else None
    found = []
    for what, path in (
        ("outputs", folder.outputs),
        ("named-outputs", folder.named_outputs),
        ("user_logs", folder.user_logs),
    ):
        measured = measure_folder(path)
        if measured["files"]:
            found.append({"what": what, "path": path, **measured})
    digest = str(plan.get("snapshot") or "")
    if digest and "/" not in digest:
        path = os.path.join(folder.root, "snapshots", digest)
        found.append(
            {
                "what": "code",
                "path": path,
                **measure_folder(path),
                "digest": digest,
                "git": _find_commit(properties),
            }
        )
    elif in_place:
        found.append({"what": "code", "path": str(in_place), "files": None, "bytes": None, "is_more": False})
    return found


def _find_commit(properties: Any) -> dict[str, str] | None:
    """Return the commit and the branch that the code was at; None where it was in no repository."""
    known = properties if isinstance(properties, dict) else {}
    commit = known.get("azureml.git.commit")
    return {"commit": str(commit), "branch": str(known.get("azureml.git.branch") or "")} if commit else None


def measure_folder(path: str) -> dict[str, Any]:
    """Count the files below a folder and their bytes. Links are not followed. ``is_more``: there are more than that."""
    files = size = seen = 0
    left = [path]
    while left:
        try:
            with os.scandir(left.pop()) as entries:
                for entry in entries:
                    seen += 1
                    if seen > _MOST_FILES:
                        return {"files": files, "bytes": size, "is_more": True}
                    if entry.is_dir(follow_symlinks=False):
                        left.append(entry.path)
                    elif entry.is_file(follow_symlinks=False):
                        files += 1
                        size += entry.stat(follow_symlinks=False).st_size
        except OSError:
            continue  # Removed meanwhile, or not ours to read.
    return {"files": files, "bytes": size, "is_more": False}


def _has_files(path: str) -> bool:
    """Return whether there is a file below a folder, as far as it is looked through."""
    left, seen = [path], 0
    while left and seen <= _MOST_FILES:
        try:
            with os.scandir(left.pop()) as entries:
                for entry in entries:
                    seen += 1
                    if entry.is_file(follow_symlinks=False):
                        return True
                    if seen <= _MOST_FILES and entry.is_dir(follow_symlinks=False):
                        left.append(entry.path)
        except OSError:
            continue  # Removed meanwhile, or not ours to read.
    return False


# pipelines and sweeps


def describe_parts(folder: RunFolder, outcome: Outcome) -> dict[str, Any]:
    """Describe the steps of a pipeline in their order, or the trials of a sweep, the best first."""
    described = description.describe_parts(folder, outcome)
    if outcome.kind != "sweep":
        return {"steps": described["steps"]}
    graph = folder.read_json(folder.graph) or {}
    objective = graph.get("objective") or {}
    goal = str(objective.get("goal") or "")
    limits = read_spec(folder).get("limits")
    return {
        "goal": goal,
        "metric": str(objective.get("primary_metric") or ""),
        "trials": sort_trials(described["trials"], goal),
        "trials_most": limits.get("max_total_trials") if isinstance(limits, dict) else None,
    }


def sort_trials(trials: Iterable[dict[str, Any]], goal: str) -> list[dict[str, Any]]:
    """Sort by the metric, the best first; trials without one come last, in the order of their start."""
    sign = -1.0 if goal == "maximize" else 1.0

    def key(trial: dict[str, Any]) -> tuple[bool, float]:
        value = trial["metric"]
        known = isinstance(value, (int, float)) and value == value  # noqa: PLR0124 - nan
        return (not known, sign * value if known else 0.0)

    return sorted(trials, key=key)


# what to do next


def _choose_next(folder: RunFolder, outcome: Outcome, page: Mapping[str, Any]) -> str:
    """Return a command that helps in this state of the job; empty where none does."""
    name = as_arguments(folder.name)
    if outcome.kind != "command":
        return _choose_next_part(outcome, page, name)
    if not outcome.is_final:
        if outcome.hang:
            return f"drumline job stacks {name}"
        return f"drumline job stream {name}"
    if "user_logs" in outcome.pruned:
        return ""  # Every command that shows or copies its logs would say that they are gone.
    if outcome.status == status.FAILED and page["failed_rank"]:
        label = str(page["failed_rank"]["label"])
        return f"drumline job logs {name} --rank {label}" if label.isalnum() else f"drumline job logs {name}"
    if outcome.status == status.COMPLETED:
        if not page["pruned"] and any(one["what"] in ("outputs", "named-outputs") for one in page["files"]):
            return f"drumline job download {name} --all"
        if page["metrics"]:
            return f"drumline job metrics {name}"
    return f"drumline job logs {name}" if outcome.started is not None else ""


def _choose_next_part(outcome: Outcome, page: Mapping[str, Any], name: str) -> str:
    """Return a command for a pipeline or a sweep: the step that failed first, the best trial."""
    if not outcome.is_final:
        return f"drumline job stream {name}"
    jobs: Sequence[str]
    if outcome.kind == "sweep":
        wanted = status.COMPLETED if outcome.status == status.COMPLETED else status.FAILED
        jobs = [one["trial"] for one in page["trials"] if one["status"] == wanted and one["trial"]]
    else:
        ended = sorted(outcome.steps.values(), key=lambda step: step.ended or 0.0)
        jobs = [step.job for step in ended if step.status == status.FAILED and step.job]
        if outcome.status == status.COMPLETED:
            return f"drumline job download {name} --all"
    known = [job for job in jobs if _is_there(job)]
    return f"drumline job show {as_arguments(known[0])}" if known else f"drumline job stream {name}"


def _is_there(job: str) -> bool:
    return "/" not in job and job not in ("", ".", "..") and RunFolder.for_job(job).exists()


# the head of a job's page in the studio


_MOST_SPEC = 4 << 20
_BEGINS = (e.JobStarting, e.AgentJoined, e.RankStarted)
_LISTED_EVENTS = (e.AttemptEnded, *_BEGINS)


def describe_job(name: str) -> dict[str, Any]:
    """Recover the job where that is necessary, and describe it. Raises NotFoundError."""
    folder = folder_of(name)
    outcome = recover(folder)
    known = KnownJobs()
    known.load([name])
    job = known.overview(name, with_metric=True, outcome=outcome)
    known.keep()
    page = describe_head(folder, outcome, has_metrics=job.metric is not None)
    failed = page.get("failed_rank") or {}
    lines = [{"rank": failed["rank"], "text": line} for line in failed.get("last_lines", ())]
    return {
        "row": describe_row(job),
        "page": page,
        "exit_code": outcome.exit_code,
        "reason": outcome.reason,
        "verdict": outcome.verdict,
        "hang": {"sentence": outcome.hang} if outcome.hang else None,
        "last_lines": lines,
        "attempts": list_attempts(folder.read_events(*_LISTED_EVENTS), outcome),
        "services": description.describe_services(outcome),
        "has_scale": os.path.isfile(folder.scale),
        "has_rehearsal": os.path.isfile(folder.rehearsal),
        "commands": list_commands(name, outcome),
    }


def show_spec(name: str) -> dict[str, Any]:
    """
    Return the job file as ``yaml``, without the values of keys with the name of a secret, and whether it ``is_whole``.

    Raises NotFoundError, OSError, DamagedError for a file that is no YAML.
    """
    import yaml

    folder = folder_of(name)
    data = load_plain(folder.job, _MOST_SPEC)
    try:
        spec = load_yaml(data)
        written, shown = _write_yaml(spec), _write_yaml(hide_in(spec))
    except (yaml.YAMLError, *DAMAGED) as error:
        # Its text may be a part of the file.
        raise DamagedError(
            f"the job file of {name} is damaged: {type(error).__name__}", f"see {folder.job}"
        ) from error
    is_whole = shown == written
    return {"yaml": data.decode("utf-8", "replace") if is_whole else shown, "is_whole": is_whole}


def _write_yaml(spec: Any) -> str:
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return str(yaml.dump(spec, Dumper=dumper, sort_keys=False, allow_unicode=True))


def list_attempts(events: Iterable[e.Event], outcome: Outcome) -> list[dict[str, Any]]:
    """
    Describe the attempts of a job in order, each with when it began, how it ended and why.

    ``kind``: as of AttemptEnded; of the latest its status, empty while it goes on.
    """
    if outcome.kind != "command":
        return []
    began: list[float | None] = [None]
    for event in events:
        if isinstance(event, e.AttemptEnded):
            began.append(None)
        elif isinstance(event, _BEGINS) and began[-1] is None:
            began[-1] = event.time
            if len(began) > len(outcome.attempts):
                break  # A job may have a million events, and nothing else is looked for.
    listed = [
        {
            "number": number,
            "began": utc(began[number]) if number < len(began) else None,
            "ended": utc(one.time),
            "kind": one.kind,
            "sentence": one.reason,
        }
        for number, one in enumerate(outcome.attempts)
    ]
    latest = {
        "number": len(outcome.attempts),
        "began": utc(began[-1]),
        "ended": utc(outcome.ended),
        "kind": outcome.status.lower() if outcome.is_final else "",
        "sentence": outcome.hang or outcome.reason,
    }
    return [*listed, latest]


def list_commands(name: str, outcome: Outcome) -> dict[str, str]:
    """Return the commands that give the same answers, and do the same, as the page."""
    words = as_arguments(name)
    verbs = {"show": "show", "logs": "logs", "events": "show --timeline", "rerun": "rerun"}
    if outcome.kind == "command":
        verbs |= {"metrics": "metrics", "stacks": "stacks", "top": "top"}
    if not outcome.is_final:
        verbs |= {"stream": "stream", "cancel": "cancel"}
        verbs |= {"preempt": "preempt"} if outcome.kind == "command" else {}
    verbs |= {"restore": "restore"} if outcome.archived else {"archive": "archive"}
    found = {}
    for key, verb in verbs.items():
        first, _, more = verb.partition(" ")
        # Of rerun, -n alone is the job itself too.
        found[key] = f"drumline job {first} {words}" + (f" {more}" if more else "")
    return found
