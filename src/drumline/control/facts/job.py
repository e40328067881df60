"""
The facts of a job: how it stands, why, where the time went, what it logged and wrote, and what to do next.

Values to draw in a terminal, a notebook or a web page: times are seconds, sizes bytes, text is as the job wrote it and
not safe for a terminal.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from drumline.contract import status
from drumline.contract.errors import DAMAGED, DamagedError
from drumline.contract.folder import RunFolder, load_plain
from drumline.contract.hiding import hide_in, hide_in_job
from drumline.contract.record import NamedTuple
from drumline.control.answer_cache import KeptAnswers, stamp_files
from drumline.control.facts import description
from drumline.control.facts.doubts import list_warnings
from drumline.control.facts.jobs import KnownJobs, compute_of, describe_row, main_metric
from drumline.control.facts.steps import describe_steps
from drumline.control.jobs.lookup import as_arguments, find_plan, folder_of, load_yaml, read_spec
from drumline.control.jobs.recovery import recover
from drumline.control.terminal import decode
from drumline.control.times import utc

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from drumline.contract.outcome import Outcome
    from drumline.contract.plan import Plan
    from drumline.control.facts.parts import Part, StepFacts, TrialFacts
    from drumline.control.facts.steps import TrainingFacts
    from drumline.tracking.metrics import Point, Series

_LAST_LINES = 10
_MOST_WARNING_BYTES = 1 << 20
_warnings = KeptAnswers(_MOST_WARNING_BYTES)
"""Of jobs whose events have not changed."""
_MOST_METRICS = 8
_METRICS_LIMIT_S = 2.0
_MOST_FILES = 5000
"""Of a folder, that are counted; a folder with more is said to have more."""

_MOST_SAID = 100
"""Warnings and drills that the head of a page has."""

_SHORTEST_PHASE_S = 0.005
_NOTES = "link: "
"""The beginning of a plan's warnings that a reader of the job's times must know."""

_MOST_SPEC = 4 << 20
_NEW_SENTENCE = re.compile(
    r"; (?=(?:ranks? [\w, -]+ (?:failed the same way|failed too|(?:was|were) then (?:cut off|stopped))))"
    r"| \((?=attempt \d+; not restarted: )"
)
"""Where a verdict goes on to the other ranks: a sentence each reads better than one of five lines."""

_LOW_IS_GOOD = re.compile(r"(^|[^a-z])(loss|error|err|perplexity|ppl|wer|cer|mae|mse|rmse)($|[^a-z])")
_HIGH_IS_GOOD = re.compile(r"(^|[^a-z])(acc|accuracy|f1|auc|bleu|reward)($|[^a-z])")


class AttemptFacts(NamedTuple):
    """One attempt, counted from 0. ``kind``: as of AttemptEnded; of the latest its status, empty while it goes on."""

    number: int
    began: float | None
    ended: float | None
    kind: str
    reason: str


class RankGroup(NamedTuple):
    """The labels of the ranks in one state."""

    state: str
    ranks: list[str]


class FailedRank(NamedTuple):
    """The rank that failed first, with the place in its code where that is known, and the end of its log."""

    rank: int
    label: str
    node: int | None
    file: str | None
    line: int | None
    function: str | None
    last_lines: list[str]


class StartFacts(NamedTuple):
    """The start of an attempt: how long it took, and each phase of it; None: it goes on."""

    total_s: float
    phases: list[tuple[str, float | None]]


class MetricFacts(NamedTuple):
    """The figures of a metric. ``best``: of one whose name says which values are good."""

    metric: str
    last: float | None
    lowest: float | None
    highest: float | None
    best: Point | None


class UseFacts(NamedTuple):
    """The use of all ranks together."""

    peak_memory_bytes: int
    mean_cpu_percent: float | None


class MeasuredFolder(NamedTuple):
    """A folder of the job, or its code. ``files`` None: code that was used in place. ``is_more``: than was counted."""

    what: str
    path: str
    files: int | None = None
    bytes: int = 0
    is_more: bool = False
    digest: str = ""
    commit: str = ""
    branch: str = ""


class SweepGoal(NamedTuple):
    """The metric of a sweep, ``minimize`` or ``maximize``, and how many trials there may be."""

    metric: str
    goal: str
    most_trials: int | None


def read_facts(name: str) -> JobFacts:
    """Recover the job where that is necessary, and return its facts. Raises NotFoundError."""
    folder = folder_of(name)
    return JobFacts(folder, recover(folder))


class JobFacts:
    """All facts of a job. A file of it is read when a fact in it is asked for, and once."""

    def __init__(self, folder: RunFolder, outcome: Outcome) -> None:
        self.folder = folder
        self.outcome = outcome
        self.name = folder.name
        self.sentences = split_reason(outcome.reason)
        self.pruned = sorted(outcome.pruned)
        self.pruned_at = utc(min(outcome.pruned.values(), default=None))

    @cached_property
    def spec(self) -> dict[str, Any]:
        """The job file with the user's changes, without values of secrets."""
        return hide_in_job({**read_spec(self.folder), **self.outcome.edits})

    @cached_property
    def plan(self) -> Plan | None:
        """None: there is none, or it is damaged."""
        return find_plan(self.folder)

    @cached_property
    def warnings(self) -> list[str]:
        """What is likely wrong with the job, and the experiments of an autotuner that failed."""

        def make() -> tuple[list[str], float | None]:
            return [warning.text for warning in list_warnings(self.folder, self.outcome)], None

        warned = _warnings.get_or_make(self.folder.path, stamp_files([self.folder.events]), make)
        return warned + self.outcome.list_failed_experiments()

    @property
    def display_name(self) -> str:
        return str(self.spec.get("display_name") or self.name)

    @property
    def parent(self) -> str:
        return str(self.spec.get("parent_job_name") or "")

    @property
    def compute(self) -> str:
        return compute_of(self.spec, self.outcome)

    @property
    def waited_s(self) -> float | None:
        created, until = self.outcome.created, self.outcome.started or self.outcome.ended or time.time()
        return None if created is None else max(0.0, until - created)

    @property
    def attempts(self) -> list[AttemptFacts]:
        """All attempts in order, the latest too; none of a job without ranks."""
        outcome = self.outcome
        if outcome.kind != "command":
            return []
        latest = len(outcome.attempts)
        kind = outcome.status.lower() if outcome.is_final else ""
        return [
            *(
                AttemptFacts(number, outcome.began.get(number), end.time, end.kind, end.reason)
                for number, end in enumerate(outcome.attempts)
            ),
            AttemptFacts(
                latest, outcome.began.get(latest), outcome.ended, kind, outcome.hang or outcome.reason
            ),
        ]

    @property
    def most_attempts(self) -> int | None:
        """How many there may be; None: it is not started again."""
        return self.plan.max_restarts + 1 if self.plan and self.plan.max_restarts else None

    def list_drills(self, attempt: int | None = None) -> list[str]:
        """List the sentences about failures that were made on purpose in an attempt; None: in the latest."""
        if not self.outcome.drills:
            return []
        from drumline.control.jobs import drill_requests

        return drill_requests.list_sentences(self.outcome, attempt)

    @property
    def notes(self) -> list[str]:
        """What the plan warns of that a reader of the job's times must know."""
        return [text for text in self.plan.warnings if text.startswith(_NOTES)] if self.plan else []

    @property
    def inputs(self) -> list[tuple[str, str]]:
        """Name and value of each input; of data its path."""
        return _list_inputs(self.spec.get("inputs"))

    @property
    def ranks_by_node(self) -> list[int]:
        return [len(node.ranks) for node in self.plan.nodes] if self.plan else []

    @property
    def rank_groups(self) -> list[RankGroup]:
        """The ranks of the latest attempt by state: failures first, those that are done last."""
        groups: dict[str, list[str]] = {}
        for number, rank in sorted(self.outcome.ranks.items()):
            groups.setdefault(rank.state, []).append(self._label_of(number))
        order = ("exit", "signal", "lost", "running", "done")
        ordered = sorted(groups, key=lambda state: (order.index(state.partition(" ")[0]), state))
        return [RankGroup(state, groups[state]) for state in ordered]

    @cached_property
    def _labels(self) -> dict[int, str]:
        return {task.rank: task.label for task in self.plan.ranks} if self.plan else {}

    def _label_of(self, rank: int) -> str:
        return self._labels.get(rank, str(rank))

    @cached_property
    def failed_rank(self) -> FailedRank | None:
        rank = self.outcome.failed_rank
        if rank is None or self.outcome.kind != "command":
            return None
        from drumline.control.logs.follow import last_lines

        verdict = self.outcome.verdict or {}
        lines = last_lines(self.folder, self.plan, rank, _LAST_LINES) if self.plan else []
        return FailedRank(
            rank,
            self._label_of(rank),
            self.outcome.failed_node,
            verdict.get("file"),
            verdict.get("line"),
            verdict.get("function"),
            [decode(line) for line in lines],
        )

    @property
    def start(self) -> StartFacts | None:
        """How long the phases of the latest attempt's start took; None: nothing is known of it."""
        from drumline.control.facts import start

        starts = start.read_starts(self.folder)
        if not starts:
            return None
        phases = start.list_phases(starts[-1])
        longest = start.longest(starts[-1], phases)
        shown = [
            (phase.name, phase.took_s)
            for phase in phases
            if not phase.part_of and (phase.took_s is None or phase.took_s >= _SHORTEST_PHASE_S)
        ]
        return StartFacts(round(longest.total_s, 6), shown) if shown and longest else None

    def read_metrics(self) -> tuple[list[MetricFacts], int]:
        """Return the most important metrics, and how many more there are."""
        if self.outcome.started is None:
            return [], 0
        from drumline.control.facts.metrics import read_metrics

        logged = read_metrics(self.folder, limit_s=_METRICS_LIMIT_S)
        own = {series.name: series for series in reversed(logged.series) if len(series)}
        first = main_metric(own)
        names = sorted(own, key=lambda name: (name != first, name))
        left_out = logged.left_out + max(0, len(names) - _MOST_METRICS)
        return [_describe_series(own[name]) for name in names[:_MOST_METRICS]], left_out

    @property
    def training(self) -> TrainingFacts | None:
        return describe_steps(self.folder, self.outcome)

    @property
    def use(self) -> UseFacts | None:
        """None: it was not sampled."""
        if not self.outcome.ranks:
            return None
        from drumline.control.facts import usage

        totals = usage.list_totals(self.folder, self.outcome)
        if not totals:
            return None
        means = [rank.mean_cpu_percent for rank in totals if rank.mean_cpu_percent is not None]
        peak = max(rank.peak_memory_bytes for rank in totals)
        return UseFacts(peak, round(sum(means) / len(means), 1) if means else None)

    @property
    def folders(self) -> list[MeasuredFolder]:
        """What the job wrote, and its code."""
        folder = self.folder
        places = (
            ("outputs", folder.outputs),
            ("named-outputs", folder.named_outputs),
            ("user_logs", folder.user_logs),
        )
        written = [_measure_folder(what, path) for what, path in places]
        properties = self.spec.get("properties")
        properties = properties if isinstance(properties, dict) else {}
        digest, in_place = self.plan.snapshot if self.plan else "", properties.get("drumline.working_folder")
        code = []
        if digest and "/" not in digest:
            commit = str(properties.get("azureml.git.commit") or "")
            branch = str(properties.get("azureml.git.branch") or "")
            measured = _measure_folder("code", os.path.join(folder.root, "snapshots", digest))
            code = [measured._replace(digest=digest, commit=commit, branch=branch)]
        elif in_place:
            code = [MeasuredFolder("code", str(in_place))]
        return [place for place in written if place.files] + code

    @cached_property
    def parts(self) -> Sequence[Part]:
        """Steps in their order; trials: the best first, those without a metric last."""
        if self.outcome.kind == "command":
            return []
        from drumline.control.facts import parts

        if self.outcome.kind != "sweep":
            return parts.list_steps(self.folder, self.outcome)
        sign = -1.0 if self.objective.goal == "maximize" else 1.0

        def key(trial: TrialFacts) -> tuple[bool, float]:
            value = trial.metric
            is_number = isinstance(value, (int, float)) and value == value  # noqa: PLR0124 - nan
            return (not is_number, sign * (value or 0.0) if is_number else 0.0)

        return sorted(parts.list_trials(self.folder, self.outcome), key=key)

    @property
    def steps(self) -> list[StepFacts]:
        """None of a job that is no pipeline."""
        return cast("list[StepFacts]", self.parts) if self.outcome.kind == "pipeline" else []

    @property
    def trials(self) -> list[TrialFacts]:
        """None of a job that is no sweep."""
        return cast("list[TrialFacts]", self.parts) if self.outcome.kind == "sweep" else []

    @cached_property
    def objective(self) -> SweepGoal:
        """What a sweep looks for."""
        objective = (self.folder.read_json(self.folder.graph) or {}).get("objective") or {}
        limits = self.spec.get("limits")
        most = limits.get("max_total_trials") if isinstance(limits, dict) else None
        return SweepGoal(str(objective.get("primary_metric") or ""), str(objective.get("goal") or ""), most)


