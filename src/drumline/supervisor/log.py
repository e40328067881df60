"""The supervisor's log, and steps whose failure goes there and nowhere else."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def log(text: str) -> None:
    """Write to the log, which ``kernel.append_output`` has made."""
    print(text, file=sys.stderr, flush=True)


def log_traceback() -> None:
    """Write the traceback of the exception that is being handled."""
    import traceback

    log(traceback.format_exc())


def run_quietly(step: Callable[[], object]) -> None:
    """Run a step that is not worth a job, such as leaving the queue. Ranks may have damaged any file meanwhile."""
    try:
        step()
    except Exception:  # noqa: BLE001 - see above; the log has it
        log_traceback()
