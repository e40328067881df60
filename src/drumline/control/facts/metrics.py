"""
The metrics that a job has logged, wherever: its run in MLflow's file store or at a server, the runs below that,
TensorBoard's event files, the experiments of DeepSpeed's autotuner. Of a pipeline or a sweep those of its steps. And
what metrics and logs say of how far the job is.

Nothing here fails because of what a job wrote or a server answers, and all of it has an end in time.
"""

from __future__ import annotations

import fnmatch
import itertools
import os
import re
import time
from typing import TYPE_CHECKING, Any

from drumline.contract import log_times, steps
from drumline.contract.errors import DrumlineError
from drumline.contract.folder import RunFolder, open_plain, read_plain
from drumline.contract.record import NamedTuple
from drumline.contract.words import format_seconds
from drumline.control.jobs.job_outcome import fold_events
from drumline.control.jobs.lookup import find_plan
from drumline.control.terminal import clean
from drumline.tracking import metrics, runs
from drumline.tracking.metrics import MetricFile, Series
from drumline.tracking.runs import ChildRuns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from drumline.contract.outcome import Outcome
    from drumline.contract.plan import Plan, RankTask
    from drumline.tracking import event_files
    from drumline.tracking.metrics import Point
    from drumline.tracking.server import Server


MOST_SHOWN = 50
"""Of the metrics that ``drumline job show`` has."""

_SHOW_S = 2.0
_READ_LIMIT_S = 10.0
_EVENT_FILES_S = 0.5
"""Of one look at TensorBoard's files, of which there may be gigabytes."""

_MOST_SERIES = 2000
_MOST_STEPS = 100
_MOST_NAMED = 3
MLFLOW, TENSORBOARD, DEEPSPEED = "mlflow", "tensorboard", "deepspeed"


class FoundMetrics(NamedTuple):
    series: list[Series]
    """By name; those of the job's own run before those of others."""

    left_out: int
    """At least so many metrics more there are."""

    notes: tuple[str, ...] = ()
    """What keeps this from being all."""


def read_metrics(
    folder: RunFolder, patterns: Iterable[str] = (), limit_s: float | None = None
) -> FoundMetrics:
    """Read metrics whose names match a shell pattern, or all. ``limit_s`` None: 10 s for a server, else no limit."""
    return MetricsReader(folder, patterns).look(limit_s)


