"""The views of a job in ``MLClient.jobs``: its end, metrics, log, resource usage, stacks and start."""

from __future__ import annotations

import io
import os
import sys
import time
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from drumline.contract import status
from drumline.contract.drill_kinds import END, KINDS, DrillRequest
from drumline.contract.errors import JobFailedError, UsageError, WaitTimeoutError
from drumline.contract.mlflow_variables import ALLOW, FILES
from drumline.contract.record import describe_record
from drumline.contract.words import format_seconds
from drumline.control import times
from drumline.control.facts import description
from drumline.control.facts.metrics import read_metrics
from drumline.control.facts.usage import describe_usage
from drumline.control.jobs import lookup, recovery
from drumline.control.jobs.ending import preempt, wait_for_end
from drumline.control.jobs.recovery import recover
from drumline.control.logs.matching import Matcher
from drumline.control.logs.printer import LogChoice, LogView
from drumline.control.logs.view import check_choice, print_logs
from drumline.control.terminal import clean
from drumline.sdk.operations import Operations, from_description, print_warnings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from drumline.sdk.notebook.difference import JobDifferences
    from drumline.spec.jobs.command import Command
    from drumline.tracking.metrics import Series


# The part of azure-core's LROPoller that scripts use.


class Poller(Operations):
    """The end of one job."""

    def __init__(self, name: str) -> None:
        self._name = name

    def result(self, timeout: float | None = None) -> None:
        """Block until the job has ended, or for ``timeout`` seconds."""
        self.wait(timeout)

    def wait(self, timeout: float | None = None) -> None:
        """Wait, as ``result``."""
        deadline = None if timeout is None else time.monotonic() + timeout
        wait_for_end(lookup.folder_of(self._name), deadline)

    def done(self) -> bool:
        return recovery.recover(lookup.folder_of(self._name)).is_final

    def status(self) -> str:
        """Return ``InProgress`` or ``Succeeded``."""
        return "Succeeded" if self.done() else "InProgress"


# MLflow in the process that asks where the runs are.


def let_mlflow_read(uri: str | None) -> None:
    """
    Let MLflow read a file store in this process, before the address of one is handed out; where the variable is set,
    it stays as it is.
    """
    if uri and uri.startswith(FILES):
        os.environ.setdefault(ALLOW, "true")


_DRILL_LIMIT_S = 30.0
"""For a supervisor to begin a drill that is to begin at once."""


