"""All that the head of a job's page shows."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from drumline.contract import events as e
from drumline.contract.errors import DAMAGED, DamagedError
from drumline.contract.folder import load_plain
from drumline.contract.hiding import hide_in
from drumline.control.jobs.lookup import as_arguments, folder_of, load_yaml
from drumline.control.jobs.recovery import recover
from drumline.control.observing import description
from drumline.control.observing.job_list.rows import describe_row
from drumline.control.observing.overview import KnownJobs
from drumline.control.observing.page import describe_head
from drumline.control.times import utc

if TYPE_CHECKING:
    from collections.abc import Iterable

    from drumline.contract.outcome import Outcome

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