class MetricsReader:
    """A job that may run: each look reads what is new."""

    def __init__(
        self, folder: RunFolder, patterns: Iterable[str] = (), label: str = "", *, names_only: bool = False
    ) -> None:
        """``names_only``: read no values but those without which the names are not known."""
        self._folder = folder
        self._patterns = tuple(patterns)
        self._label = label
        self._names_only = names_only
        self._plan: Plan | None = None
        self._files: dict[tuple[str, str], MetricFile] = {}
        self._children: Any = None
        self._events: dict[str, event_files.ReadState] = {}
        self._scalars: dict[str, Series] = {}
        self._steps: dict[str, MetricsReader] = {}
        self._left_out = 0
        self._notes: list[str] = []
        self.asks_server = False
        """Whether the last look had to, which reads all again."""

    def look(self, limit_s: float | None = _READ_LIMIT_S) -> FoundMetrics:
        """Look for metrics. Blocks for about ``limit_s``, in seconds; None: for as long as all of it takes."""
        deadline = time.monotonic() + (limit_s if limit_s is not None else 1e9)
        self._left_out, self._notes = 0, []
        has_steps = os.path.exists(self._folder.graph)
        found = self._of_steps(deadline) if has_steps else self._of_ranks(deadline, limit_s)
        shown = sorted(found, key=lambda one: (one.name, one.run not in ("", self._label)))
        return FoundMetrics(
            shown[:_MOST_SERIES], self._left_out + max(0, len(shown) - _MOST_SERIES), tuple(self._notes)
        )

    def _of_steps(self, deadline: float) -> list[Series]:
        found: list[Series] = []
        steps = [step for step in fold_events(self._folder).steps.values() if step.job]
        if len(steps) > _MOST_STEPS:
            self._notes.append(f"only the last {_MOST_STEPS} of {len(steps)} steps are read")
        for step in steps[-_MOST_STEPS:]:
            if "/" in step.job or step.job in (".", ".."):
                continue
            reader = self._steps.get(step.job)
            if reader is None:
                folder, label = RunFolder.for_job(step.job), step.step or step.job
                reader = MetricsReader(folder, self._patterns, label, names_only=self._names_only)
                self._steps[step.job] = reader
            inside = reader.look(max(0.1, deadline - time.monotonic()))
            self._left_out += inside.left_out
            self._notes += [note for note in inside.notes if note not in self._notes]
            found += inside.series
        return found

    def _of_ranks(self, deadline: float, limit_s: float | None) -> list[Series]:
        plan = self._plan = self._plan or find_plan(self._folder)
        if plan is None:
            return []
        where = runs.find_run(self._folder, plan)
        self.asks_server = bool(where.server)
        if where.warning:
            self._notes.append(where.warning)
        logged: list[Series] = []
        if where.run_dir:
            logged = self._in_files(where.run_dir, deadline)
        elif where.server:
            logged = self._at_server(where, plan, _READ_LIMIT_S if limit_s is None else limit_s)
        known = {one.name for one in logged}
        found = logged + [one for one in self._in_events(deadline) if one.name not in known]
        # With MLflow the autotuner has logged some of them itself, to runs of these names.
        with_runs = {(one.run, one.name) for one in logged}
        found += [one for one in self._list_of_experiments() if (one.run, one.name) not in with_runs]
        self._notes += self._explain_repeats(found, len(plan.ranks))
        return found

    def _explain_repeats(self, found: Iterable[Series], rank_count: int) -> list[str]:
        """Say where values of several ranks or attempts are mixed: a run has one series for each metric."""
        names = [one.name for one in found if one.has_repeats]
        attempts = len(fold_events(self._folder).attempts) + 1 if names else 1
        many = [f"{rank_count} ranks"] if rank_count > 1 else []
        many += [f"{attempts} attempts"] if attempts > 1 else []
        if not names or not many:
            return []
        more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        what = ", ".join(names[:_MOST_NAMED]) + more
        where = f"{self._label}: " if self._label else ""
        who = f"the job's {' and '.join(many)} log to one run and are not told apart"
        return [f"{where}{what}: several values for a step; {who}"]

    def _in_files(self, run_dir: str, deadline: float) -> list[Series]:
        if self._children is None:
            self._children = ChildRuns(run_dir, fold_events(self._folder).created or 0.0)
        self._children.look()
        found = []
        for folder, name in [(run_dir, ""), *self._children.found.items()]:
            listed, is_cut = metrics.list_some_names(folder)
            chosen = self._choose(listed)
            self._left_out += max(0, len(chosen) - _MOST_SERIES) + int(is_cut)
            for metric in chosen[:_MOST_SERIES]:
                file = self._files.get((folder, metric))
                if file is None:
                    series = Series(metric, MLFLOW, name or self._label)
                    file = self._files[folder, metric] = MetricFile(folder, metric, series)
                if not self._names_only:
                    file.read_more(deadline)
                found.append(file.series)
        return found

    def _at_server(self, where: runs.RunLocation, plan: Plan, limit_s: float) -> list[Series]:
        found: list[Series] = []

        def ask(server: Server) -> None:
            for run_id, name in {where.run_id: "", **server.children(where.run_id)}.items():
                for metric in self._choose(server.latest(run_id)):
                    series = Series(metric, MLFLOW, name or self._label)
                    if not self._names_only:
                        series.extend(server.history(run_id, metric))
                    found.append(series)

        why = _ask_server(where, plan, ask, limit_s)
        if why:
            self._notes.append(why)
        return list(found)

    def _in_events(self, deadline: float) -> list[Series]:
        try:
            from drumline.tracking import event_files
        except ImportError:
            return []
        for folder in _event_folders(self._folder):
            state = self._events.setdefault(folder, event_files.ReadState())
            limit_s = min(10.0, max(_EVENT_FILES_S, deadline - time.monotonic()))
            for tag, points in event_files.read_scalars(folder, state, limit_s=limit_s).items():
                if self._choose((tag,)):
                    series = self._scalars.setdefault(tag, Series(tag, TENSORBOARD, self._label))
                    series.extend(points)
                    series.is_cut = state.behind
        return list(self._scalars.values())

    def _list_of_experiments(self) -> list[Series]:
        found = []
        for (experiment, name), point in read_experiments(self._folder).items():
            if self._choose((name,)):
                series = Series(name, DEEPSPEED, experiment)
                series.extend([point])
                found.append(series)
        return found

    def _choose(self, names: Iterable[str]) -> list[str]:
        if not self._patterns:
            return list(names)
        return [name for name in names if any(fnmatch.fnmatchcase(name, one) for one in self._patterns)]


