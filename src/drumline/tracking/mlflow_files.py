"""
The MLflow run of a job, made before its ranks start, so that plain ``mlflow.log_metric`` in a script just works:
MLflow resumes the run that MLFLOW_RUN_ID names, and fails when there is none.

Written as MLflow's own file store lays it out, without MLflow, which costs 1.3 s to import.
Source: https://mlflow.org/docs/latest/self-hosting/architecture/backend-store (file store), read from MLflow 3.17.
"""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any

from drumline.contract import status
from drumline.contract.folder import load_plain, private_folder, write_whole
from drumline.contract.mlflow_variables import FILES, JOB_TAG, run_id_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drumline.contract.plan import Plan

_MOST_BYTES = 1 << 16
"""Of what MLflow keeps of a run, which is below a kilobyte."""

_RUNNING, _FINISHED, _FAILED, _KILLED = 1, 3, 4, 5
_STATUS = {status.COMPLETED: _FINISHED, status.FAILED: _FAILED, status.CANCELED: _KILLED}


def metrics_of(plan: Plan) -> str:
    """Return the folder of the run's metrics; empty if the job tracks elsewhere."""
    run = run_folder(plan.job, plan.user_env)
    return os.path.join(run, "metrics") if run else ""


def begin(plan: Plan, user: str) -> None:
    """Create experiment and run, unless the job tracks elsewhere. Raises OSError."""
    run = run_folder(plan.job, plan.user_env)
    if run is None:
        return
    name = plan.user_env["MLFLOW_EXPERIMENT_NAME"]
    experiment = os.path.dirname(run)
    now_ms = int(time.time() * 1000)
    if not os.path.exists(os.path.join(experiment, "meta.yaml")):
        private_folder(experiment)
        _write(
            experiment,
            {
                "artifact_location": FILES + experiment,
                "creation_time": now_ms,
                "experiment_id": os.path.basename(experiment),
                "last_update_time": now_ms,
                "lifecycle_stage": "active",
                "name": name,
            },
        )
    for part in ("params", "metrics", "tags", "artifacts"):
        private_folder(os.path.join(run, part))
    for tag, value in tags_of(plan, user).items():
        write_whole(os.path.join(run, "tags", tag), value)
    _write(
        run,
        {
            "artifact_uri": FILES + os.path.join(run, "artifacts"),
            "end_time": None,
            "entry_point_name": "",
            "experiment_id": os.path.basename(experiment),
            "lifecycle_stage": "active",
            "run_id": os.path.basename(run),
            "run_name": plan.job,
            "run_uuid": os.path.basename(run),
            "source_name": "",
            "source_type": 4,
            "source_version": "",
            "start_time": now_ms,
            "status": _RUNNING,
            "tags": [],
            "user_id": user,
        },
    )


def tags_of(plan: Plan, user: str) -> dict[str, str]:
    """Return the tags that MLflow's pages show of a run, and by which it can be found."""
    top = plan.user_env.get("AZUREML_ROOT_RUN_ID", plan.job)
    return {
        "mlflow.runName": plan.job,
        "mlflow.user": user,
        "mlflow.source.name": f"drumline job {plan.job}",
        "mlflow.source.type": "JOB",
        JOB_TAG: plan.job,
        **({"drumline.root_job": top} if top != plan.job else {}),
    }


def end(plan: Plan, job_status: str) -> None:
    """Write how the run ended, whatever MLflow wrote meanwhile. Raises OSError."""
    run = run_folder(plan.job, plan.user_env)
    if run is None or not os.path.isdir(run):
        return
    meta = _parse(_read(os.path.join(run, "meta.yaml")))
    if isinstance(meta, dict):
        known = {key: value for key, value in meta.items() if value is None or isinstance(value, (str, int))}
        _write(run, {**known, "tags": [], "status": _STATUS[job_status], "end_time": int(time.time() * 1000)})


def _read(path: str) -> str:
    """Read a plain file and nothing else: a job can put a pipe there, or endless data. Raises OSError."""
    return load_plain(path, _MOST_BYTES).decode("utf-8", "replace")


def _parse(text: str) -> Any:
    """Parse our JSON, or MLflow's YAML, whose package takes longer to import than to read it."""
    try:
        return json.loads(text)
    except ValueError:
        import yaml

        # A few lines of what stands for something else may mean more than all memory holds.
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text)):
            return None
        return yaml.safe_load(text)


def uri_of(home: str) -> str:
    """Return MLFLOW_TRACKING_URI of a home."""
    return uri_of_folder(os.path.join(home, "mlruns"))


def uri_of_folder(path: str) -> str:
    """Return the URI of a file store, as MLflow takes it."""
    if path.isascii() and path.replace("/", "").replace("-", "").replace(".", "").replace("_", "").isalnum():
        return FILES + path
    from urllib.parse import quote

    return FILES + quote(path)


def run_folder(job: str, chosen: Mapping[str, str]) -> str | None:
    """Return the run's folder; None if the job tracks on a server, or in a run of its own."""
    uri = chosen.get("MLFLOW_TRACKING_URI", "")
    if not uri.startswith(FILES) or chosen.get("MLFLOW_RUN_ID") != run_id_of(job):
        return None
    experiment = _experiment_id(chosen.get("MLFLOW_EXPERIMENT_NAME", ""))
    return os.path.join(_path_of(uri), experiment, chosen["MLFLOW_RUN_ID"])


def _path_of(uri: str) -> str:
    path = uri[len(FILES) :]
    if "%" not in path:
        return path
    from urllib.parse import unquote

    return unquote(path)


def _experiment_id(name: str) -> str:
    """Return the same id for the same name, 18 digits as MLflow's own. FNV-1a, because hashlib costs 3 ms."""
    if name == "Default":
        return "0"  # MLflow makes that one by itself, and two of a name confuse it.
    value = 0xCBF29CE484222325
    for byte in name.encode():
        value = (value ^ byte) * 0x100000001B3 % (1 << 64)
    return str(value % 10**18).zfill(18)


def _write(folder: str, meta: dict[str, Any]) -> None:
    # JSON is YAML.
    write_whole(os.path.join(folder, "meta.yaml"), json.dumps(meta, indent=1))
