"""MLflow in the process that asks where the runs are."""

from __future__ import annotations

import os

from drumline.contract.mlflow import FILES

_ALLOW = "MLFLOW_ALLOW_FILE_STORE"


def let_mlflow_read(uri: str | None) -> None:
    """
    Let MLflow read a file store in this process, before the address of one is handed out.

    MLflow 3.7 and later refuse one unless a variable allows it; where that is set, it stays as it is.
    """
    if uri and uri.startswith(FILES):
        os.environ.setdefault(_ALLOW, "true")