def read_own_series(folder: RunFolder, name: str, limit_s: float) -> Series:
    """Read a metric of the job's own run in MLflow's file store; empty where it is not there. Blocks for that long."""
    series = Series(name, MLFLOW)
    plan = find_plan(folder)
    run_dir = runs.find_run(folder, plan).run_dir if plan is not None else ""
    if run_dir and metrics.clean_name(name) == name:
        MetricFile(run_dir, name, series).read_more(time.monotonic() + limit_s)
    return series


def read_latest(
    folder: RunFolder, *, in_files: bool = False, outcome: Outcome | None = None
) -> tuple[dict[str, float | str], int]:
    """
    Return the newest value of each metric, at most MOST_SHOWN, and how many more there are. Blocks for up to 2 s.

    Numbers that JSON does not have are their names. Of a pipeline or sweep there is none. ``in_files``: those of
    MLflow's file store alone, which takes a millisecond. ``outcome``: of the job, if it is known.
    """
    plan = find_plan(folder)
    if plan is None:
        return {}, 0
    where = runs.find_run(folder, plan)
    found: dict[str, float] = {}
    left_out = 0
    if where.run_dir:
        found, left_out = _latest_in_files(where.run_dir, outcome or fold_events(folder))
    elif where.server and not in_files:
        _ask_server(where, plan, lambda server: _add_latest(server, where.run_id, found), _SHOW_S)
        found = dict(found)  # Whoever asks may still be at it.
    if len(found) < MOST_SHOWN and not in_files:
        for name, points in read_event_points(folder, _EVENT_FILES_S).items():
            found.setdefault(name, points[-1].value)
        for (experiment, name), point in read_experiments(folder).items():
            found.setdefault(f"{experiment}/{name}", point.value)
    shown = sorted(found)[:MOST_SHOWN]
    return {name: to_json_number(found[name]) for name in shown}, left_out + len(found) - len(shown)


def to_json_number(value: float) -> float | str:
    """Return a value that JSON can hold: MLflow's names for values that are not finite."""
    if value != value:  # noqa: PLR0124 - nan
        return "NaN"
    return value if abs(value) != float("inf") else "Infinity" if value > 0 else "-Infinity"


def draw_course(series: Series, width: int, *, in_blocks: bool) -> str:
    """
    Draw the values in one line of at most ``width`` letters; empty without finite values.

    >>> series = Series("loss", "mlflow")
    >>> series.extend(metrics.Point(step, 0, value) for step, value in enumerate((0.0, 1.0, 0.5, 0.0)))
    >>> draw_course(series, 10, in_blocks=True), draw_course(series, 10, in_blocks=False)
    ('▁█▅▁', '_#-_')
    """
    figures = series.figures()
    if figures.lowest is None or figures.highest is None:
        return ""
    marks = "▁▂▃▄▅▆▇█" if in_blocks else "_.-=*#"
    first, last = figures.steps
    # Halves, because the difference of two large numbers may be beyond all numbers.
    low, span = figures.lowest / 2, figures.highest / 2 - figures.lowest / 2
    values = series.columns(min(width, len(series), last - first + 1 if last > first else width))
    shares = [None if value is None else (value / 2 - low) / span if span else 0.5 for value in values]
    # A mean of huge values may be beyond all numbers, and lies at the edge.
    places = [None if share is None else min(1.0, max(0.0, share)) * (len(marks) - 1) for share in shares]
    return "".join(" " if place is None else marks[round(place)] for place in places)


