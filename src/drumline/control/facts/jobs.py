"""
Many jobs at a glance: the facts that a list shows of each.

A job that has ended changes no more, so the index keeps its facts, and what ``job list`` prints of it as JSON, with a
stamp of its events. Jobs that run are read from their folders each time.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import time
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from drumline.contract import status
from drumline.contract.errors import DrumlineError, NotFoundError, UsageError
from drumline.contract.folder import RunFolder, current_workspace, home
from drumline.contract.hiding import hide_in_job
from drumline.contract.outcome import fold
from drumline.contract.record import ABSENT, Absent, NamedTuple
from drumline.control.facts import description
from drumline.control.jobs.lookup import folder_of, is_own, may_have_studio, read_spec
from drumline.control.jobs.recovery import recover
from drumline.control.settings import studios
from drumline.control.times import utc
from drumline.store.index import Index, KeptFacts, UnusableIndexError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from drumline.contract.outcome import Outcome


_FORMAT = 3
"""Raised when facts or descriptions change their form, so that none of before is taken."""

_MOST_KEPT_BYTES = 200_000
_FEW = 200
"""Jobs that are asked for one by one; of more, all are read."""

_MOST_NEW = 500
"""Facts that are kept at once; so many are written together."""

_MAIN_METRICS = (r"loss$", r"(^|[^a-z])(acc|accuracy)($|[^a-z])", r"acc")
"""Names of metrics that a list shows rather than others, best first."""

_MOST_DEPTH = 8
"""Of pipelines within each other, in which a hang is looked for; forged events may make a circle."""

_REPEATED = ("kind", "status", "reason", "experiment", "compute", "size")
_NO_TAGS: dict[str, str] = {}


class JobOverview(NamedTuple):
    """Times are seconds since 1970, None for what has not happened."""

    name: str
    kind: str
    status: str
    reason: str
    created: float | None
    started: float | None
    ended: float | None
    experiment: str
    compute: str
    parent: str
    tags: dict[str, str]
    size: str
    """Nodes x ranks on each: ``2x4``; of a pipeline or a sweep its steps or trials: ``8 tr``."""

    archived: bool
    metric: tuple[str, float] | None = None
    """The name and the newest value of its main metric; of a sweep the best value of its primary one."""

    has_metric: bool = False
    """Whether ``metric`` was looked up."""

    display_name: str = ""
    """Empty where it is the name."""

    hang: str = ""
    attempt: int = 0
    """Counts from 0."""

    most_attempts: int | None = None
    """How many there may be; None: it was not started again."""

    @property
    def is_final(self) -> bool:
        return self.status in status.TERMINAL


class KnownJobs:
    """Facts of many jobs. ``keep`` writes those that are new to the index."""

    def __init__(self) -> None:
        self._jobs = os.path.join(home(), "jobs")
        self._index = Index(home())
        self._can_write = self._index.can_write()
        self._kept: dict[str, KeptFacts] = {}
        self._new: dict[str, KeptFacts] = {}

    def load(self, names: Sequence[str]) -> None:
        """Read what is kept of these jobs."""
        missing = [name for name in names if name not in self._kept]
        if missing and self._can_write:
            try:
                self._kept |= self._index.read_kept(missing if len(missing) <= _FEW else ())
            except UnusableIndexError:
                self._can_write = False

    def is_known_final(self, name: str) -> bool:
        """Return whether the job is known to have ended, without opening a file of it."""
        kept = self._kept.get(name)
        return kept is not None and kept.stamp == self._stamp(name)

    def overviews(self, names: Iterable[str], *, with_metric: bool = False) -> Iterator[JobOverview]:
        """Yield the facts of those jobs that are still there, in that order."""
        wanted = list(names)
        self.load(wanted)
        for name in wanted:
            with contextlib.suppress(NotFoundError):
                yield self.overview(name, with_metric=with_metric)

    def overview(
        self, name: str, *, with_metric: bool = False, outcome: Outcome | None = None
    ) -> JobOverview:
        """
        Return the facts of a job. Raises NotFoundError.

        ``outcome``: of a job that was recovered just now; None: it is recovered where necessary.
        """
        stamp = self._stamp(name)
        kept = self._get_kept(name, stamp)
        found = _from_text(kept.facts) if kept else None
        if found is None:
            folder = folder_of(name)
            outcome = outcome or recover(folder)
            found = _look(folder, outcome)
            stamp = self._stamp(name) if _is_settled(outcome) else ""
            self._add(name, stamp, found)
        if with_metric and not found.has_metric:
            found = found._replace(metric=_find_metric(RunFolder.for_job(name), found), has_metric=True)
            if found.is_final:
                self._add(name, stamp, found)
        return found

    def describe(self, names: Iterable[str]) -> Iterator[dict[str, Any]]:
        """Yield descriptions as ``description.describe`` has them, in brief, and with ``created``."""
        wanted = list(names)
        self.load(wanted)
        known = [name for name in wanted if self.is_known_final(name)]
        texts: dict[str, str] = {}
        with contextlib.suppress(UnusableIndexError):
            texts = self._index.read_descriptions(known) if known else {}
        studio, workspace = None, current_workspace()
        if may_have_studio():
            studio = studios.find_running()
        for name in wanted:
            described = self._read_description(name, texts.get(name, ""))
            if described is None:
                try:
                    folder = folder_of(name)
                    outcome = recover(folder)
                    described = description.describe(folder, outcome, brief=True)
                except NotFoundError:
                    continue
                self._keep_description(folder, outcome, described)
            if studio:
                # What is kept does not name a studio, which may be another one next time.
                page = studio.address + studio.path_of(name, workspace)
                described["services"]["Studio"]["endpoint"] = page
            yield {**described, "created": described["creation_context"]["created_at"]}

    def _get_kept(self, name: str, stamp: str) -> KeptFacts | None:
        kept = self._new.get(name) or self._kept.get(name)
        return kept if kept is not None and stamp and kept.stamp == stamp else None

    def _read_description(self, name: str, text: str) -> dict[str, Any] | None:
        with contextlib.suppress(ValueError):
            described = json.loads(text)
            # The home may have been moved.
            if isinstance(described, dict) and described.get("run_folder") == RunFolder.for_job(name).path:
                return described
        return None

    def _keep_description(self, folder: RunFolder, outcome: Outcome, described: dict[str, Any]) -> None:
        # What an engine says of a job is of this moment, such as that it does not answer.
        is_passing = bool(described.get(outcome.engine or "", {}).keys() - {"slurm_job_id"})
        text = json.dumps(described, default=str) if _is_settled(outcome) and not is_passing else ""
        if not text or len(text) > _MOST_KEPT_BYTES:
            return
        stamp = self._stamp(folder.name)
        kept = self._get_kept(folder.name, stamp)
        facts = _from_text(kept.facts) if kept else None
        self._add(folder.name, stamp, facts or _look(folder, outcome), text)

    def _stamp(self, name: str) -> str:
        """Return what changes with every event of the job; empty for a job that is gone."""
        try:
            known = os.stat(f"{self._jobs}/{name}/events.jsonl")
        except OSError:
            return ""
        return f"{_FORMAT} {known.st_ino} {known.st_size} {known.st_mtime_ns}"

    def _add(self, name: str, stamp: str, facts: JobOverview, described: str = "") -> None:
        if not stamp or not self._can_write:
            return
        self._new[name] = KeptFacts(stamp, json.dumps(facts._asdict()), described)
        if len(self._new) >= _MOST_NEW:
            self.keep()

    def keep(self) -> None:
        """Write what is new to the index. A full disk or another process that holds it is no error."""
        if self._new:
            with contextlib.suppress(DrumlineError, OSError):
                self._index.keep_facts(self._new)
        self._kept.update(self._new)
        self._new = {}


def _is_settled(outcome: Outcome) -> bool:
    """Return whether nothing of the job will change without an event of its own."""
    return (
        outcome.is_final
        and not any(one.away for one in outcome.registered.values())
        and all(step.status or not step.job for step in outcome.steps.values())
    )


def _from_text(text: str) -> JobOverview | None:
    try:
        known = json.loads(text)
        if len(known) < len(JobOverview._fields):
            return None  # Of a version that kept fewer facts.
        # Ten thousand jobs have few of these between them.
        known.update((key, sys.intern(known[key])) for key in _REPEATED)
        metric = known["metric"]
        known["metric"] = (sys.intern(metric[0]), metric[1]) if metric else None
        return JobOverview(**{**known, "tags": known["tags"] or _NO_TAGS})
    except (ValueError, TypeError, LookupError, AttributeError):
        return None


def _look(folder: RunFolder, outcome: Outcome) -> JobOverview:
    spec = hide_in_job({**read_spec(folder), **outcome.edits})
    tags = spec.get("tags")
    below = _find_hang_below(outcome)
    plan = folder.read_json(folder.plan) or {}
    restarts = plan.get("max_restarts") if outcome.attempts else None
    return JobOverview(
        name=folder.name,
        kind=outcome.kind,
        status=outcome.status,
        reason=below or outcome.why,
        created=outcome.created,
        started=outcome.started,
        ended=outcome.ended,
        experiment=str(spec.get("experiment_name") or "Default"),
        compute=compute_of(spec, outcome),
        parent=str(spec.get("parent_job_name") or ""),
        tags={str(key): str(value) for key, value in tags.items()} if isinstance(tags, dict) else {},
        size=_find_size(folder, outcome, plan),
        archived=outcome.archived,
        display_name=str(spec.get("display_name") or ""),
        hang=outcome.hang or below,
        attempt=len(outcome.attempts),
        most_attempts=restarts + 1 if isinstance(restarts, int) and restarts else None,
    )


def _find_hang_below(outcome: Outcome, depth: int = 0) -> str:
    """Return which step or trial of a running job hangs, and where; empty for none."""
    if outcome.is_final or depth > _MOST_DEPTH:
        return ""
    word = "trial" if outcome.kind == "sweep" else "step"
    for step in outcome.steps.values():
        if step.status or not step.job:
            continue
        folder = RunFolder.for_job(step.job)
        with contextlib.suppress(OSError):
            own = fold(folder.read_events() if is_own(folder) else ())
            if own.hang and not own.is_final:
                return f"{word} {step.step} hangs: {own.hang}"
            below = _find_hang_below(own, depth + 1)
            if below:
                return f"{word} {step.step}: {below}"
    return ""


def compute_of(spec: Mapping[str, Any], outcome: Outcome) -> str:
    """Return the name of the compute that the job is on; ``local`` is this machine."""
    settings = spec.get("settings")
    asked = spec.get("compute") or (settings.get("default_compute") if isinstance(settings, dict) else None)
    name = str(asked or "").removeprefix("azureml:")
    return name or outcome.engine or "local"


def _find_size(folder: RunFolder, outcome: Outcome, plan: Mapping[str, Any]) -> str:
    if outcome.kind == "pipeline":
        return f"{len((folder.read_json(folder.graph) or {}).get('steps') or ())} st"
    if outcome.kind == "sweep":
        return f"{len(outcome.steps)} tr"
    try:
        counts = [len(node["ranks"]) for node in plan["nodes"]]
    except (LookupError, TypeError):
        return "-"
    if len(set(counts)) == 1:
        return f"{len(counts)}x{counts[0]}"
    return f"{sum(counts)} on {len(counts)}" if counts else "-"


def _find_metric(folder: RunFolder, found: JobOverview) -> tuple[str, float] | None:
    if found.kind == "pipeline":
        return None
    if found.kind == "sweep":
        return _find_best(folder)
    if found.started is None:
        return None
    from drumline.control.facts import metrics

    latest = metrics.read_latest(folder, in_files=True)[0]
    name = main_metric(latest)
    value = latest.get(name)
    return (name, float(value)) if value is not None else None


def _find_best(folder: RunFolder) -> tuple[str, float] | None:
    from drumline.control.facts import parts

    objective = (folder.read_json(folder.graph) or {}).get("objective") or {}
    leader = parts.best_of(fold(folder.read_events()).steps, str(objective.get("goal")))
    if leader is None:
        return None
    return str(objective.get("primary_metric")), float(leader.detail["metric"])


def main_metric(names: Iterable[str]) -> str:
    """
    Return the metric that stands for a job where there is room for one; empty without any.

    >>> main_metric(["lr", "train/loss", "epoch"]), main_metric(["b", "a"]), main_metric([])
    ('train/loss', 'a', '')
    """
    known = sorted(names, key=lambda name: (len(name), name))
    for pattern in _MAIN_METRICS:
        for name in known:
            if re.search(pattern, name.lower()):
                return name
    return min(known, default="")


# filters


STATUSES = (
    *(status.NOT_STARTED, status.QUEUED, status.PREPARING, status.PROVISIONING, status.STARTING),
    *(status.RUNNING, status.FINALIZING, status.CANCEL_REQUESTED, status.NOT_RESPONDING),
    *(status.COMPLETED, status.FAILED, status.CANCELED),
)


class JobFilters(NamedTuple):
    """
    Empty: all jobs. ``since``: seconds since 1970. ``text``: in lower case, in its name, display name, experiment,
    reason or tags. ``archived`` and ``parent`` None: whatever they are.
    """

    statuses: frozenset[str] = frozenset()
    experiment: str = ""
    compute: str = ""
    since: float | None = None
    tags: tuple[tuple[str, str | None], ...] = ()
    text: str = ""
    kinds: frozenset[str] = frozenset()
    archived: bool | None = None
    parent: str | None = None

    @property
    def is_empty(self) -> bool:
        return self == JobFilters()

    def match(self, job: JobOverview) -> bool:
        return (
            (self.parent is None or job.parent == self.parent)
            and (self.archived is None or job.archived == self.archived)
            and (not self.statuses or job.status in self.statuses)
            and (not self.kinds or job.kind in self.kinds)
            and (not self.experiment or fnmatchcase(job.experiment, self.experiment))
            and (not self.compute or fnmatchcase(job.compute, self.compute))
            and (self.since is None or (job.created or 0.0) >= self.since)
            and all(key in job.tags and (value is None or job.tags[key] == value) for key, value in self.tags)
            and (not self.text or self.text in self._to_text(job))
        )

    @staticmethod
    def _to_text(job: JobOverview) -> str:
        """Return what is searched for text, in lower case."""
        tags = (f"{key}={value}" for key, value in job.tags.items())
        return "\n".join((job.name, job.display_name, job.experiment, job.reason, *tags)).lower()


def parse_statuses(given: Iterable[str], where: str) -> frozenset[str]:
    """Return the statuses of ``Failed,running``. Raises UsageError, with ``where``, for one that there is not."""
    words = [word.strip() for text in given for word in text.split(",") if word.strip()]
    return frozenset(_parse_status(word, where) for word in words)


def _parse_status(word: str, where: str) -> str:
    known = {one.lower(): one for one in STATUSES}
    if word.lower() not in known:
        import difflib

        close = difflib.get_close_matches(word.lower(), known, n=1)
        hint = f"did you mean {known[close[0]]!r}?" if close else f"one of {', '.join(STATUSES)}"
        raise UsageError(f"{where}: no job can be {word!r}", hint)
    return known[word.lower()]


def parse_tags(given: Iterable[str]) -> tuple[tuple[str, str | None], ...]:
    """Return the tags of ``KEY`` and ``KEY=VALUE``."""
    tags = [text.partition("=") for text in given]
    return tuple((key, value if equals else None) for key, equals, value in tags)


# rows for programs to draw


def duration_of(job: JobOverview) -> float | None:
    return None if job.started is None else max(0.0, (job.ended or time.time()) - job.started)


class JobMetric(NamedTuple):
    name: str
    value: float


class JobRow(NamedTuple):
    """A row of a list. Times are RFC 3339 in UTC, durations seconds. ``spark``: None where there was no time for it."""

    name: str
    display_name: str
    experiment: str
    type: str
    status: str
    sentence: str
    hangs: bool
    created: str | None
    started: str | None
    ended: str | None
    duration: float | None
    size: str
    nodes: int | None
    processes: int | None
    compute: str
    attempt: int
    most_attempts: int | None
    metric: JobMetric | None
    tags: dict[str, str]
    parent: str
    archived: bool
    spark: list[float | None] | Absent | None = ABSENT


def describe_row(job: JobOverview) -> JobRow:
    took = duration_of(job)
    return JobRow(
        *(job.name, job.display_name or job.name, job.experiment, job.kind, job.status),
        job.hang or ("" if job.status == status.COMPLETED else job.reason),
        bool(job.hang),
        utc(job.created),
        utc(job.started),
        utc(job.ended),
        None if took is None else round(took, 3),
        job.size,
        *_parse_size(job.size),
        job.compute,
        job.attempt,
        job.most_attempts,
        job.metric and JobMetric(*job.metric),
        job.tags,
        job.parent,
        job.archived,
    )


def _parse_size(size: str) -> tuple[int | None, int | None]:
    """Return the numbers of nodes and of ranks in all; None for a job without ranks of its own."""
    even, odd = re.fullmatch(r"(\d+)x(\d+)", size), re.fullmatch(r"(\d+) on (\d+)", size)
    if even:
        return int(even[1]), int(even[1]) * int(even[2])
    return (int(odd[2]), int(odd[1])) if odd else (None, None)
