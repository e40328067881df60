"""The variables by which MLflow finds the run of a job, as the plan has them and whoever starts the ranks."""

from __future__ import annotations

import json

FILES = "file://"
"""How the address of a file store begins."""

ALLOW = "MLFLOW_ALLOW_FILE_STORE"
"""MLflow 3.7 and later refuse a file store unless this is ``true``."""

PARENT_TAG = "mlflow.parentRunId"
JOB_TAG = "drumline.job"


def is_server(uri: str) -> bool:
    return uri.lower().startswith(("http://", "https://"))


def run_id_of(job: str) -> str:
    """Return the id of a job's run in the file store. MLflow's own pattern for it has no dot."""
    return job.replace(".", "-")


def variables_of(run_id: str, job: str) -> dict[str, str]:
    """
    Name the run that ``mlflow.start_run`` resumes, and the tags of every other run that a rank makes, as Lightning's
    logger does: it is one below the job's. Source: mlflow/tracking/context/system_environment_context.py.
    """
    return {
        "MLFLOW_RUN_ID": run_id,
        "MLFLOW_RUN_CONTEXT": json.dumps({PARENT_TAG: run_id, JOB_TAG: job}),
    }
