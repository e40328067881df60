"""The step that a job has reached, by the metrics that it logs to its run in MLflow's file store."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from drumline.tracking import metrics, mlflow_files

if TYPE_CHECKING:
    from drumline.contract.plan import Plan

_MOST_METRICS = 50


class StepWatch:
    def __init__(self, plan: Plan) -> None:
        self._run = os.path.dirname(mlflow_files.metrics_of(plan))

    def has_reached(self, step: int) -> bool:
        """Return whether some metric has a value of that step or a later one."""
        last = self.find_last()
        return last is not None and last >= step

    def find_last(self) -> int | None:
        """Return the highest step of which some metric has a value; None without any."""
        if not self._run:
            return None
        names = metrics.list_some_names(self._run)[0][:_MOST_METRICS]
        points = [metrics.read_latest(self._run, name) for name in names]
        return max((point.step for point in points if point is not None), default=None)