def _latest_in_files(run_dir: str, outcome: Outcome) -> tuple[dict[str, float], int]:
    children = ChildRuns(run_dir, outcome.created or 0.0)
    children.look()
    places: dict[str, str] = {}
    is_cut = False
    for place in (run_dir, *children.found):
        listed, more = metrics.list_some_names(place)
        is_cut = is_cut or more
        for name in listed:
            places.setdefault(name, place)
    found = {}
    for name in sorted(places)[:MOST_SHOWN]:
        point = metrics.read_latest(places[name], name)
        if point is not None:
            found[name] = point.value
    return found, max(0, len(places) - MOST_SHOWN) + int(is_cut)


def read_event_points(folder: RunFolder, limit_s: float, *, is_whole: bool = False) -> dict[str, list[Point]]:
    """
    Return the points of TensorBoard's event files, by tag, as many as can be read in that time. ``is_whole``: nothing
    of files that take longer.
    """
    try:
        from drumline.tracking import event_files
    except ImportError:
        return {}
    found: dict[str, list[Point]] = {}
    for place in _event_folders(folder):
        state = event_files.ReadState()
        scalars = event_files.read_scalars(place, state, limit_s=limit_s)
        if not (is_whole and state.behind):
            found |= {tag: points for tag, points in scalars.items() if points}
    return found


def read_experiments(folder: RunFolder) -> dict[tuple[str, str], metrics.Point]:
    """Read the experiments of DeepSpeed's autotuner, beneath the outputs or where it writes by default."""
    from drumline.tracking import autotuner_experiments

    found: dict[tuple[str, str], metrics.Point] = {}
    for place in (folder.outputs, os.path.join(folder.code, autotuner_experiments.RESULTS)):
        if os.path.isdir(place) and not os.path.islink(place):
            found |= autotuner_experiments.read_experiments(place)
    return found


def _event_folders(folder: RunFolder) -> list[str]:
    places = (folder.outputs, os.path.join(folder.path, "logs"))
    return [place for place in places if os.path.isdir(place) and not os.path.islink(place)]


def _add_latest(server: Server, run_id: str, found: dict[str, float]) -> None:
    for run in (run_id, *server.children(run_id)):
        for name, point in server.latest(run).items():
            found.setdefault(name, point.value)


def _ask_server(where: runs.RunLocation, plan: Plan, ask: Callable[[Server], None], limit_s: float) -> str:
    """
    Have a server asked, in that time; why it did not tell all. From a thread that may be left alone: looking up a name
    has no limit of its own.
    """
    from threading import Thread

    from drumline.contract.hiding import hide_secrets
    from drumline.control.settings.tracking import rules
    from drumline.tracking.server import Server

    if not rules.may_ask(where.server):
        return f"metrics are at {hide_secrets(where.server)}, which is not asked from here; see there"
    variables = rules.choose_variables(where.server, plan.user_env)
    said: list[str] = []

    def work() -> None:
        try:
            ask(Server(where.server, variables, timeout_s=limit_s))
        except DrumlineError as error:
            said.append(error.message + (f"; {error.hint}" if error.hint else ""))
        except Exception as error:  # noqa: BLE001 - the top of a thread; whatever a server has answered
            said.append(f"what the MLflow server answers cannot be read: {type(error).__name__}")

    thread = Thread(target=work, daemon=True)
    thread.start()
    thread.join(limit_s)
    if thread.is_alive():
        return f"the MLflow server did not tell all in {format_seconds(limit_s)}"
    return said[0] if said else ""


# signs of steps where no hook follows them, as of TensorFlow, JAX or MPI: what is not certain is left out


_TAIL_BYTES = 128 << 10
_TIMES_BYTES = 64 << 10
_STEPS_IN_EVENT_FILES_S = 0.2
_MOST_LOGS, _MOST_METRICS = 4, 50
_RECENT_S = 60.0
_SHORTEST_S = 2.0
"""Between two times that a rate is made of: those of a log are exact to about a second."""


class Sign(NamedTuple):
    """Steps that a job says. ``source``: as ``contract/steps.py`` names it. ``told_by``: which metric, or whose log."""

    done: int
    total: int | None
    rate: float | None
    source: str
    told_by: str


def find_sign(folder: RunFolder, attempt: int) -> Sign | None:
    """Return what the job says of its steps; None: nothing."""
    plan = find_plan(folder)
    if plan is None:
        return None
    found = _find_in_logs(folder, plan, attempt)
    return found if found and found.total else _find_in_metrics(folder, plan) or found