class JobViews(Operations):
    def wait(self, name: str, timeout: float | None = None, *, raise_on_error: bool = True) -> Command:
        """
        Wait until the job has ended, and return it. ``timeout``: seconds.

        Raises JobFailedError with the one-sentence reason if it failed, unless ``raise_on_error`` is False;
        WaitTimeoutError, a TimeoutError, if it has not ended in time: it continues.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            has_ended = wait_for_end(lookup.folder_of(name), deadline)
        except KeyboardInterrupt:
            raise WaitInterruptedError(describe_interrupt(name)) from None
        if not has_ended:
            what = f"job {name} has not ended within {format_seconds(timeout)}, and continues"
            raise WaitTimeoutError(what, f"wait again, or end it: ml_client.jobs.begin_cancel({name!r})")
        described = description.show_job(name, is_whole=True)
        if raise_on_error and described["status"] == status.FAILED:
            raise job_failed(name, described["reason"])
        return from_description(described)

    def metrics(self, name: str, patterns: str | Iterable[str] = (), *, as_frame: bool | None = None) -> Any:
        """
        Return a row for each value that the job has logged: ``metric``, ``step``, ``value``, ``time`` (UTC), ``run``
        (the step, trial or run that logged it; empty for the job's own) and ``source`` (mlflow or tensorboard).

        ``patterns``: names, such as ``"val/*"``; none: all. ``as_frame``: whether the rows are a pandas DataFrame or a
        list of dictionaries; None: a DataFrame if pandas is installed. Raises UsageError if it must be, and is not.
        """
        wanted = (patterns,) if isinstance(patterns, str) else tuple(patterns)
        found = read_metrics(lookup.folder_of(name), wanted)
        print_warnings(found.notes)
        pandas = None if as_frame is False else _find_pandas()
        if pandas is None and as_frame:
            raise UsageError("pandas is not installed", "pip install pandas, or as_frame=False for a list")
        return _to_rows(found.series) if pandas is None else _to_frame(pandas, found.series)

    def logs(
        self,
        name: str,
        *,
        rank: int | str | None = None,
        tail: int | None = None,
        attempt: int | None = None,
        grep: str | None = None,
        since: str | None = None,
        timestamps: bool = False,
        prefix: bool | None = None,
    ) -> str:
        """
        Return what the ranks have written so far; of a pipeline or sweep its steps or trials, one after the other.

        ``rank``: only ``3``, ``"0,4-7"`` or a label such as ``"ps0"``. ``tail``: of each only so many last lines.
        ``attempt``: from 0; None: all. ``grep``: a regular expression. ``since``: ``"10m"`` or a time.
        ``prefix``: whether lines begin with rank and node; None: if there are several ranks. Raises UsageError.
        """
        folder, out = lookup.folder_of(name), io.StringIO()
        prefix = bool(prefix) if isinstance(rank, int) else prefix
        try:
            if tail is not None and tail < 0:
                raise UsageError(f"tail: {tail} is below 0", "tail=50")
            moment = times.parse_moment(since, "since") if since else 0.0
            choice = LogChoice(attempt=attempt, tail=tail, since=moment)
            choice = check_choice(folder, choice, "" if rank is None else str(rank), "")
            with Matcher(grep) if grep is not None else nullcontext() as matcher:
                choice = choice._replace(matcher=matcher)
                print_logs(folder, LogView(out, choice, timestamps=timestamps, prefix=prefix))
        except UsageError as error:
            # What the command line calls a flag is an argument here.
            raise UsageError(error.message.removeprefix("--"), error.hint) from None
        return out.getvalue()

    def top(self, name: str) -> dict[str, Any]:
        """
        Return what the nodes and ranks of a job use, or have used: ``nodes`` and ``ranks``, with the keys of
        ``drumline job top -o json``; of a pipeline or sweep ``jobs``, its steps or trials that run.
        """
        folder = lookup.folder_of(name)
        described: dict[str, Any] = describe_record(describe_usage(folder, recover(folder)))
        return described

    def stacks(self, name: str) -> dict[str, Any]:
        """
        Return where the ranks of a running job are: ``reason``, one sentence, and ``ranks``, by label a list of
        processes with ``name``, ``state`` and ``frames``, each ``[file, line, function]``, the innermost first.

        Blocks until all nodes have answered. Raises UsageError for a job that does not run.
        """
        from drumline.control.access.stack_groups import ask_stacks

        return ask_stacks(name)

    def timeline(self, name: str, attempt: int | None = None) -> dict[str, Any]:
        """
        Return how an attempt of a job started, by default the latest: ``phases``, ``nodes``, ``ranks``, ``total_s``
        and the ``longest`` phase, with the keys of ``drumline job show --timeline -o json``.
        """
        from drumline.control.facts.start import describe_start

        recover(lookup.folder_of(name))
        described: dict[str, Any] = describe_record(describe_start(name, attempt))
        return described

    def diff(self, a: str, b: str) -> JobDifferences:
        """
        Return what differs between two jobs, by section: ``spec``, ``code``, ``environment``, ``variables``,
        ``inputs``, ``machine``, ``plan``, ``metrics``, ``times`` and ``phases`` of the start, with the keys of
        ``drumline job diff -o json``.

        Values of variables that look like secrets are ``(hidden)``. Raises NotFoundError.
        """
        from drumline.control.comparing import compare_jobs
        from drumline.sdk.notebook.difference import JobDifferences

        return JobDifferences(describe_record(compare_jobs(a, b)))

    def preempt(self, name: str, node: int | None = None) -> int:
        """
        Take the nodes of a running job away, with notice, and return the number of the attempt that ends so.

        ``node``: only this one. Raises UsageError for a job that does not run.
        """
        return preempt(name, node)

    def drill(
        self,
        name: str,
        kind: str,
        *,
        node: int | None = None,
        rank: int | None = None,
        length_s: float | None = None,
        after_s: float | None = None,
        at_step: int | None = None,
        **settings: Any,
    ) -> dict[str, Any] | None:
        """
        Make a failure on purpose in a running job, and return it once it has begun, with the keys of ``drills`` of
        ``drumline job show -o json``; None: it has not begun yet, or ``kind`` is ``end``, which ends all drills.

        ``kind`` and ``settings``: as of ``drumline drill``, such as ``"slow-link", node=1, rate="1mbit"``.
        ``length_s``: after which it ends. ``after_s``: from now, and from the start of the ranks. ``at_step``: of a
        logged metric.
        Raises UsageError; PlanError for a drill that the job cannot have.
        """
        from drumline.control.jobs import drill_requests

        if kind not in (*KINDS, END):
            raise UsageError(f"kind must be one of {', '.join((*KINDS, END))}; got {kind!r}")
        wanted = DrillRequest("", kind, "", node, rank, length_s, after_s, at_step, settings)
        drill = drill_requests.ask(name, wanted)
        if kind == END or after_s is not None or at_step is not None:
            return None
        begun = drill_requests.wait_for_begin(lookup.folder_of(name), drill, _DRILL_LIMIT_S)
        return None if begun is None else drill_requests.describe_one(begun)._asdict()


def job_failed(name: str, reason: str) -> JobFailedError:
    """Return the error for a job that failed."""
    return JobFailedError(
        f"job {name} failed: {clean(reason)}", f"drumline job show {lookup.as_arguments(name)}"
    )


def _find_pandas() -> Any:
    from importlib import import_module

    try:
        return import_module("pandas")
    except ImportError:
        return None


def _to_rows(series: Iterable[Series]) -> list[dict[str, Any]]:
    return [
        {
            "metric": one.name,
            "step": point.step,
            "value": point.value,
            "time": _to_time(point.timestamp_ms),
            "run": one.run,
            "source": one.source,
        }
        for one in series
        for point in one
    ]


def _to_time(timestamp_ms: int) -> datetime | None:
    """Return None for a time that is none."""
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def _to_frame(pandas: Any, series: Iterable[Series]) -> Any:
    columns: dict[str, list[Any]] = {key: [] for key in ("metric", "step", "value", "time", "run", "source")}
    for one in series:
        points = list(one)
        columns["metric"] += [one.name] * len(points)
        columns["step"] += [point.step for point in points]
        columns["value"] += [point.value for point in points]
        columns["time"] += [point.timestamp_ms for point in points]
        columns["run"] += [one.run] * len(points)
        columns["source"] += [one.source] * len(points)
    columns["time"] = pandas.to_datetime(columns["time"], unit="ms", utc=True, errors="coerce")
    return pandas.DataFrame(columns)


class WaitInterruptedError(KeyboardInterrupt):
    """An interrupt while a job was waited for. A notebook shows its sentence, without a traceback."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


def describe_interrupt(name: str) -> str:
    return f"job {name} is still running; to stop it: ml_client.jobs.begin_cancel({name!r})"


def is_kernel() -> bool:
    """Return whether outputs of this process are shown in a notebook, where they can be drawn again."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None
