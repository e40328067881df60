"""The constants that azure-ai-ml's users import."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drumline import azure
from drumline.contract import status


class AssetTypes:
    URI_FILE = "uri_file"
    URI_FOLDER = "uri_folder"
    MLTABLE = "mltable"
    CUSTOM_MODEL = "custom_model"
    MLFLOW_MODEL = "mlflow_model"
    TRITON_MODEL = "triton_model"


class InputOutputModes:
    MOUNT = "mount"
    DOWNLOAD = "download"
    UPLOAD = "upload"
    RO_MOUNT = "ro_mount"
    RW_MOUNT = "rw_mount"
    DIRECT = "direct"
    EVAL_MOUNT = "eval_mount"
    EVAL_DOWNLOAD = "eval_download"


class InputTypes:
    INTEGER = "integer"
    NUMBER = "number"
    STRING = "string"
    BOOLEAN = "boolean"


class JobType:
    COMMAND = "command"
    SWEEP = "sweep"
    PIPELINE = "pipeline"
    AUTOML = "automl"
    COMPONENT = "component"
    BASE = "base"
    PARALLEL = "parallel"
    IMPORT = "import"
    SPARK = "spark"
    DATA_TRANSFER = "data_transfer"


class DistributionType:
    MPI = "mpi"
    TENSORFLOW = "tensorflow"
    PYTORCH = "pytorch"
    RAY = "ray"


class ListViewType:
    ACTIVE_ONLY = "ActiveOnly"
    ARCHIVED_ONLY = "ArchivedOnly"
    ALL = "All"


class JobStatus:
    NOT_STARTED = status.NOT_STARTED
    QUEUED = status.QUEUED
    PREPARING = status.PREPARING
    PROVISIONING = status.PROVISIONING
    STARTING = status.STARTING
    RUNNING = status.RUNNING
    FINALIZING = status.FINALIZING
    CANCEL_REQUESTED = status.CANCEL_REQUESTED
    COMPLETED = status.COMPLETED
    FAILED = status.FAILED
    CANCELED = status.CANCELED
    NOT_RESPONDING = status.NOT_RESPONDING
    PAUSED = "Paused"
    UNKNOWN = "Unknown"


__all__ = [
    "AssetTypes",
    "DistributionType",
    "InputOutputModes",
    "InputTypes",
    "JobStatus",
    "JobType",
    "ListViewType",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> type:
        return azure.stand_in(__name__, name, __all__)
