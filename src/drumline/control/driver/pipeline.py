"""Drives a pipeline: a step is submitted as soon as the steps that it needs have completed."""

from __future__ import annotations

import contextlib
import os
import time
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from drumline.contract import events as e
from drumline.contract import status
from drumline.contract.errors import DrumlineError
from drumline.contract.folder import RunFolder, home
from drumline.contract.words import format_count
from drumline.control.assets import references
from drumline.control.driver import reuse
from drumline.control.driver.children import ChildJobs, End, read_graph
from drumline.control.jobs.job_outputs import link_output, output_path
from drumline.control.submission import run_folder
from drumline.control.submission.driven import bind_inputs
from drumline.spec import builder
from drumline.spec.jobs.pipeline import to_node

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drumline.contract.outcome import Outcome

_CANCELED_CODE = 130
_BAD = (status.FAILED, status.CANCELED)


class PipelineDriver:
    def __init__(self, folder: RunFolder, wake: int) -> None:
        self._folder = folder
        self._graph = read_graph(folder)
        self._steps: dict[str, Any] = {step["name"]: step for step in self._graph["steps"]}
        self._settings: Mapping[str, Any] = self._graph.get("settings") or {}
        self._children = ChildJobs(folder, wake)
        self._stopped: set[str] = set()
        bad = [step for step in self._children.steps.values() if step.status in _BAD]
        self._failed: str | None = min(bad, key=lambda step: step.ended).step if bad else None

    def run(self) -> End:
        """Run the pipeline until it has ended. Blocks. Raises DrumlineError."""
        if self._children.status_before not in (status.RUNNING, status.CANCEL_REQUESTED):
            # Once: by more events its guard would take one that fails at once for one that gets on.
            self._folder.append(e.JobRunning(time.time()))
        self._children.pass_on_cancel()
        self._go_on()
        while True:
            self._children.pass_on_cancel()
            for name, outcome in self._children.collect_ended():
                self._note_end(name, outcome)
            if self._is_stopping and not self._children.canceled_by:
                for name in self._children.under_way:
                    if name not in self._stopped:
                        self._stopped.add(name)
                        self._children.cancel(name, f"its pipeline, because step {self._failed} failed")
            if self._submit_ready():
                continue  # One that was reused, or could not be submitted, has ended already.
            if not self._children.under_way:
                self._children.pass_on_cancel()  # For which, maybe, nothing was submitted just now.
                return self._finish()
            self._children.wait()

    def _go_on(self) -> None:
        """Submit steps that an earlier driver recorded but was killed before it submitted."""
        for name in self._children.under_way:
            if name not in self._steps or self._children.is_there(name):
                continue
            if self._is_stopping:
                self._children.note(
                    e.StepEnded(time.time(), name, status.CANCELED, "canceled before it started")
                )
            else:
                self._submit(name)

    @property
    def _is_stopping(self) -> bool:
        goes_on = bool(self._settings.get("continue_on_step_failure"))
        return bool(self._children.canceled_by) or (self._failed is not None and not goes_on)

    def _submit_ready(self) -> bool:
        """Submit the steps whose needs have completed; return whether there was one."""
        steps = self._children.steps
        done = {name for name, step in steps.items() if step.status == status.COMPLETED}
        ready = [
            name for name, step in self._steps.items() if name not in steps and done.issuperset(step["needs"])
        ]
        began = False
        for name in ready:
            if (
                self._is_stopping
                or not self._children.has_room
                or self._children.cancel_request() is not None
            ):
                break
            self._submit(name)
            began = True
        return began

    def _submit(self, name: str) -> None:
        try:
            job = self._job(name)
        except DrumlineError as error:
            self._children.note(e.StepStarted(time.time(), name, ""))
            self._children.note(e.StepEnded(time.time(), name, status.FAILED, error.message))
            self._failed = self._failed or name
            return
        made_of = reuse.fingerprint_of(job)
        if name not in self._children.steps and self._take_over(name, made_of.key):
            return
        self._children.submit(name, job, self._describe_run(name, job, made_of))
        if self._children.steps[name].status in _BAD:
            self._failed = self._failed or name

    def _describe_run(self, name: str, job: Any, made_of: reuse.Fingerprint) -> dict[str, Any] | None:
        """Return what its event says of a step that runs: by what it can be reused, and why nothing was for it."""
        if not made_of.key:
            return None
        if self._settings.get("force_rerun"):
            return {"key": made_of.key}
        why = reuse.explain(str(job.experiment_name), name, made_of.parts)
        return {"key": made_of.key, "not_reused": why} if why else {"key": made_of.key}

    def _job(self, name: str) -> Any:
        """Return the job of a step whose needs have completed. Raises DrumlineError."""
        step = self._steps[name]
        with builder.building(None):
            job = to_node(name, deepcopy(step["job"]), self._folder.path)
        job._snapshots = step.get("snapshots") or {}
        job._is_deterministic = bool(step.get("is_deterministic", True))
        job.experiment_name = job.experiment_name or self._graph.get("experiment_name")
        job.display_name = job.display_name or name
        bind_inputs(job, self._graph, self._job_of)
        job.compute = job.compute or self._graph.get("compute")
        if job.type == "pipeline":
            is_same = self._are_needs_of_before(step)
            job._prepared = step["steps"] if is_same else [_forget_before(one) for one in step["steps"]]
            for key in ("continue_on_step_failure", "force_rerun"):
                if getattr(job.settings, key, None) is None and self._settings.get(key) is not None:
                    setattr(job.settings, key, self._settings[key])
        return job

    def _job_of(self, step: str) -> str:
        return str(self._children.steps[step].job)

    def _take_over(self, name: str, key: str) -> bool:
        """Take over the outputs of an earlier step; return whether there was one."""
        before = self._find_before(name)
        reason = f"job {before} had completed, whose outputs it takes over"
        if not before and key and not self._settings.get("force_rerun"):
            before = reuse.find(key, self._outputs_of(name))
            reason = f"nothing has changed since job {before}, whose outputs it takes over"
        if not before:
            return False
        # From this event on, a removal sees that the job is needed.
        with run_folder.hold_removal_lock(home()):
            if not reuse.is_there(before):
                return False
            self._children.note(e.StepStarted(time.time(), name, before, {"reused": True}))
        self._publish(name)
        self._children.note(e.StepEnded(time.time(), name, status.COMPLETED, reason))
        return True

    def _find_before(self, name: str) -> str:
        """
        Return the job that has completed the step in the pipeline that this one continues; empty for none, or if its
        inputs or outputs are no longer the same.
        """
        step = self._steps[name]
        before = str(step.get("before") or "")
        if not before or not self._are_needs_of_before(step) or not RunFolder.for_job(before).exists():
            return ""
        is_whole = all(os.path.exists(output_path(before, output)) for output in self._outputs_of(name))
        return before if is_whole else ""

    def _are_needs_of_before(self, step: Mapping[str, Any]) -> bool:
        return all(self._job_of(need) == self._steps[need].get("before") for need in step["needs"])

    def _outputs_of(self, name: str) -> list[str]:
        return list(dict.fromkeys(("default", *(self._steps[name]["job"].get("outputs") or ()))))

    def _note_end(self, name: str, outcome: Outcome) -> None:
        step = self._children.steps[name]
        if outcome.status == status.COMPLETED:
            if step.detail.get("key") and not step.detail.get("reused"):
                with contextlib.suppress(DrumlineError, OSError):
                    # Data that has changed since is perhaps what it has read.
                    job = self._job(name)
                    made_of = reuse.fingerprint_of(job)
                    if made_of.key == step.detail["key"]:
                        reuse.remember(step.job, made_of.key, self._outputs_of(name))
                        reuse.note(str(job.experiment_name), name, step.job, made_of.parts)
            self._publish(name)
        elif self._failed is None and outcome.status in _BAD:
            self._failed = name
        detail = {"ran_s": outcome.run_seconds(time.time())}
        self._children.note(e.StepEnded(time.time(), name, outcome.status, outcome.reason, detail))

    def _publish(self, name: str) -> None:
        for output, published in (self._steps[name].get("publishes") or {}).items():
            link_output(self._folder, published, output_path(self._children.steps[name].job, output))

    # the end

    def _finish(self) -> End:
        steps = self._children.steps
        for name, step in self._steps.items():
            if name not in steps:
                reason = self._why_skipped(step["needs"])
                self._children.note(e.StepEnded(time.time(), name, status.SKIPPED, reason))
        if self._children.canceled_by:
            return End(status.CANCELED, _CANCELED_CODE, f"canceled by {self._children.canceled_by}")
        if self._failed is not None:
            return self._failure(self._failed)
        references.register_outputs(self._folder, self._graph)
        reused = sum(bool(step.detail.get("reused")) for step in steps.values())
        text = f"{format_count(len(self._steps), 'step')} completed"
        return End(status.COMPLETED, 0, text + (f", {reused} of them reused" if reused else ""))

    def _why_skipped(self, needs: list[str]) -> str:
        """
        Return why a step was not started. ``needs``: the steps that it depends on; those that did not complete have
        ended.
        """
        words = {status.FAILED: "failed", status.CANCELED: "was canceled", status.SKIPPED: "was skipped"}
        steps = self._children.steps
        if not self._children.canceled_by:
            for need in needs:
                if need in steps and steps[need].status in words:
                    return f"step {need}, which it needs, {words[steps[need].status]}"
        return "the pipeline was canceled" if self._children.canceled_by else f"step {self._failed} failed"

    def _failure(self, name: str) -> End:
        step = self._children.steps[name]
        others = sum(other.status == status.FAILED for other in self._children.steps.values())
        others -= step.status == status.FAILED
        more = f"; {format_count(others, 'other step')} failed too" if others > 0 else ""
        job = f" (job {step.job})" if step.job else ""
        how = "was canceled" if step.status == status.CANCELED else "failed"
        return End(status.FAILED, 1, f"step {name} {how}{job}: {step.reason}{more}")


def _forget_before(step: Mapping[str, Any]) -> dict[str, Any]:
    """Return a step that runs whether or not it has completed before, and so do those within it."""
    kept = {key: value for key, value in step.items() if key != "before"}
    return {**kept, "steps": [_forget_before(one) for one in step["steps"]]} if step.get("steps") else kept