def _find_in_logs(folder: RunFolder, plan: Plan, attempt: int) -> Sign | None:
    """Ask the logs of the first ranks, one after the other: a parameter server says nothing."""
    tasks = [(node.node, task) for node in plan.nodes[:_MOST_LOGS] for task in node.ranks[:_MOST_LOGS]]
    for node, task in tasks[:_MOST_LOGS]:
        marks = find_marks(_list_lines(os.path.join(folder.path, task.log)))
        if marks:
            times = _time_marks(marks, folder.log_times_path(attempt, node), task)
            rate = _find_rate([(at, mark.done) for at, mark in times])
            return Sign(marks[-1].done, marks[-1].total, rate, steps.LOG, f"log of rank {task.label}")
    return None


def _list_lines(path: str) -> list[tuple[int, bytes]]:
    """List the last lines of a log, each with the place in the file where it ends."""
    try:
        with open_plain(path) as file:
            begin = max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES)
            file.seek(begin)
            data = file.read(_TAIL_BYTES)
    except OSError:
        return []
    lines, place = [], begin
    for line in data.replace(b"\r", b"\n").split(b"\n"):
        place += len(line) + 1
        lines.append((place, line))
    return lines[1:] if begin else lines


def _time_marks(marks: Iterable[StepMark], path: str, task: RankTask) -> list[tuple[float, StepMark]]:
    """Return the marks with the time of the first look of the agent that found their line."""
    looks = read_plain(path, _TIMES_BYTES, from_end=True).splitlines(keepends=True)
    sizes = [
        (grown.size, look.time)
        for line in looks
        if (look := log_times.from_line(line))
        for grown in look.grown
        if grown.rank == task.rank
    ]
    timed: list[tuple[float, StepMark]] = []
    for mark in marks:
        # A look that is cut off may be the one that found it.
        at = next((time for size, time in sizes if size >= mark.place - 1), None)
        if at is not None and (not timed or at > timed[-1][0]):
            timed.append((at, mark))
    return timed


def _find_in_metrics(folder: RunFolder, plan: Plan) -> Sign | None:
    """Return what the metric says whose steps are the most: others are logged once an epoch."""
    best: tuple[int, str, Sequence[Point]] | None = None
    for name, points in _read_metrics(folder, plan):
        highest = max((point.step for point in points), default=0)
        if highest > 0 and (best is None or highest > best[0]):
            best = (highest, name, points)
    if best is None:
        return None
    highest, name, points = best
    rate = _find_rate([(point.timestamp_ms / 1000, point.step) for point in points])
    return Sign(highest, None, rate, steps.METRICS, f"metric {name}")


def _read_metrics(folder: RunFolder, plan: Plan) -> Iterable[tuple[str, Sequence[Point]]]:
    run_dir = runs.find_run(folder, plan).run_dir
    # MLflow counts its own looks at the machine.
    names = (
        [name for name in metrics.list_names(run_dir) if not name.startswith("system/")] if run_dir else []
    )
    if not names:
        return list(read_event_points(folder, _STEPS_IN_EVENT_FILES_S, is_whole=True).items())
    return [(name, metrics.read_tail(run_dir, name)) for name in names[:_MOST_METRICS]]


def _find_rate(known: Iterable[tuple[float, int]]) -> float | None:
    """
    Return the steps a second of the last minute, or from one time to the next where those are further apart.

    >>> _find_rate([(0.0, 0), (100.0, 50), (130.0, 80), (170.0, 120)]), _find_rate([(0.0, 0), (100.0, 50)])
    (1.0, 0.5)
    """
    ordered = sorted(known)
    if not ordered:
        return None
    end, done = ordered[-1]
    before = [(at, made) for at, made in ordered if at <= end - _SHORTEST_S and made < done]
    if not before:
        return None
    at, made = next((one for one in before if one[0] >= end - _RECENT_S), before[-1])
    return (done - made) / (end - at)


# lines of a log that say how many steps of a training are done


