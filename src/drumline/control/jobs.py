"""What is known of jobs: one, a list of them, and the small changes that a finished or running job allows."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from drumline.contract import events as e
from drumline.contract import identity, status
from drumline.contract.errors import NotFoundError, UsageError
from drumline.contract.folder import RunFolder, home
from drumline.contract.outcome import Outcome, fold
from drumline.engines.table import engine, is_elsewhere
from drumline.tracking import mlflow_files

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drumline.store.index import Row

_SUPERVISOR_START_S = 15.0
"""After this a job without a supervisor never had one."""

EDITABLE = ("display_name", "description", "tags", "properties")


def folder_of(name: str) -> RunFolder:
    """Raises NotFoundError, with what is alike."""
    folder = RunFolder.of(name)
    if "/" in name or name in ("", ".", "..") or not folder.exists():
        raise NotFoundError(f"there is no job {name!r}", _alike(name))
    return folder


def _alike(name: str) -> str:
    import difflib

    close = difflib.get_close_matches(name, all_names(), n=1)
    return f"did you mean {close[0]!r}?" if close else "drumline job list shows those there are"


def all_names() -> list[str]:
    """In no order."""
    try:
        with os.scandir(os.path.join(home(), "jobs")) as entries:
            return [entry.name for entry in entries if entry.is_dir()]
    except FileNotFoundError:
        return []


def outcome_of(folder: RunFolder) -> Outcome:
    """
    What became of the job so far. A job whose supervisor was killed is ended here, and so are its processes:
    whoever looks first writes it down.
    """
    outcome = fold(folder.read_events())
    if outcome.is_final:
        return outcome
    if is_elsewhere(outcome.engine):
        return _as_its_engine_says(folder, outcome)
    if _is_supervised(folder, outcome):
        return outcome
    # Its last event may have been written between our look at the file and our look at the process.
    outcome = fold(folder.read_events())
    if not outcome.is_final:
        _bury(folder)
        outcome = fold(folder.read_events())
    return outcome


def _as_its_engine_says(folder: RunFolder, outcome: Outcome) -> Outcome:
    """Of a job whose supervisor may be on another machine, or nowhere yet, or no more."""
    look = engine(outcome.engine).look(folder)
    if look is None or look.state == "runs":
        # It has its nodes, and its supervisor tells more; if it is held up, that is not the supervisor's to see.
        outcome.reason = (look.reason if look else "") or outcome.reason
        return outcome
    if look.state == "gone":
        again = fold(folder.read_events())
        if not again.is_final:
            request = folder.read_json(folder.cancel)
            reason = look.reason
            if request is not None and (look.status == status.CANCELED or again.started is None):
                look = look._replace(status=status.CANCELED, exit_code=130)
                reason = f"canceled by {request.get('by', 'its user')}" + (
                    "" if again.started else " before it started"
                )
            folder.append(e.JobEnded(time.time(), look.status, look.exit_code, reason))
            again = fold(folder.read_events())
        return again
    if look.state == "unknown":
        outcome.reason = look.reason
    else:
        is_canceled = os.path.exists(folder.cancel)
        waiting = status.QUEUED if look.state == "waits" else status.STARTING
        outcome.status = status.CANCEL_REQUESTED if is_canceled else waiting
        outcome.reason = look.reason
    return outcome


def _is_supervised(folder: RunFolder, outcome: Outcome) -> bool:
    who = folder.read_json(folder.supervisor)
    if who is None:
        return time.time() - (outcome.created or 0.0) < _SUPERVISOR_START_S
    return identity.is_alive(who)


def _bury(folder: RunFolder) -> None:
    from drumline.node import leftovers

    count = leftovers.clear(folder)
    reason = "its supervisor was killed, or the machine restarted"
    if count:
        reason += f"; {count} {'process' if count == 1 else 'processes'} that it left were ended"
    folder.append(e.JobEnded(time.time(), status.FAILED, 1, reason))


def names(*, archived: bool | None = False, parent: str | None = None, limit: int | None = None) -> list[str]:
    """Newest first. ``archived`` None: both kinds."""
    from drumline.store.index import Index

    index = Index(home())
    index.heal(all_names(), _row)
    return index.names(archived=archived, parent=parent, limit=limit)


def _row(name: str) -> Row | None:
    from drumline.store.index import Row

    folder = RunFolder.of(name)
    outcome = fold(folder.read_events())
    if outcome.created is None:
        return None
    spec = read_spec(folder)
    return Row(
        name,
        outcome.created,
        str(spec.get("experiment_name") or "Default"),
        str(spec.get("parent_job_name") or ""),
        outcome.archived,
    )


def read_spec(folder: RunFolder) -> dict[str, Any]:
    """The job as it was submitted; empty when that is damaged."""
    import yaml

    try:
        with open(folder.job, "rb") as file:
            data = yaml.load(file, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
    except (OSError, yaml.YAMLError):
        return {}
    return data if isinstance(data, dict) else {}


def describe(name: str, *, brief: bool = False) -> dict[str, Any]:
    """
    A job as ``az ml job show`` prints one, and what only Drumline knows. Raises NotFoundError.

    Times are RFC 3339 in UTC; ``exit_code`` is None until the job has ended. ``brief``: as of Engine.describe_job.
    """
    folder = folder_of(name)
    outcome = outcome_of(folder)
    spec = {**read_spec(folder), **outcome.edits}
    link = "file://" + folder.path
    described: dict[str, Any] = {
        "name": name,
        "display_name": spec.pop("display_name", None) or name,
        "experiment_name": spec.pop("experiment_name", None) or "Default",
        "type": "command",
        "status": outcome.status,
        "reason": outcome.reason,
        "exit_code": outcome.exit_code,
        "failed_rank": outcome.failed_rank,
        "failed_node": outcome.failed_node,
        "verdict": outcome.verdict,
        "hang": outcome.hang or None,
        "attempt": len(outcome.attempts),
        "attempts": [
            {
                "attempt": one.attempt,
                "ended_at": _utc(one.time),
                "exit_code": one.exit_code,
                "reason": one.reason,
                "kind": one.kind,
            }
            for one in outcome.attempts
        ],
        **{key: value for key, value in spec.items() if key not in ("name", "type", "services")},
        "id": f"azureml:{name}",
        "creation_context": {
            "created_at": _utc(outcome.created),
            "created_by": outcome.user,
            "created_by_type": "User",
        },
        "started_at": _utc(outcome.started),
        "ended_at": _utc(outcome.ended),
        "services": {
            "Studio": {"endpoint": link, "type": "Studio"},
            "Tracking": {"endpoint": mlflow_files.uri_of(folder.root), "type": "Tracking"},
        },
        "run_folder": folder.path,
        "containment": outcome.containment or None,
        **_of_engine(folder, outcome, brief=brief),
        "ranks": [
            {
                "rank": rank.rank,
                "node": rank.node,
                "state": rank.state,
                "exit_code": rank.code,
                "signal": rank.signal,
                "started_at": _utc(rank.started),
                "ended_at": _utc(rank.ended),
            }
            for _, rank in sorted(outcome.ranks.items())
        ],
    }
    if not outcome.is_final:
        described["processes"] = _processes(folder, outcome)
    return described


def _of_engine(folder: RunFolder, outcome: Outcome, *, brief: bool) -> dict[str, Any]:
    """Which machines its nodes are, by what they reach each other, and what the engine calls it."""
    if not is_elsewhere(outcome.engine):
        return {}
    network = outcome.network
    return {
        outcome.engine: engine(outcome.engine).describe_job(folder, brief=brief),
        "nodes": [
            {
                "node": node,
                "host": host,
                "address": network.addresses[node] if network else None,
                "interface": network.interfaces[node] if network else None,
            }
            for node, host in sorted(outcome.hosts.items())
        ],
        "network": network.reason if network else None,
    }


def _processes(folder: RunFolder, outcome: Outcome) -> dict[str, Any]:
    who = folder.read_json(folder.supervisor) or {}
    return {
        "supervisor": who.get("pid"),
        "agents": [pid for _, pid in sorted(outcome.agents.items())],
        "ranks": [
            {"rank": rank.rank, "node": rank.node, "pid": rank.pid}
            for _, rank in sorted(outcome.ranks.items())
            if rank.ended is None
        ],
    }


def _utc(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    from datetime import UTC, datetime

    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def archive(name: str) -> None:
    """Hide it from lists; nothing else changes. Raises NotFoundError."""
    _set_archived(name, archived=True)


def restore(name: str) -> None:
    """Raises NotFoundError."""
    _set_archived(name, archived=False)


def _set_archived(name: str, *, archived: bool) -> None:
    from drumline.store.index import Index

    folder = folder_of(name)
    folder.append(e.JobArchived(time.time()) if archived else e.JobRestored(time.time()))
    index = Index(home())
    index.heal(all_names(), _row)
    index.set_archived(name, archived)


def edit(name: str, changes: dict[str, Any]) -> None:
    """Raises NotFoundError; UsageError for a field that is not one of EDITABLE."""
    folder = folder_of(name)
    fixed = [field for field in changes if field not in EDITABLE]
    if fixed:
        raise UsageError(
            f"{fixed[0]!r} of a submitted job cannot be changed", f"these can: {', '.join(EDITABLE)}"
        )
    folder.append(e.JobEdited(time.time(), changes))


def described(listed: list[str]) -> Iterator[dict[str, Any]]:
    """Each of those jobs that is still there."""
    for name in listed:
        try:
            yield describe(name, brief=True)
        except NotFoundError:
            continue
