"""Drives a sweep: trials as the sampler has them, so many at once, and an early end for those that lag behind."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING, Any

from drumline.contract import events as e
from drumline.contract import status
from drumline.contract.errors import DrumlineError
from drumline.contract.folder import RunFolder
from drumline.contract.outcome import fold
from drumline.contract.words import format_count, format_seconds
from drumline.control.assets import references
from drumline.control.driver.children import ChildJobs, End, read_graph
from drumline.control.facts import parts
from drumline.control.jobs.job_outputs import link_output, output_path
from drumline.plan.search import policies
from drumline.plan.search.samplers import Tried, next_params
from drumline.plan.search.sweep_request import request_of, trial_job
from drumline.spec.jobs.sweep import SweepJob

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drumline.contract.outcome import Outcome, StepOutcome
    from drumline.spec.jobs.command import Command

_CANCELED_CODE = 130
_TIMEOUT_CODE = 124
_MOST_IN_LINE = 2
"""Trials that wait for this machine's cores: more would not begin sooner, and would know less of the earlier ones."""

_METRICS_POLL_S = 0.5
"""Between two looks at the metrics, where a policy wants to know."""

_LEISURE = 150
"""So many times as long as a look at the metrics takes, the next one waits at least."""


class SweepDriver:
    """What other searches do in another way are methods: which job a trial is, which comes next, when one ends."""

    def __init__(self, folder: RunFolder, wake: int) -> None:
        self._folder = folder
        self._graph = read_graph(folder)
        os.environ["PATH"] = str(self._graph.get("path") or os.environ.get("PATH", ""))
        values = {key: value for key, value in self._graph["sweep"].items() if key != "type"}
        self._sweep = SweepJob(**{**values, "name": folder.name}, base_path=folder.path)
        self._request = request_of(self._sweep)
        self._goal = self._request.search.goal
        self._children = ChildJobs(folder, wake)
        self._began = fold(folder.read_events()).created or time.time()
        self._progress: dict[str, parts.TrialProgress] = {}
        self._seen_whole: set[str] = set()
        """Trials that log no more, and whose values are all in their progress."""

        self._looked: dict[str, int] = {}
        """By trial, the last interval at which the policy has looked at it; after a restart it does so once more."""

        self._next_look = 0.0
        self._is_exhausted = False
        self._trouble = ""
        self._is_late = False

    def run(self) -> End:
        """Run the sweep until it has ended. Blocks. Raises DrumlineError."""
        if self._children.status_before not in (status.RUNNING, status.CANCEL_REQUESTED):
            # Once: by more events its guard would take one that fails at once for one that gets on.
            self._folder.append(e.JobRunning(time.time()))
        for name in self._children.under_way:
            # Whoever drove before may have been killed between saying so and doing it.
            self._submit(name, self._children.steps[name].detail)
        while True:
            self._children.pass_on_cancel()
            for name, outcome in self._children.collect_ended():
                self._note_end(name, outcome)
            if not self._is_over:  # Else its trials were in time, whenever somebody looks.
                self._look_at_time()
            self._apply_policy()
            if self._start_next():
                continue
            if self._is_over:
                return self._finish()
            self._children.wait(self._pause_s)

    @property
    def _is_ending(self) -> bool:
        return bool(self._children.canceled_by) or self._is_late

    @property
    def _is_over(self) -> bool:
        return not self._children.under_way and (self._is_ending or not self._may_go_on)

    @property
    def _may_go_on(self) -> bool:
        return not self._is_exhausted and len(self._children.steps) < self._request.max_total_trials

    @property
    def _pause_s(self) -> float:
        pause = _METRICS_POLL_S if self._request.policy else 1.0
        if self._request.timeout_s is None or self._is_ending:
            return pause
        return max(0.0, min(pause, self._began + self._request.timeout_s - time.time()))

    def _start_next(self) -> bool:
        """Start the next trial, if any; return whether one was started."""
        if self._is_ending or self._is_full or not self._may_go_on:
            return False
        try:
            params = next_params(self._request.search, self._list_tried())
            if params is not None:
                self._submit(f"trial_{len(self._children.steps)}", {"params": params})
        except DrumlineError as error:
            # A package that was there when the sweep was submitted. The trials under way are not to be left alone.
            self._trouble, params = error.message, None
        self._is_exhausted = params is None
        return not self._is_exhausted

    @property
    def _is_full(self) -> bool:
        """Return whether no other trial may run or wait beside those under way."""
        under_way = self._children.under_way
        if len(under_way) >= self._request.max_concurrent_trials or not self._children.has_room:
            return True
        jobs = (RunFolder.for_job(self._children.steps[name].job) for name in under_way)
        outcomes = [fold(job.read_events()) for job in jobs]
        return sum(one.engine == "local" and one.started is None for one in outcomes) >= _MOST_IN_LINE

    def _submit(self, name: str, detail: dict[str, Any]) -> None:
        job = self._make_job(int(name.removeprefix("trial_")), detail)
        job._snapshots = self._graph.get("snapshots") or {}
        self._children.submit(name, job, detail)

    def _make_job(self, number: int, detail: Mapping[str, Any]) -> Command:
        return trial_job(self._sweep, self._sweep.trial, detail.get("params") or {}, number)

    def _list_tried(self) -> list[Tried]:
        """List the trials so far; a failed one has no objective, one that was stopped early has."""
        return [
            Tried(
                step.detail.get("params") or {},
                step.detail.get("metric")
                if step.status == status.COMPLETED or step.detail.get("stopped")
                else None,
                is_over=bool(step.status),
            )
            for step in self._children.steps.values()
        ]

    def _note_end(self, name: str, outcome: Outcome) -> None:
        job = self._children.steps[name].job
        values = parts.values_of(job, self._request.primary_metric)
        metric = policies.best(values, self._goal)
        stopped, reason = parts.ending(outcome)
        if outcome.status == status.COMPLETED:
            name_of_metric = self._request.primary_metric
            reason = (
                self._without_metric(job, values) if metric is None else f"best {name_of_metric} {metric:.6g}"
            )
        ran_s = outcome.run_seconds(time.time())
        detail = {"metric": metric, "stopped": bool(stopped), "ran_s": ran_s}
        self._children.note(e.StepEnded(time.time(), name, outcome.status, reason, detail))

    def _without_metric(self, job: str, values: list[float]) -> str:
        name = self._request.primary_metric
        if values:
            return f"it logged nothing but {values[-1]} as {name!r}"
        others = ", ".join(map(repr, parts.logged_by(job)[:5]))
        return f"it did not log {name!r}" + (f", only {others}" if others else "")

    def _courses(self) -> dict[str, policies.Course]:
        """Return the metric values of the trials that have logged any, by job."""
        for name, step in self._children.steps.items():
            known = self._progress.get(name)
            if known is None:
                known = parts.TrialProgress(step.job, self._request.primary_metric, self._goal)
                self._progress[name] = known
            elif name in self._seen_whole:
                continue
            if step.status:
                self._seen_whole.add(name)
            known.look()
        steps = self._children.steps
        return {steps[name].job: one.course for name, one in self._progress.items() if len(one.course)}

    def _apply_policy(self) -> None:
        policy = self._request.policy
        if policy is None or self._is_ending or time.monotonic() < self._next_look:
            return
        began = time.monotonic()
        courses = self._courses()
        over = [step.job for step in self._children.steps.values() if step.status == status.COMPLETED]
        for name in self._children.under_way:
            job = self._children.steps[name].job
            before, interval = self._looked.get(name, 0), policies.due(policy, len(courses.get(job, ())))
            if interval <= before:
                continue
            self._looked[name] = interval
            why = policies.verdict(policy, self._goal, courses, job, after=before, finished=over)
            if why:
                by = f"{parts.STOPPED_BY}stopped by the {policy.type.replace('_', ' ')} policy: {why}"
                self._children.cancel(name, by)
        # The cores are the trials': where a look takes long, it is done less often.
        self._next_look = began + max(_METRICS_POLL_S, _LEISURE * (time.monotonic() - began))

    def _look_at_time(self) -> None:
        limit = self._request.timeout_s
        if limit is None or self._is_late or time.time() < self._began + limit:
            return
        self._is_late = True
        for name in self._children.under_way:
            self._children.cancel(
                name, f"{parts.STOPPED_BY}the sweep ran into its time limit of {format_seconds(limit)}"
            )

    def _finish(self) -> End:
        steps = self._children.steps
        leader = parts.best_of(steps, self._goal)
        if leader is not None:
            self._publish(leader)
        said = self._summarize_trials(steps, leader)
        if self._children.canceled_by:
            return End(status.CANCELED, _CANCELED_CODE, f"canceled by {self._children.canceled_by}; {said}")
        if self._is_late:
            reason = f"it ran into its time limit of {format_seconds(self._request.timeout_s)}; {said}"
            return End(status.CANCELED, _TIMEOUT_CODE, reason)
        if self._trouble:
            return End(status.FAILED, 1, f"no more trials: {self._trouble}; {said}")
        if leader is None:
            return End(status.FAILED, 1, self._explain_failure(steps, said))
        return End(status.COMPLETED, 0, said)

    def _publish(self, leader: StepOutcome) -> None:
        """Link the outputs of the best trial as those of the sweep."""
        for name in self._sweep.outputs:
            link_output(self._folder, name, output_path(leader.job, name))
        with contextlib.suppress(OSError):  # Another driver has been here.
            os.rmdir(self._folder.outputs)
        with contextlib.suppress(OSError):
            os.symlink(RunFolder.for_job(leader.job).outputs, self._folder.outputs)
        references.register_outputs(self._folder, self._graph)

    def _summarize_trials(self, steps: Mapping[str, StepOutcome], leader: StepOutcome | None) -> str:
        counts = {"completed": 0, "stopped early": 0, "failed": 0, "canceled": 0}
        for step in steps.values():
            counts["stopped early" if step.detail.get("stopped") else step.status.lower()] += 1
        parts = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
        said = f"{format_count(len(steps), 'trial')}: {parts or 'none'}"
        if leader is None:
            return said
        value = leader.detail["metric"]
        return f"{said}; best {self._request.primary_metric} {value:.6g}, of {leader.job}"

    def _explain_failure(self, steps: Mapping[str, StepOutcome], said: str) -> str:
        """Return in one sentence why there is no best trial."""
        done = [step for step in steps.values() if step.status == status.COMPLETED]
        if done:
            return (
                f"no trial has a value of {self._request.primary_metric!r}; {done[0].job}: {done[0].reason}"
            )
        failed = [step for step in steps.values() if step.status == status.FAILED]
        if not failed:
            return f"no trial completed ({said})"
        who = "every trial failed" if len(failed) == len(steps) else f"no trial completed ({said})"
        return f"{who}; {failed[0].job}: {failed[0].reason}"
