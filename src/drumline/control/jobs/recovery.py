"""
Recovery of jobs whose supervisor or driver was killed: the end is written down, what is left is ended, a driver is
started again, and outputs are registered that the job's nodes could not register.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from typing import TYPE_CHECKING

from drumline.contract import events as e
from drumline.contract import process_identity, status
from drumline.contract.errors import NO_ROOM, EngineError, UsageError, describe_os_error
from drumline.contract.folder import base_home
from drumline.control.jobs.job_outcome import examine, fold_events, is_writable
from drumline.control.jobs.lookup import folder_of
from drumline.engines.engine_table import is_elsewhere

if TYPE_CHECKING:
    from collections.abc import Iterable

    from drumline.contract.folder import RunFolder
    from drumline.contract.outcome import Outcome


_NOBODY = 0
"""The number of no process."""


def recover_kind(name: str, kind: str, lack: str) -> tuple[RunFolder, Outcome]:
    """Recover a job of that kind. Raises NotFoundError; UsageError with what a job of another kind lacks."""
    folder = folder_of(name)
    outcome = recover(folder)
    if outcome.kind != kind:
        raise UsageError(f"job {name} is a {outcome.kind}: {lack}", f"drumline job show -n {name}")
    return folder, outcome


def recover(folder: RunFolder, secrets: str = "") -> Outcome:
    """
    Do what the job's own processes can no longer do, and return its outcome: nothing, for nearly every job.

    The first to come does it. In a folder that cannot be written to nothing is done, and the outcome is the same.
    ``secrets``: those of its steps, where this process has them (``restart_driver``).
    """
    examined = examine(folder, may_withdraw=True)
    outcome = examined.outcome
    registers = outcome.is_final and any(one.away for one in outcome.registered.values())
    if outcome.is_final and is_elsewhere(outcome.engine):
        # Whoever wrote the end may have been killed before this.
        folder.remove_secrets()
    if not (examined.end or examined.lacks_driver or registers) or not is_writable(folder):
        return outcome
    if examined.lacks_driver:
        outcome.reason = restart_driver(folder, secrets) or outcome.reason
        return outcome
    if examined.end is not None:
        end = examined.end
        try:
            if not is_elsewhere(outcome.engine):
                # A supervisor that comes too late finds the job taken.
                if folder.read_json(folder.supervisor) is None:
                    folder.hand_over(_NOBODY)
                if process_identity.is_alive(folder.read_json(folder.supervisor)):
                    return fold_events(folder)
                end = _end_what_is_left(folder, end.reason)
            folder.append(end)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            return outcome
    else:
        from drumline.contract.plan import Plan
        from drumline.supervisor.job import preparing

        # The job's nodes could not reach where its outputs are registered.
        with contextlib.suppress(OSError):
            preparing.register(folder, Plan.read(folder.plan).registers)
    return fold_events(folder)


def _end_what_is_left(folder: RunFolder, reason: str) -> e.JobEnded:
    """End the processes of a job whose supervisor was killed, and return the event of its end."""
    from drumline.node import leftovers

    count = leftovers.clear_leftovers(folder)
    if count:
        reason += f"; {count} {'process' if count == 1 else 'processes'} that it left were ended"
    return e.JobEnded(time.time(), status.FAILED, 1, reason)


# The driver process of a pipeline or a sweep: started when the job is submitted, and again when it was killed.


KEPT_VARIABLES = (
    "PATH", "DRUMLINE_PYTHON", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV",
    "SLURM_CONF", "CUDA_VISIBLE_DEVICES", "TMPDIR", "LANG", "LC_ALL",
)  # fmt: skip
"""
Variables of whoever submits that a driver has too when somebody else starts it again: those that say where programs
are. Others may be secrets, and are nowhere on disk.
"""


def start_driver(
    folder: RunFolder,
    interpreter: str,
    surroundings: dict[str, str],
    names: Iterable[str] = (),
    secrets: str = "",
) -> None:
    """
    Start the driver of that run folder, which goes to the background at once. Raises EngineError.

    ``secrets``: those of its steps, as ``contract.secrets`` passes them on, and their ``names``.
    """
    import subprocess  # Not needed by a driver's guard, which a command waits for.

    from drumline.linux.notebook_environment import restore_environment

    # A fork of this process would not do: it may have threads, and its modules are not those of a driver.
    ours = {"DRUMLINE_HOME": base_home(), "DRUMLINE_WORKSPACE": folder.workspace}
    inherited = {name: value for name, value in restore_environment().items() if name not in frozenset(names)}
    if secrets:
        from drumline.contract.secrets import VARIABLE

        ours[VARIABLE] = secrets
    argv = [interpreter, "-P", "-m", "drumline.control.driver", folder.path]
    done = subprocess.run(  # noqa: S603
        argv,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        env={**inherited, **surroundings, **ours},
    )
    if done.returncode:
        raise EngineError(f"the driver of job {folder.name} did not start: {done.stderr.strip()[-500:]}")


def restart_driver(folder: RunFolder, secrets: str = "") -> str:
    """
    Start a driver where there is none any more; harmless where there is one. It has our environment, but for what the
    one that submitted the job had, and no value for the names of secrets. Never raises, but returns why it did not
    start: whoever looks next tries again.

    ``secrets``: as of ``start_driver``, where this process has them.
    """
    from drumline.contract.secrets import list_names

    try:
        graph = folder.read_json(folder.graph) or {}
        interpreter = str(graph.get("interpreter") or sys.executable)
        kept = graph.get("surroundings")
        surroundings = (
            {str(name): str(kept[name]) for name in KEPT_VARIABLES if name in kept}
            if isinstance(kept, dict)
            else {}
        )
        names = list_names(graph)
        python = interpreter if os.access(interpreter, os.X_OK) else sys.executable
        start_driver(folder, python, surroundings, names, secrets)
    except EngineError as error:
        return error.message
    except OSError as error:
        return describe_os_error(error)
    return ""
