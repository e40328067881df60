"""MLflow in the process of whoever asks where the runs are."""

from __future__ import annotations

import os

from drumline.contract.mlflow import FILES

_ALLOW = "MLFLOW_ALLOW_FILE_STORE"


def let_mlflow_read(uri: str | None) -> None:
    """
    MLflow 3.7 and later refuse a file store unless a variable allows it: set it in this process, where it is not set,
    before the address of one is handed out.
    """
    if uri and uri.startswith(FILES):
        os.environ.setdefault(_ALLOW, "true")
