"""
``python -m drumline.tracking begin RUN_FOLDER`` and ``end RUN_FOLDER STATUS``: ask a team's MLflow server for the run
of a job, and tell it how the job ended. Prints one JSON object: the run's id, or a warning.
"""

from __future__ import annotations

import json
import os
import signal
import sys

from drumline.contract.errors import DrumlineError
from drumline.contract.folder import RunFolder
from drumline.contract.plan import Plan
from drumline.contract.process_identity import user
from drumline.tracking import mlflow_files
from drumline.tracking.runs import note_path
from drumline.tracking.server import Server

_ALARM_S = 30


def main(argv: list[str]) -> int:
    # Whoever started this may be gone.
    signal.alarm(_ALARM_S)
    verb, path = argv[0], argv[1]
    folder = RunFolder(path)
    try:
        plan = Plan.read(folder.plan)
        server = Server(plan.user_env["MLFLOW_TRACKING_URI"], {**os.environ, **plan.user_env})
        if verb == "begin":
            tags = mlflow_files.tags_of(plan, user())
            experiment = plan.user_env["MLFLOW_EXPERIMENT_NAME"]
            run_id, experiment_id = server.create_run(plan.job, experiment, user(), tags)
            answer = {"run_id": run_id, "experiment_id": experiment_id}
        else:
            server.end_run(str((folder.read_json(note_path(folder)) or {})["run_id"]), argv[2])
            answer = {}
    except DrumlineError as error:
        answer = {"warning": error.message + (f"; {error.hint}" if error.hint else "")}
    sys.stdout.write(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
