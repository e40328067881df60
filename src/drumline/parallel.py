"""``drumline.parallel``, in the place of ``azure.ai.ml.parallel``."""

from __future__ import annotations

from drumline.spec.jobs.parallel import ParallelJob, RunFunction, parallel_run_function

__all__ = ["ParallelJob", "RunFunction", "parallel_run_function"]
