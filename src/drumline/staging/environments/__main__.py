"""
``python -m drumline.staging.environments RUN_FOLDER`` builds the environment of the plan in that run folder.

``--stdin [--force]``: the one that stands there as a JSON object, with the tools' output on standard error.

Prints a JSON object a line: ``building``, then ``ready``; or ``failed`` and ends with code 1. It ends with its parent,
and takes with it all that it started.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import DrumlineError
from drumline.contract.folder import MARKER, RunFolder
from drumline.contract.plan import Build, Plan
from drumline.linux import kernel
from drumline.staging.environments.environment_builder import build_environment, note_use
from drumline.staging.environments.environment_folder import CONTAINERS, LOG
from drumline.staging.environments.tool import BuildError

if TYPE_CHECKING:
    from types import FrameType

_USAGE = "usage: python -m drumline.staging.environments RUN_FOLDER | --stdin [--force]"


def main(argv: list[str]) -> int:
    if not argv or (len(argv) > 1 and argv != ["--stdin", "--force"]):
        sys.stderr.write(_USAGE + "\n")
        return 2
    kernel.die_with_parent(signal.SIGTERM, os.getppid())
    signal.signal(signal.SIGTERM, _end_on_signal)
    try:
        if argv[0] == "--stdin":
            wanted = Build(**json.loads(sys.stdin.read()))
            _build(wanted, 2, "", who=f"process {os.getpid()}", is_forced=len(argv) > 1)
        else:
            _build_planned(RunFolder(os.path.abspath(argv[0])))
    except DrumlineError as error:
        _tell("failed", message=error.message, hint=error.hint)
    except (OSError, ValueError) as error:
        _tell("failed", message=f"the environment cannot be built: {error}", hint="")
    else:
        return 0
    finally:
        _end_all()
    return 1


def _build_planned(folder: RunFolder) -> None:
    wanted = Plan.read(folder.plan).build
    if wanted is None:
        return
    # By this the processes of a job are found, whoever of them was killed.
    os.environ[MARKER] = folder.path
    log = os.open(
        os.path.join(folder.path, LOG), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600
    )
    try:
        _build(wanted, log, LOG, who=f"job {folder.name}")
    except BuildError as error:
        message = f"environment: it could not be built: {error.message}; see {os.path.join(folder.path, LOG)}"
        raise BuildError(message, error.hint or _WITHOUT.get(wanted.kind, "")) from error
    finally:
        os.close(log)
    note_use(wanted, folder.path)


_WITHOUT = dict.fromkeys(
    CONTAINERS,
    "DRUMLINE_CONTAINER=none runs jobs without images, in the environment's packages or the Python at hand",
)


def _build(wanted: Build, log: int, shown: str, *, who: str, is_forced: bool = False) -> None:
    def tell(what: str) -> None:
        _tell("building", what=what, log=shown)

    ready = build_environment(wanted, log, tell, who=who, is_forced=is_forced)
    seconds = round(ready.seconds, 3)
    _tell("ready", digest=wanted.digest, prefix=wanted.prefix, seconds=seconds, reused=ready.reused)


def _tell(kind: str, **fields: Any) -> None:
    try:
        sys.stdout.write(json.dumps({"type": kind, **fields}) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        os._exit(1)  # Whoever listened is gone.


def _end_on_signal(number: int, _: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(128 + number)


def _end_all() -> None:
    """Terminate the tools, which outlive this process: none may go on writing into an environment."""
    if os.getpgrp() == os.getpid():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.killpg(0, signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
