"""
The run of a hyperparameter search of v1.

Source: https://learn.microsoft.com/python/api/azureml-train-core/azureml.train.hyperdrive.hyperdriverun
"""

from __future__ import annotations

import json
from typing import Any

from drumline.sdk.v1.runs.run import Run


class HyperDriveRun(Run):
    """The job of a search; its trials are runs."""

    def get_best_run_by_primary_metric(self, **kwargs: Any) -> Run | None:
        """Return the best trial; None while no trial has a value of the metric."""
        best = self._describe().get("best_trial") or {}
        return Run(self.experiment, str(best["trial"])) if best.get("trial") else None

    def get_children_sorted_by_primary_metric(
        self, top: int = 0, reverse: bool = False, **kwargs: Any
    ) -> list[dict[str, Any]]:
        """List trials, the best first, or last; ``top``: how many, 0: all."""
        ranked = sorted(self._trials(), key=lambda one: (one.get("rank") is None, one.get("rank") or 0))
        told = [
            {
                "run_id": one.get("trial"),
                "hyperparameters": json.dumps(one.get("params") or {}),
                "best_primary_metric": one.get("metric"),
                "status": one.get("status"),
            }
            for one in (ranked[::-1] if reverse else ranked)
        ]
        return told[:top] if top else told

    def get_hyperparameters(self) -> dict[str, str]:
        """Return the parameters by trial, as JSON."""
        return {str(one.get("trial")): json.dumps(one.get("params") or {}) for one in self._trials()}

    def get_metrics(self, name: str | None = None, **kwargs: Any) -> dict[str, Any]:
        """Return by trial what it has logged."""
        return {run.id: run.get_metrics(name) for run in self.get_children()}

    def _trials(self) -> list[dict[str, Any]]:
        return [one for one in self._describe().get("trials") or () if one.get("trial")]