def split_reason(reason: str) -> list[str]:
    """
    Split a verdict where it goes on to the other ranks.

    >>> split_reason("rank 3 failed first: x; ranks 0-2 were then cut off (gone) (attempt 2; not restarted: alike)")
    ['rank 3 failed first: x', 'ranks 0-2 were then cut off (gone)', 'attempt 2; not restarted: alike']
    """
    parts = [part for part in _NEW_SENTENCE.split(reason) if part]
    return [part.removesuffix(")") if part.startswith("attempt ") else part for part in parts]


def _list_inputs(given: Any) -> list[tuple[str, str]]:
    if not isinstance(given, dict):
        return []
    values = {
        name: value.get("path", value.get("value")) if isinstance(value, dict) else value
        for name, value in given.items()
    }
    return [(str(name), str(value)) for name, value in values.items() if value is not None]


def _describe_series(series: Series) -> MetricFacts:
    figures = series.figures()
    name = series.name.lower()
    wanted = (
        figures.lowest
        if _LOW_IS_GOOD.search(name)
        else figures.highest
        if _HIGH_IS_GOOD.search(name)
        else None
    )
    best = None if wanted is None else next((point for point in series if point.value == wanted), None)
    last = figures.last.value if figures.last else None
    return MetricFacts(series.name, last, figures.lowest, figures.highest, best)


