"""What is known of jobs: one, a list of them, and the small changes that a finished or running job allows."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING, Any

from drumline.contract import events as e
from drumline.contract import identity, status
from drumline.contract.errors import NotFoundError, UsageError
from drumline.contract.folder import (
    WORKSPACE,
    RunFolder,
    chosen_workspace,
    current_workspace,
    home,
    home_of,
    workspace,
    workspace_names,
)
from drumline.contract.outcome import Outcome, fold
from drumline.engines.table import engine, is_elsewhere

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drumline.store.index import Row

_SUPERVISOR_START_S = 15.0
"""After this a job without a supervisor never had one."""

_DRIVER_START_S = 5.0

EDITABLE = ("display_name", "experiment_name", "description", "tags", "properties")


def folder_of(name: str) -> RunFolder:
    """Raises NotFoundError, with where it is, or what is alike."""
    folder = RunFolder.of(name)
    is_name = "/" not in name and name not in ("", ".", "..")
    if not is_name or not folder.exists():
        raise NotFoundError(f"there is no job {name!r}", (is_name and _elsewhere(name)) or _alike(name))
    return folder


def as_arguments(name: str) -> str:
    """As a command line names the job: ``-n NAME``, and its workspace where that is chosen for this command alone."""
    chosen = chosen_workspace()
    return f"-n {name}" + (f" -w {chosen}" if chosen and chosen != os.environ.get(WORKSPACE) else "")


def _elsewhere(name: str) -> str:
    """In which other workspace there is a job of that name; empty for none."""
    for other in _other_workspaces():
        if RunFolder.of(name, home_of(other)).exists():
            return (
                f"it is in workspace {other!r}: add -w {other}"
                if other
                else "it is in no workspace: add -w ''"
            )
    return ""


def _other_workspaces() -> list[str]:
    """The empty one is the base home."""
    here = current_workspace()
    return [other for other in ("", *workspace_names()) if other != here]


def counts_elsewhere() -> dict[str, int]:
    """How many jobs the other workspaces have, of those that have some; as of ``contract.folder.workspace``."""
    counts = {}
    for other in _other_workspaces():
        with workspace(other):
            count = len(all_names())
        if count:
            counts[other] = count
    return counts


def _alike(name: str) -> str:
    import difflib

    close = difflib.get_close_matches(name, all_names(), n=1)
    return f"did you mean {close[0]!r}?" if close else "drumline job list shows those there are"


def all_names() -> list[str]:
    """In no order."""
    try:
        with os.scandir(os.path.join(home(), "jobs")) as entries:
            return [entry.name for entry in entries if _is_folder(entry)]
    except FileNotFoundError:
        return []


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # Such as a link to itself.
        return False


def outcome_of(folder: RunFolder) -> Outcome:
    """
    What became of the job so far. A job whose supervisor was killed is ended here, and so are its processes:
    whoever looks first writes it down.
    """
    outcome = fold(folder.read_events())
    if outcome.is_final:
        return _with_assets(folder, outcome)
    if outcome.kind != "command":
        return _driven(folder, outcome)
    if is_elsewhere(outcome.engine):
        return _as_its_engine_says(folder, outcome)
    if _is_supervised(folder, outcome):
        outcome.reason = held_up(folder) or outcome.reason
        return outcome
    # Its last event may have been written between our look at the file and our look at the process.
    outcome = fold(folder.read_events())
    if not outcome.is_final:
        _bury(folder)
        outcome = fold(folder.read_events())
    return outcome


def _with_assets(folder: RunFolder, outcome: Outcome) -> Outcome:
    """Its outputs may have to be registered where its nodes could not reach."""
    if not any(one.away for one in outcome.registered.values()):
        return outcome
    from drumline.control.follow import plan_of
    from drumline.supervisor import registration

    with contextlib.suppress(OSError):
        registration.register(folder, plan_of(folder).registers)
    return fold(folder.read_events())


def _driven(folder: RunFolder, outcome: Outcome) -> Outcome:
    """Of a pipeline or a sweep. Its steps go on without a driver; one that has none gets another."""
    who = folder.read_json(folder.supervisor)
    if who is None and time.time() - (outcome.created or 0.0) < _DRIVER_START_S:
        return outcome
    outcome.reason = held_up(folder) or outcome.reason
    if not identity.is_alive(who):
        from drumline.control.driver import start

        start.revive(folder)
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


def held_up(folder: RunFolder) -> str:
    """Why a job that has a supervisor on this machine, or a driver, does nothing; empty where that is not so."""
    who = folder.read_json(folder.supervisor)
    if not who or not identity.is_stopped(who):
        return ""
    pid = who["pid"]
    return f"process {pid}, which looks after it, was stopped (SIGSTOP); kill -CONT {pid} lets it go on"


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
    from drumline.control import description

    folder = folder_of(name)
    return description.of(folder, outcome_of(folder), brief=brief)


def services(name: str) -> dict[str, Any]:
    """The programs beside its ranks, by name, with endpoint and status. Raises NotFoundError."""
    from drumline.control import description

    return description.services_of(folder_of(name))


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
