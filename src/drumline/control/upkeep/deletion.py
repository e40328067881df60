"""``job delete``: jobs with their steps, folders, logs and metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drumline.contract import identity
from drumline.contract.errors import UsageError
from drumline.contract.folder import home
from drumline.contract.record import NamedTuple
from drumline.control.jobs import lookup, recovery
from drumline.control.jobs.waiting import wait_until_readable
from drumline.control.submission import run_folder
from drumline.control.upkeep import disk, needs, stored_jobs, trash

if TYPE_CHECKING:
    from collections.abc import Sequence

    from drumline.contract.folder import RunFolder
    from drumline.control.upkeep.needs import Need
    from drumline.control.upkeep.stored_jobs import StoredJobs

_END_S = 5.0
"""How long a supervisor may take to end after its job."""


class Deletion(NamedTuple):
    """A deletion to be made. ``jobs``: all that go, steps and trials too. ``needs``: what others need of them."""

    jobs: tuple[str, ...]
    needs: tuple[Need, ...]
    size_bytes: int


def plan_deletion(names: Sequence[str]) -> Deletion:
    """
    Return what ``delete_jobs`` would remove; nothing changes, except that jobs without a supervisor are ended.

    Raises NotFoundError; UsageError for a job that has not ended, or that another one that has not ended needs.
    """
    for name in names:
        recovery.recover(lookup.folder_of(name))
    return _plan(names)


def _plan(names: Sequence[str]) -> Deletion:
    known = stored_jobs.StoredJobs()
    going = _list_going(known, names)
    found = needs.find_needs(known, going, stored_jobs.read_assets(home()))
    _check(known, going, found)
    folders = [known.by_name[name].folder for name in going]
    paths = [path for folder in folders for path in (folder.path, trash.find_mlflow_run(folder)) if path]
    return Deletion(tuple(going), tuple(found), disk.measure_unshared(paths).size)


def delete_jobs(names: Sequence[str]) -> Deletion:
    """Remove jobs; all of them, or none. Raises as ``plan_deletion``; DrumlineError if some files stay. Blocks."""
    for name in names:
        _wait_for_supervisor(lookup.folder_of(name))
    with run_folder.hold_removal_lock(home(), alone=True):
        planned = _plan(names)
        bins = trash.complete_interrupted(home(), disk.list_roots())
        removal = trash.TrashRemoval(home())
        removal.take_jobs([lookup.folder_of(name) for name in planned.jobs])
    trash.report_leftovers([*trash.empty_bins(bins), *removal.empty()])
    return planned


def _list_going(known: StoredJobs, names: Sequence[str]) -> list[str]:
    going: list[str] = []
    for name in names:
        going += [each for each in known.list_family(name) if each not in going]
    return going


def _check(known: StoredJobs, going: list[str], found: Sequence[Need]) -> None:
    for name in going:
        outcome = known.by_name[name].outcome
        if not outcome.is_final:
            hint = f"drumline job cancel {lookup.as_arguments(known.find_top(name))}"
            raise UsageError(
                f"job {name} is {outcome.status}, and cannot be deleted before it has ended", hint
            )
        if not known.by_name[name].is_over:
            raise UsageError(f"the supervisor of job {name} has not ended yet", "try again in a few seconds")
    for need in found:
        if need.how == needs.BLOCKS:
            raise UsageError(need.what, f"drumline job cancel {lookup.as_arguments(need.user)}")


def _wait_for_supervisor(folder: RunFolder) -> None:
    """Recover a job, and wait for the process that has just written down its end."""
    if not recovery.recover(folder).is_final:
        return
    supervisor = identity.open_pidfd(folder.read_json(folder.supervisor))
    if supervisor is not None:
        import os

        wait_until_readable((supervisor,), _END_S)
        os.close(supervisor)
