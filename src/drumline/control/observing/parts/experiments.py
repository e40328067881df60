"""The experiments of DeepSpeed's autotuner in a job, which are processes of the job and no jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drumline.contract import status
from drumline.control.times import utc

if TYPE_CHECKING:
    from drumline.contract.folder import RunFolder
    from drumline.contract.outcome import ExperimentOutcome, Outcome

_MOST = 2000


def describe_all(folder: RunFolder, outcome: Outcome, *, brief: bool = False) -> dict[str, Any]:
    """Describe the experiments in their order; nothing of a job without any. ``brief``: without their metrics."""
    if not outcome.experiments:
        return {}
    measured: dict[str, dict[str, float | str]] = {}
    if not brief:
        from drumline.control.observing import metrics

        for (experiment, name), point in metrics.read_experiments(folder).items():
            measured.setdefault(experiment, {})[name] = metrics.to_json_number(point.value)
    listed = [
        {
            "experiment": one.experiment,
            "number": one.number,
            "status": _find_status(one, outcome),
            "reason": one.reason,
            "began_at": utc(one.began),
            "ended_at": utc(one.ended),
            "seconds": _measure_s(one),
            **({} if brief else {"metrics": measured.get(one.experiment, {})}),
        }
        for one in list(outcome.experiments.values())[:_MOST]
    ]
    return {"experiments": listed}


def describe_times(outcome: Outcome, zero: float, until: float) -> list[dict[str, Any]]:
    """Describe when those experiments ran that began in that time, in seconds since ``zero``."""
    return [
        {
            "experiment": one.experiment,
            "status": _find_status(one, outcome),
            "reason": one.reason,
            "from_s": round(one.began - zero, 6),
            "to_s": None if one.ended is None else round(one.ended - zero, 6),
        }
        for one in outcome.experiments.values()
        if one.began is not None and zero <= one.began < until
    ]


def _find_status(one: ExperimentOutcome, outcome: Outcome) -> str:
    if one.status:
        return one.status
    if not outcome.is_final:
        return status.RUNNING
    return status.CANCELED if outcome.status == status.CANCELED else status.FAILED


def _measure_s(one: ExperimentOutcome) -> float | None:
    if one.began is None or one.ended is None:
        return None
    return round(max(0.0, one.ended - one.began), 3)
