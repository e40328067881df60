"""The life of a driver: one guard, one driver at a time, until the job has ended."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import signal
import time
from typing import TYPE_CHECKING

from drumline.contract import events as e
from drumline.contract import process_identity, secrets, status
from drumline.contract.errors import NO_ROOM, DrumlineError
from drumline.contract.outcome import fold
from drumline.contract.ownership import lock_file
from drumline.control.driver.children import RemovedError
from drumline.control.jobs import ending
from drumline.control.submission import submitted_secrets
from drumline.linux import kernel

if TYPE_CHECKING:
    from typing import NoReturn

    from drumline.contract.folder import RunFolder
    from drumline.control.driver.children import End

_MOST_STARTS = 6
"""In a row, of drivers that failed without getting anywhere: a fault of ours."""

_FULL_CODE = os.EX_IOERR
"""The exit code of a driver for which a disk was full: its steps go on, and so does a driver once there is room."""

_QUICK_FAILURE_S = 10.0
_RESTART_PAUSE_S = 0.1
"""Before the second of those; doubled every time, up to the longest."""

_LONGEST_RESTART_PAUSE_S = 2.0


def take_lock(folder: RunFolder) -> int | None:
    """
    Return the lock of a job's only guard; None where there is one. Raises EngineError, OSError: whoever starts a driver
    waits for this, and hears of it.
    """
    lock = os.open(folder.driver_lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        # Held by the driver too: as long as either lives there is no second one.
        lock_file(lock, fcntl.LOCK_EX | fcntl.LOCK_NB, folder.driver_lock)
    except BlockingIOError:
        return None
    return lock


def guard(folder: RunFolder, lock: int) -> int:
    """Keep a driver running for that run folder until the job has ended."""
    text = os.environ.pop(secrets.VARIABLE, "")
    submitted_secrets.given.set(secrets.from_text(text))
    submitted_secrets.lost.set(not text)
    _stand_alone(folder, lock)
    in_vain = 0
    follows = False
    while True:
        size, began = _size_of(folder.events), time.monotonic()
        child = os.fork()
        if not child:
            _be_driver(folder, follows=follows)
        follows = True
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code == 0:
            return 0
        has_lived = _size_of(folder.events) != size or time.monotonic() - began > _QUICK_FAILURE_S
        in_vain = 0 if has_lived else in_vain + 1
        if in_vain >= _MOST_STARTS and code not in (-signal.SIGKILL, -signal.SIGTERM, _FULL_CODE):
            log = os.path.join(folder.system_logs, "driver.log")
            _give_up(folder, f"its driver failed {in_vain} times in a row; see {log}")
            return 1
        if in_vain:
            time.sleep(min(_RESTART_PAUSE_S * 2 ** (in_vain - 1), _LONGEST_RESTART_PAUSE_S))


def _size_of(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return -1


def _be_driver(folder: RunFolder, *, follows: bool = False) -> NoReturn:
    """``follows``: another driver was killed or has failed before."""
    code = 1
    try:
        code = _drive(folder, follows=follows)
    except BaseException as error:  # noqa: BLE001 - the top of a process: nothing above would say it
        import traceback

        traceback.print_exc()
        if isinstance(error, OSError) and error.errno in (*NO_ROOM, errno.EIO):
            code = _FULL_CODE
    finally:
        os._exit(code)


def _drive(folder: RunFolder, *, follows: bool) -> int:
    kernel.set_process_name("drumline-drive")
    os.setsid()
    # Whoever knows of this process may wake it.
    wake = _readable_on_signal()
    folder.write(folder.supervisor, json.dumps(process_identity.identify_process(os.getpid())))
    outcome = fold(folder.read_events())
    if outcome.is_final:
        if follows:
            # The driver that recorded the end was killed, perhaps before it told of it.
            for event in reversed(list(folder.read_events())):
                if isinstance(event, e.JobEnded):
                    _notify(folder, event)
                    break
        return 0
    try:
        end = _run(folder, outcome.kind, wake)
    except RemovedError:
        return 0
    except DrumlineError as error:
        _give_up(folder, error.message)
        return 0
    _end(folder, end.status, end.exit_code, end.reason)
    return 0


def _give_up(folder: RunFolder, reason: str) -> None:
    """Fail the job and cancel its steps, which no driver looks after any more."""
    steps = fold(folder.read_events()).steps
    for step in steps.values():
        if step.job and not step.status:
            with contextlib.suppress(DrumlineError, OSError):
                ending.cancel(step.job, by=f"job {folder.name}, which failed")
    _end(folder, status.FAILED, 1, reason)


def _run(folder: RunFolder, kind: str, wake: int) -> End:
    if kind == "sweep":
        from drumline.control.driver import sweep
        from drumline.control.settings import tracking
        from drumline.plan.search import tuning

        # Its trials have the same variables.
        tracking.rules.trusts_plans = True
        properties = ((folder.read_json(folder.graph) or {}).get("sweep") or {}).get("properties") or {}
        if tuning.PROPERTY in properties:
            from drumline.control.driver import tune_trials

            return tune_trials.TuneDriver(folder, wake).run()
        return sweep.SweepDriver(folder, wake).run()
    from drumline.control.driver import pipeline

    return pipeline.PipelineDriver(folder, wake).run()


def _end(folder: RunFolder, how: str, code: int, reason: str) -> None:
    """Record the end of the job. Raises OSError; then ``recover`` starts another driver."""
    event = e.JobEnded(time.time(), how, code, reason)
    folder.append(event)
    _notify(folder, event)


def _notify(folder: RunFolder, event: e.JobEnded) -> None:
    """Tell those who want to know. Never raises: the job has ended."""
    planned = (folder.read_json(folder.graph) or {}).get("notify")
    if not planned:
        return
    from drumline.control.settings import receivers
    from drumline.supervisor.notifying.notices import JobNotices

    with contextlib.suppress(DrumlineError, OSError, LookupError, TypeError):
        hidden = {**submitted_secrets.given.get(), **receivers.find_addresses(planned)}
        JobNotices(folder, planned, hidden).take(event)


def _stand_alone(folder: RunFolder, lock: int) -> None:
    """Start a new session, with output to the log of the driver."""
    os.setsid()
    kernel.detach_streams(os.path.join(folder.system_logs, "driver.log"), lock)
    kernel.set_process_name("drumline-guard")
    kernel.forbid_core()
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _readable_on_signal() -> int:
    """Return a descriptor that becomes readable when SIGUSR1 announces a request."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    os.set_blocking(reader, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGUSR1, lambda *_: None)
    return reader
