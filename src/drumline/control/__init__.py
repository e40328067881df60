"""The verbs of every surface: submit, watch, cancel, download ..."""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - the Python of a rank, which is the user's
    raise ImportError(
        "Drumline needs Python 3.11 for this; Run of azureml logs, tags and uploads from 3.9 on"
    )
