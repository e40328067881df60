"""``python -m drumline.staging RUN_FOLDER``: code, inputs and output folders on a node that shares no files."""

from __future__ import annotations

import sys

from drumline.contract.errors import DrumlineError
from drumline.contract.folder import RunFolder
from drumline.contract.plan import Plan
from drumline.staging.run_setup import prepare_run


def main() -> int:
    folder = RunFolder(sys.argv[1])
    try:
        prepare_run(folder, Plan.read(folder.plan))
    except DrumlineError as error:
        sys.stderr.write(error.message + "\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