def _measure_folder(what: str, path: str) -> MeasuredFolder:
    """Count the files below a folder and their bytes. Links are not followed."""
    files = size = 0
    for file in _walk_files(path):
        if file is None:
            return MeasuredFolder(what, path, files, size, is_more=True)
        with contextlib.suppress(OSError):  # Removed meanwhile.
            size += file.stat(follow_symlinks=False).st_size
            files += 1
    return MeasuredFolder(what, path, files, size)


def _walk_files(path: str) -> Iterator[os.DirEntry[str] | None]:
    """Yield the files below a folder; None at the end where there are more than are looked at."""
    left, seen = [path], 0
    while left:
        # Removed meanwhile, or not ours to read.
        with contextlib.suppress(OSError), os.scandir(left.pop()) as entries:
            for entry in entries:
                seen += 1
                if seen > _MOST_FILES:
                    yield None
                    return
                if entry.is_dir(follow_symlinks=False):
                    left.append(entry.path)
                elif entry.is_file(follow_symlinks=False):
                    yield entry


# what to do next


def choose_next(facts: JobFacts, *, has_metrics: bool) -> str:
    """Return a command that helps in this state of the job; empty where none does."""
    outcome, folder, name = facts.outcome, facts.folder, as_arguments(facts.name)
    if outcome.kind != "command":
        return _choose_next_part(facts, name)
    if not outcome.is_final:
        return f"drumline job {'stacks' if outcome.hang else 'stream'} {name}"
    if "user_logs" in outcome.pruned:
        return ""  # Every command that shows or copies its logs would say that they are gone.
    if outcome.status == status.FAILED and facts.failed_rank:
        label = facts.failed_rank.label
        return f"drumline job logs {name} --rank {label}" if label.isalnum() else f"drumline job logs {name}"
    if outcome.status == status.COMPLETED:
        if not facts.pruned and any(map(_has_files, (folder.outputs, folder.named_outputs))):
            return f"drumline job download {name} --all"
        if has_metrics:
            return f"drumline job metrics {name}"
    return f"drumline job logs {name}" if outcome.started is not None else ""


