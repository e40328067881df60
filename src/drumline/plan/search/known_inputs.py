"""Names of inputs and variables that say how a job trains, and the numbers that a job has there."""

from __future__ import annotations

import math
from typing import Any

from drumline.plan.search.tuning import ENV, INPUT, PROCS

KNOWN_NAMES = {
    "workers": ("workers", "num_workers", "dataloader_num_workers", "dataloader_workers", "data_workers"),
    "batch": ("batch", "batch_size", "per_device_train_batch_size", "train_batch_size", "micro_batch_size"),
    "buckets": ("buckets", "bucket_cap_mb", "bucket_mb", "bucket_size_mb"),
}
"""Names of inputs; variables of a job have the same in capitals."""


def find_number(name: str, job: Any) -> tuple[str, float | None]:
    """Return the target of ``batch`` or ``workers`` in the job, and its value; empty and None where there is none."""
    target = find_target(name, job)
    value = read_current(target, job) if target else None
    return target, to_number(value)


def find_target(name: str, job: Any) -> str:
    """Return what ``workers``, ``batch`` or ``buckets`` sets in the job, an input before a variable; empty: nothing."""
    known = list_literals(job)
    variables = job.environment_variables or {}
    for one in KNOWN_NAMES[name]:
        if one in known:
            return INPUT + one
    return next((ENV + one.upper() for one in KNOWN_NAMES[name] if one.upper() in variables), "")


def list_literals(job: Any) -> list[str]:
    """List the inputs that are a value, and no data."""
    return [name for name, value in (job.inputs or {}).items() if not hasattr(value, "path")]


def read_current(target: str, job: Any) -> Any:
    """Return the job's own value of a target (``Tuning``); None: it has none."""
    if target == PROCS:
        return job.distribution.process_count_per_instance
    if target.startswith(ENV):
        return (job.environment_variables or {}).get(target.removeprefix(ENV))
    return job.inputs[target.removeprefix(INPUT)]


def to_number(value: Any) -> float | None:
    """Return a value of a job file as a number; None: it is none, or not finite."""
    try:
        number = float(str(value))
    except ValueError:
        return None
    return number if math.isfinite(number) else None
