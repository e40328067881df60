"""Checks whether this process is a notebook's kernel, and how an interrupt looks there."""

from __future__ import annotations

import sys


class WaitInterruptedError(KeyboardInterrupt):
    """An interrupt while a job was waited for. A notebook shows its sentence, without a traceback."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


def describe_interrupt(name: str) -> str:
    return f"job {name} is still running; to stop it: ml_client.jobs.begin_cancel({name!r})"


def is_kernel() -> bool:
    """Return whether outputs of this process are shown in a notebook, where they can be drawn again."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None