def _has_files(path: str) -> bool:
    """Return whether there is a file below a folder, as far as it is looked through."""
    return next(_walk_files(path), None) is not None


def _choose_next_part(facts: JobFacts, name: str) -> str:
    """Return a command for a pipeline or a sweep: the step that failed first, the best trial."""
    outcome = facts.outcome
    if not outcome.is_final:
        return f"drumline job stream {name}"
    if outcome.kind == "sweep":
        wanted = status.COMPLETED if outcome.status == status.COMPLETED else status.FAILED
        jobs = [trial.job for trial in facts.trials if trial.status == wanted]
    else:
        ended = sorted(outcome.steps.values(), key=lambda step: step.ended or 0.0)
        jobs = [step.job for step in ended if step.status == status.FAILED]
        if outcome.status == status.COMPLETED:
            return f"drumline job download {name} --all"
    known = [job for job in jobs if _is_there(job)]
    return f"drumline job show {as_arguments(known[0])}" if known else f"drumline job stream {name}"


def _is_there(job: str) -> bool:
    return "/" not in job and job not in ("", ".", "..") and RunFolder.for_job(job).exists()


# the head of a job's page in the studio


def describe_job(name: str) -> dict[str, Any]:
    """Recover the job where that is necessary, and describe it. Raises NotFoundError."""
    facts = read_facts(name)
    folder, outcome = facts.folder, facts.outcome
    known = KnownJobs()
    known.load([name])
    job = known.overview(name, with_metric=True, outcome=outcome)
    known.keep()
    failed = facts.failed_rank
    page: dict[str, Any] = {
        "sentences": facts.sentences,
        "hang": outcome.hang,
        "drills": facts.list_drills()[:_MOST_SAID],
        "warnings": facts.warnings[:_MOST_SAID],
        "pruned": facts.pruned,
        "pruned_at": facts.pruned_at,
        "failed_rank": failed and failed._asdict(),
        "next": choose_next(facts, has_metrics=job.metric is not None),
    }
    return {
        "row": describe_row(job),
        "page": page,
        "exit_code": outcome.exit_code,
        "reason": outcome.reason,
        "verdict": outcome.verdict,
        "hang": {"sentence": outcome.hang} if outcome.hang else None,
        "last_lines": [{"rank": failed.rank, "text": line} for line in failed.last_lines] if failed else [],
        "attempts": [
            {
                "number": attempt.number,
                "began": utc(attempt.began),
                "ended": utc(attempt.ended),
                "kind": attempt.kind,
                "sentence": attempt.reason,
            }
            for attempt in facts.attempts
        ],
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
