"""
``drumline prune``: old jobs, and the snapshots, environments, images and downloaded data that nothing needs any more.

What is removed is chosen anew while no job is submitted, so a job that begins meanwhile keeps what it needs.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from drumline.contract import events as e
from drumline.contract import process_identity
from drumline.contract.errors import NO_ROOM, NodeError, UsageError
from drumline.contract.folder import RunFolder, home
from drumline.contract.record import NamedTuple
from drumline.control.jobs import lookup, recovery
from drumline.control.jobs.ending import wait_until_readable
from drumline.control.jobs.job_outcome import read_outcome
from drumline.control.submission import run_folder
from drumline.control.upkeep import disk, stored_jobs, trash

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from drumline.control.upkeep.disk import Size
    from drumline.control.upkeep.stored_jobs import Content, Need, StoredJobs
    from drumline.control.upkeep.trash import TrashRemoval


FRESH_S = 3600.0
"""Snapshots and environments used so recently stay, whatever was asked for: an asset may be about to name them."""

OUTPUTS = ("outputs", "named-outputs", "logs", "artifacts")
"""The parts of a run folder that hold what the job wrote."""

WORK = ("code", "inputs", "user_logs", "system_logs", "system_metrics", "steps")
"""The parts that hold copies, logs and usage."""

WHOLE, KEEP_OUTPUTS, ONLY_OUTPUTS = "whole", "keep outputs", "only outputs"


class PruneFilter(NamedTuple):
    """
    The content to prune. ``older_than_s``: seconds since a job ended, or since content was used. ``statuses`` and
    ``experiment``: empty for all; with one of them only jobs are removed, and their snapshots. ``archived``: archived
    jobs too.
    """

    older_than_s: float
    statuses: frozenset[str] = frozenset()
    experiment: str = ""
    archived: bool = False
    parts: str = WHOLE

    @property
    def is_narrow(self) -> bool:
        return bool(self.statuses or self.experiment)

    @property
    def is_partial(self) -> bool:
        """Return whether only jobs, or parts of them, and their snapshots are removed."""
        return self.is_narrow or self.parts != WHOLE


class KeptJob(NamedTuple):
    """A job that is old enough, and why it stays."""

    job: str
    why: str
    is_archived: bool = False
    """Whether that alone is why."""


class PruneChoice(NamedTuple):
    """
    The jobs chosen for pruning, and the rest. ``jobs``: those that are no steps, each with all its steps or trials,
    itself first.
    """

    jobs: tuple[tuple[str, ...], ...]
    kept: tuple[KeptJob, ...]
    snapshots: tuple[Content, ...]
    environments: tuple[Content, ...]

    @property
    def names(self) -> frozenset[str]:
        return frozenset(name for family in self.jobs for name in family)


def choose(wanted: PruneFilter, known: StoredJobs | None = None) -> PruneChoice:
    """Return what ``prune`` would remove now. Nothing changes."""
    jobs = known or stored_jobs.StoredJobs()
    before = time.time() - wanted.older_than_s
    families = {
        top: family
        for top, family in jobs.families().items()
        if _is_chosen(jobs, top, family, before, wanted)
    }
    archived = [] if wanted.archived else [top for top in families if jobs.by_name[top].outcome.archived]
    for top in archived:
        del families[top]
    kept = [KeptJob(top, "it is archived", is_archived=True) for top in archived]
    if wanted.parts != KEEP_OUTPUTS:
        _keep_needed(jobs, families, kept)
    order = sorted(families, key=lambda top: (jobs.by_name[top].end_time, top))
    chosen = tuple(tuple(families[top]) for top in order)
    gone = [name for family in chosen for name in family] if wanted.parts == WHOLE else []
    snapshots, environments = _choose_content(jobs, gone, before, wanted)
    return PruneChoice(chosen, tuple(kept), snapshots, environments)


def _is_chosen(jobs: StoredJobs, top: str, family: Iterable[str], before: float, wanted: PruneFilter) -> bool:
    job = jobs.by_name[top]
    if not all(jobs.by_name[name].is_over for name in family) or job.end_time >= before:
        return False
    if wanted.statuses and job.outcome.status not in wanted.statuses:
        return False
    if wanted.experiment:
        spec = {**lookup.read_spec(job.folder), **job.outcome.edits}
        if str(spec.get("experiment_name") or "Default") != wanted.experiment:
            return False
    if wanted.parts == WHOLE:
        return True
    return any(_list_parts(jobs.by_name[name].folder, wanted.parts) for name in family)


def _keep_needed(jobs: StoredJobs, families: dict[str, list[str]], kept: list[KeptJob]) -> None:
    """Take out of ``families`` what a job that stays, or an asset, needs; until nothing changes."""
    assets = list(stored_jobs.read_assets(home()))
    while True:
        going = {name: top for top, family in families.items() for name in family}
        found = [one for one in stored_jobs.find_needs(jobs, going, assets) if one.how != stored_jobs.RERUNS]
        if not found:
            return
        for need in found:
            top = going[need.job]
            if families.pop(top, None):
                kept.append(KeptJob(top, need.what))


def _choose_content(
    jobs: StoredJobs, gone: Sequence[str], before: float, wanted: PruneFilter
) -> tuple[tuple[Content, ...], tuple[Content, ...]]:
    if wanted.parts != WHOLE:
        return (), ()
    roots = disk.list_roots()
    before = min(before, time.time() - FRESH_S)
    needed = stored_jobs.find_needed(roots, jobs, gone)
    snapshots = [one for root in roots for one in stored_jobs.list_code(root)]
    old = [one for one in snapshots if one.used < before and one.digest not in needed.snapshots]
    if wanted.is_narrow:
        ours = frozenset(digest for name in gone for digest in jobs.by_name[name].digests)
        return tuple(one for one in old if one.digest in ours), ()
    warm = _list_warm_pythons()
    environments = [one for root in roots for one in stored_jobs.list_environments(root)]
    return tuple(old), tuple(
        one
        for one in environments
        if one.used < before
        and one.digest not in needed.environments
        and not any(python.startswith(one.path + "/") for python in warm)
    )


def _list_warm_pythons() -> list[str]:
    from drumline.control.machine import warm

    try:
        return [one.python for one in warm.warm_interpreters()]
    except NodeError:
        return []


def _list_whole(folder: RunFolder) -> list[str]:
    return list(filter(None, (folder.path, trash.find_mlflow_run(folder))))


def _list_parts(folder: RunFolder, parts: str) -> list[str]:
    """Return the folders of a run that are to go, and are there."""
    names = WORK if parts == KEEP_OUTPUTS else OUTPUTS
    paths = [os.path.join(folder.path, name) for name in names]
    return [path for path in paths if os.path.isdir(path) and not os.path.islink(path)]


class PrunedJob(NamedTuple):
    """A job that goes. ``ended``: seconds since 1970, None if that is not known; ``jobs``: with its steps or trials."""

    name: str
    status: str
    ended: float | None
    jobs: int
    is_archived: bool
    size_bytes: int


class Pruned(NamedTuple):
    """The result of pruning, real or not, by kind: bytes, and the number of jobs, snapshots and so on."""

    choice: PruneChoice
    sizes: dict[str, Size]
    jobs: tuple[PrunedJob, ...] = ()
    """The oldest first. A file that two of them share counts in ``sizes`` alone."""

    @property
    def size_bytes(self) -> int:
        return sum(one.size for one in self.sizes.values())

    @property
    def is_empty(self) -> bool:
        return not any(one.files for one in self.sizes.values())


def measure(wanted: PruneFilter, choice: PruneChoice) -> Pruned:
    """Return what the choice holds. Nothing changes. Blocks."""
    families = [_list_removed(family, wanted.parts) for family in choice.jobs]
    paths = [path for family in families for path in family]
    images = [stored_jobs.measure_image(one) for one in choice.environments]
    return Pruned(
        choice,
        {
            "jobs": disk.measure_unshared(paths)._replace(files=sum(map(len, choice.jobs))),
            "snapshots": _measure(choice.snapshots),
            "environments": _measure(choice.environments),
            "images": disk.Size(sum(images), sum(size > 0 for size in images)),
            "data": _prune_data(wanted, dry_run=True),
        },
        tuple(map(_describe_job, choice.jobs, families)),
    )


def _list_removed(family: Iterable[str], parts: str) -> list[str]:
    """Return the folders of a job and of its steps that are to go."""
    folders = [RunFolder.for_job(name) for name in family]
    return [
        path
        for folder in folders
        for path in (_list_whole(folder) if parts == WHOLE else _list_parts(folder, parts))
    ]


def _describe_job(family: Sequence[str], paths: Sequence[str]) -> PrunedJob:
    folder = RunFolder.for_job(family[0])
    outcome = read_outcome(folder)
    size = disk.measure_unshared(paths).size
    return PrunedJob(folder.name, outcome.status, outcome.ended, len(family), outcome.archived, size)


def _measure(chosen: Sequence[Content]) -> Size:
    return disk.measure_unshared([one.path for one in chosen])._replace(files=len(chosen))


def _prune_data(wanted: PruneFilter, *, dry_run: bool) -> Size:
    if wanted.is_partial:
        return disk.Size()
    from drumline.control.machine import data_cache

    removed = data_cache.prune_unused(wanted.older_than_s, dry_run=dry_run)
    return disk.Size(removed.size_bytes, removed.files)


def prune(wanted: PruneFilter, shown: PruneChoice) -> PruneChoice:
    """
    Remove what was shown, as far as it may still go, and return that. Blocks.

    Raises EngineError while a submission or another removal does not end; DrumlineError if some files stay.
    """
    for family in shown.jobs:
        for name in family:
            if RunFolder.for_job(name).exists():
                recovery.recover(RunFolder.for_job(name))
    with run_folder.hold_removal_lock(home(), alone=True):
        bins = trash.complete_interrupted(home(), disk.list_roots())
        choice = _narrow(choose(wanted), shown)
        removal = trash.TrashRemoval(home())
        if wanted.parts == WHOLE:
            removal.take_jobs([RunFolder.for_job(name) for family in choice.jobs for name in family])
        else:
            for family in choice.jobs:
                _take_parts(family, wanted.parts, removal)
        for content in choice.snapshots:
            removal.take(content.path, content.root, "snapshot")
        gone = [one for one in choice.environments if stored_jobs.remove_environment(one, removal)]
    problems = [*trash.empty_bins(bins), *removal.empty()]
    _prune_data(wanted, dry_run=False)
    trash.report_leftovers(problems)
    return choice._replace(environments=tuple(gone))


def _narrow(choice: PruneChoice, shown: PruneChoice) -> PruneChoice:
    """Leave out what was not shown."""
    paths = {content.path for content in (*shown.snapshots, *shown.environments)}
    return choice._replace(
        jobs=tuple(family for family in choice.jobs if family in shown.jobs),
        snapshots=tuple(one for one in choice.snapshots if one.path in paths),
        environments=tuple(one for one in choice.environments if one.path in paths),
    )


def _take_parts(family: Iterable[str], parts: str, removal: TrashRemoval) -> None:
    """Take parts of a job and of its steps; first it is written down that they are gone, if there is room for that."""
    for name in family:
        folder = RunFolder.for_job(name)
        paths = _list_parts(folder, parts)
        if not paths:
            continue
        event = e.JobPruned(time.time(), [os.path.basename(path) for path in paths])
        try:
            folder.append(event)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            for path in paths:
                trash.remove_tree(path)
            folder.append(event)
        for path in paths:
            removal.take(path, folder.root, "part")


# job delete


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
    going = list(dict.fromkeys(each for name in names for each in known.list_family(name)))
    found = stored_jobs.find_needs(known, going, stored_jobs.read_assets(home()))
    _check(known, going, found)
    folders = [known.by_name[name].folder for name in going]
    paths = [path for folder in folders for path in _list_whole(folder)]
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
        if need.how == stored_jobs.BLOCKS:
            raise UsageError(need.what, f"drumline job cancel {lookup.as_arguments(need.user)}")


def _wait_for_supervisor(folder: RunFolder) -> None:
    """Recover a job, and wait for the process that has just written down its end."""
    if not recovery.recover(folder).is_final:
        return
    supervisor = process_identity.open_pidfd(folder.read_json(folder.supervisor))
    if supervisor is not None:
        wait_until_readable((supervisor,), _END_S)
        os.close(supervisor)
