"""
The process of a supervisor: it takes the job, runs it (``job/run.py``), and writes the end.

On this machine it is orphaned and has a session of its own: the command that submitted the job may go away.
As the batch step of an engine it may be killed with its nodes and started again with others, on the same run folder;
it then goes on where the events end.
"""

from __future__ import annotations

import contextlib
import json
import os
import time

from drumline.contract import events as e
from drumline.contract import process_identity, status
from drumline.contract.errors import DrumlineError, describe_os_error
from drumline.contract.outcome import fold
from drumline.engines.engine_table import engine
from drumline.linux import kernel
from drumline.supervisor.clocks import wall_time
from drumline.supervisor.deciding import happenings as h
from drumline.supervisor.job.run import HANDED_OVER, run_job
from drumline.supervisor.supervised_folder import EndRequests, SupervisedFolder, log, log_traceback

_RESERVE_BYTES = 4096
_NOT_OURS_CODE = 3
_RECORDING_S = 1.0


def be_ready() -> None:
    """Import the modules of a job on this machine, while there is no job yet."""
    import ctypes  # noqa: F401
    import pwd  # noqa: F401
    import resource  # noqa: F401
    import shutil  # noqa: F401

    import drumline.engines.local.agents
    import drumline.engines.local.engine  # noqa: F401


def supervise(path: str, *, batch: bool = False, secrets: str = "") -> int:
    """
    Run the job of that run folder to its end; return the exit code of this process. Never raises.

    ``secrets``: the job's, as ``contract.secrets`` passes them on; to a batch step its engine does.
    ``batch``: this process is the batch step of an engine, ends with the job's exit code, and may be started again.
    """
    try:
        folder = SupervisedFolder(path)
    except OSError:
        return 1  # It was removed before the job began.
    try:
        _stand_alone(folder, batch=batch)
        kernel.set_process_name("drumline-job")
        kernel.forbid_core()
        kernel.adopt_orphans()
        requests = EndRequests(folder, batch=batch)
        outcome = fold(folder.read_events())
        if outcome.is_final:
            return 0  # This process is so late that another one took it for dead and wrote the end.
        if batch:
            other = engine(outcome.engine).claim(folder)
            if other:
                log(other)
                return _NOT_OURS_CODE
        if not _take_job(folder, batch=batch):
            return 0  # The submitting command was killed, and another one has started the job.
        folder.write(folder.reserve, " " * _RESERVE_BYTES)
        end = run_job(folder, requests, _read_secrets(folder, secrets, batch=batch))
        if end is HANDED_OVER:
            _wait_for_notices(folder, batch=batch)
            return 0
    except DrumlineError as error:
        end = h.Finish(status.FAILED, 1, error.message)
    except BaseException as error:  # noqa: BLE001 - the top of a process: nothing above would say it
        log_traceback()
        path = os.path.join(folder.system_logs, "supervisor.log")
        what = describe_os_error(error) if isinstance(error, OSError) else repr(error)
        end = h.Finish(status.FAILED, 1, f"the supervisor failed ({what}); see {path}")
    if batch and folder.read_json(folder.supervisor) not in (
        None,
        process_identity.identify_process(os.getpid()),
    ):
        log("another supervisor has this job by now: its end is that one's to write")
        return _NOT_OURS_CODE
    _write_end(folder, end, batch=batch)
    _wait_for_notices(folder, batch=batch)
    return end.exit_code if batch else 0


def _read_secrets(folder: SupervisedFolder, text: str, *, batch: bool) -> dict[str, str]:
    """Return the values of the job's secrets. The engine has one half of them, and the run folder the other."""
    if batch and os.path.exists(folder.secrets):
        from drumline.contract import secrets

        pads = folder.read_word(folder.secrets, secrets.MOST_PAD_CHARACTERS)
        text = secrets.join(pads, os.environ.pop(secrets.VARIABLE, ""))
    values: dict[str, str] = json.loads(text) if text else {}
    return values


def _take_job(folder: SupervisedFolder, *, batch: bool) -> bool:
    """Write down that this process has the job; False where another has it. Batch steps replace each other."""
    me = process_identity.identify_process(os.getpid())
    if batch:
        folder.write(folder.supervisor, json.dumps(me))
        return True
    # Whoever started this process has written it down, or does so now: without hard links the file is empty meanwhile.
    deadline = time.monotonic() + _RECORDING_S
    while (recorded := folder.read_json(folder.supervisor)) is None and time.monotonic() < deadline:
        folder.hand_over(os.getpid())
    return recorded == me


def _write_end(folder: SupervisedFolder, end: h.Finish, *, batch: bool) -> None:
    """Append the one event that must find room: the reserved space is given up first."""
    with contextlib.suppress(OSError):
        folder.append_lost()
    with contextlib.suppress(OSError):
        os.unlink(folder.reserve)
    event = e.JobEnded(wall_time(), end.status, end.exit_code, end.reason, end.rank, end.node, end.verdict)
    try:
        folder.append(event)
    except OSError as error:
        log(f"could not record {event}: {error}")
    if batch:
        folder.remove_secrets()


def _wait_for_notices(folder: SupervisedFolder, *, batch: bool) -> None:
    """Wait for the processes that send notices: the engine ends what a batch step leaves behind."""
    if batch and folder.notices is not None:
        folder.notices.wait()


def _stand_alone(folder: SupervisedFolder, *, batch: bool = False) -> None:
    """Start a session, and write output to the log."""
    if not batch:  # An engine may end its batch step by the session.
        os.setsid()
    kernel.detach_streams(os.path.join(folder.system_logs, "supervisor.log"))
