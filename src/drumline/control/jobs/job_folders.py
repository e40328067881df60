"""Lists of jobs, and the small changes that a submitted job allows."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

from drumline.contract import events as e
from drumline.contract.errors import UsageError
from drumline.contract.folder import RunFolder, home
from drumline.contract.outcome import fold
from drumline.control.jobs.lookup import all_names, folder_of, read_spec

if TYPE_CHECKING:
    from drumline.store.index import Row

EDITABLE = ("display_name", "experiment_name", "description", "tags", "properties")


def names(*, archived: bool | None = False, parent: str | None = None, limit: int | None = None) -> list[str]:
    """List the names of jobs, newest first. ``archived`` None: both kinds."""
    from drumline.store.index import Index, UnusableIndexError

    index = Index(home())
    if index.can_write():
        with contextlib.suppress(UnusableIndexError):
            index.heal(all_names(), _row)
            return index.names(archived=archived, parent=parent, limit=limit)
    return index.names_without_writing(all_names(), _row, archived=archived, parent=parent, limit=limit)


def experiments() -> list[str]:
    """List the experiments of the index as it is: nothing is written, and those of the newest jobs may be missing."""
    from drumline.store.index import Index

    return Index(home()).experiments()


def _row(name: str) -> Row | None:
    from drumline.store.index import Row

    folder = RunFolder.for_job(name)
    try:
        outcome = fold(folder.read_events())
    except OSError:
        # A pipe or a link that the job has put there, or a folder that cannot be read now: the next list asks again.
        return None
    if outcome.created is None:
        return None
    spec = read_spec(folder)
    return Row(
        name,
        outcome.created,
        _to_text(spec.get("experiment_name") or "Default"),
        _to_text(spec.get("parent_job_name") or ""),
        outcome.archived,
    )


def _to_text(value: Any) -> str:
    """Return text that the index can keep, which half of a surrogate pair is not; YAML has one only without libyaml."""
    return str(value).encode("utf-8", "replace").decode()


def set_archived(name: str, *, archived: bool) -> bool:
    """Hide the job from lists, or show it again; return False if it was so already. Raises NotFoundError."""
    from drumline.store.index import Index, UnusableIndexError

    folder = folder_of(name)
    changes = fold(folder.read_events()).archived != archived
    if changes:
        folder.append(e.JobArchived(time.time()) if archived else e.JobRestored(time.time()))
    index = Index(home())
    try:
        index.set_archived(name, archived)
        index.heal(all_names(), _row)
    except UnusableIndexError:
        # The next one is made from the events, which have it.
        index.discard()
    return changes


def edit(name: str, changes: dict[str, Any]) -> None:
    """Change fields of a submitted job. Raises NotFoundError; UsageError for a field that is not in EDITABLE."""
    folder = folder_of(name)
    fixed = [field for field in changes if field not in EDITABLE]
    if fixed:
        raise UsageError(
            f"{fixed[0]!r} of a submitted job cannot be changed", f"these can: {', '.join(EDITABLE)}"
        )
    folder.append(e.JobEdited(time.time(), changes))
