"""Asking for a job's end."""

from __future__ import annotations

import contextlib
import json
import signal
from typing import TYPE_CHECKING

from drumline.contract import identity
from drumline.contract.errors import EngineError
from drumline.contract.user import user
from drumline.control.jobs.lookup import folder_of
from drumline.control.jobs.recovery import recover
from drumline.engines.table import engine, is_elsewhere

if TYPE_CHECKING:
    from drumline.contract.folder import RunFolder


def cancel(name: str, *, at_once: bool = False, by: str = "") -> bool:
    """
    Ask for the job's end and return; ``at_once`` is without the grace period. False when it has ended already.

    ``by``: who asks, for the reason; default the user. May be called again. Raises NotFoundError.
    """
    folder = folder_of(name)
    outcome = recover(folder)
    if outcome.is_final:
        return False
    request(folder, at_once=at_once, by=by)
    wake(folder)
    if is_elsewhere(outcome.engine):
        # One that waits has no supervisor that would see the request. Where nobody answers, whoever looks tries again.
        with contextlib.suppress(EngineError):
            engine(outcome.engine).withdraw(folder)
    return True


def request(folder: RunFolder, *, at_once: bool = False, by: str = "") -> None:
    """Leave the request for the process that looks after the job, now or when it begins. Raises OSError."""
    folder.write(folder.cancel, json.dumps({"by": by or user(), "at_once": at_once}))


def wake(folder: RunFolder) -> None:
    """Have its supervisor look for requests now; it does so every second or two anyway."""
    pidfd = identity.open_pidfd(folder.read_json(folder.supervisor))
    if pidfd is not None:
        import os

        try:
            signal.pidfd_send_signal(pidfd, signal.SIGUSR1)
        except ProcessLookupError:
            pass
        finally:
            os.close(pidfd)