_MAY_TELL = re.compile(rb"step|iter|epoch|\d/\d", re.IGNORECASE)
_KERAS_EPOCH = re.compile(r"Epoch (\d{1,9})/(\d{1,9})")
_KERAS_STEP = re.compile(r"\s*(\d{1,12})/(\d{1,12}) (?=[━=\[]|- \d|\d+s )")
_STEP = re.compile(
    r"(?<![\w.%/-])(?:global[ _-]?step|train(?:ing)?[ _-]step|step|iteration|iter)"
    r"(?>\s*)(?:[:=#](?>\s*))?(?:\[(?>\s*))?(\d{1,12})(?:(?>\s*)(?:/|of)(?>\s*)(\d{1,12}))?(?!\w|[.,]\d)",
    re.IGNORECASE,
)
"""Blanks are passed over once: a line of a job that has a thousand of them must not cost seconds."""

_OTHER_STEP = re.compile(
    r"\b(?:eval\w*|valid\w*|val|test\w*|predict\w*|infer\w*|sampl\w*|warm-?up|max\w*|total|per|every|last|next|first|"
    r"from|at|after|resum\w*|sav\w*|checkpoint\w*)\b",
    re.IGNORECASE,
)
"""A word before "step" that says that another thing is counted, or that this step is not the newest."""

_EPOCH = re.compile(r"\bepochs?\b", re.IGNORECASE)
_LONGEST_LINE = 2000


class StepMark(NamedTuple):
    """``done`` steps at that ``place`` of a log. ``total``: of the whole training; None: not known."""

    place: int
    done: int
    total: int | None


def find_marks(lines: Iterable[tuple[int, bytes]]) -> list[StepMark]:
    """
    Return what lines say, each given with its place; nothing where it is not certain that it is steps of the whole
    training: where the numbers fall, or where a log also has epochs, of which each may begin anew.

    >>> find_marks([(15, b"step 10/200"), (30, b"step 20/200")])[-1]
    StepMark(place=30, done=20, total=200)
    >>> find_marks([(10, b"epoch 2"), (22, b"step 20/200")])
    []
    """
    reader = _LineReader()
    for place, line in lines:
        if _MAY_TELL.search(line):
            reader.read(place, clean(line[:_LONGEST_LINE].decode("utf-8", "replace")).strip())
    return reader.choose()


class _LineReader:
    def __init__(self) -> None:
        self._keras: list[StepMark] = []
        self._plain: list[StepMark] = []
        self._epoch: tuple[int, int] | None = None
        self._batches = 0
        self._has_epochs = False

    def read(self, place: int, text: str) -> None:
        epoch = _KERAS_EPOCH.fullmatch(text)
        if epoch:
            self._epoch = (int(epoch[1]), int(epoch[2]))
        elif self._epoch and (bar := _KERAS_STEP.match(text)):
            self._read_keras(place, self._epoch, int(bar[1]), int(bar[2]))
        elif _EPOCH.search(text):
            self._has_epochs = True
        else:
            self._read_plain(place, text)

    def _read_keras(self, place: int, epoch: tuple[int, int], made: int, batches: int) -> None:
        # Later bars with another end are of an evaluation.
        self._batches = self._batches or batches
        if batches == self._batches and made <= batches and epoch[0] <= epoch[1]:
            self._keras.append(StepMark(place, (epoch[0] - 1) * batches + made, epoch[1] * batches))

    def _read_plain(self, place: int, text: str) -> None:
        step = _STEP.search(text)
        if step and not _OTHER_STEP.search(text[: step.start()]):
            total = int(step[2]) if step[2] else None
            if total is None or 0 < total >= int(step[1]):
                self._plain.append(StepMark(place, int(step[1]), total))

    def choose(self) -> list[StepMark]:
        """Return the marks that count; none where they contradict each other."""
        if self._epoch:
            return self._keras if _is_rising(self._keras) else []
        marks = [mark for mark in self._plain if mark.total] or self._plain
        is_enough = bool(marks) and (marks[-1].total is not None or marks[-1].done > marks[0].done)
        is_one = len({mark.total for mark in marks}) == 1
        return marks if is_enough and is_one and not self._has_epochs and _is_rising(marks) else []


def _is_rising(marks: list[StepMark]) -> bool:
    return all(one.done <= after.done for one, after in itertools.pairwise(marks))
