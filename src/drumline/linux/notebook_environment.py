"""The environment of a notebook's kernel as it was before the kernel changed it for its own output."""

from __future__ import annotations

import os
import sys
from typing import Optional

_INLINE = ("module://matplotlib_inline.backend_inline", "module://ipykernel.pylab.backend_inline")
_KERNELS_OWN = {
    "TERM": ("xterm-color",),
    "CLICOLOR": ("1",),
    "CLICOLOR_FORCE": ("1",),
    "FORCE_COLOR": ("1",),
    "PAGER": ("cat",),
    "GIT_PAGER": ("cat",),
    "MPLBACKEND": _INLINE,
}
"""
What a kernel sets, and to which values.

Source: https://github.com/ipython/ipykernel, ``ZMQInteractiveShell.init_environment`` and ``InProcessKernel``.
"""

_KERNELS_ALONE = ("JPY_", "PYDEVD_", "IPY_INTERRUPT_EVENT")
"""
Beginnings of variables that mean nothing outside of a kernel: its parent, its session, its debugger.

Source: https://github.com/jupyter/jupyter_client, ``launch_kernel``; the ``kernel.json`` of ipykernel.
"""

_PARENT = "JPY_PARENT_PID"
"""Of every kernel and what it starts: the process that has started the kernel."""

_MOST_ANCESTORS = 100


def restore_environment() -> dict[str, str]:
    """
    Return the environment for a job: that of this process; in a kernel, or a command of one of its cells, without what
    the kernel has set.

    A variable that the notebook has set to another value is the user's, and stays.
    """
    now = dict(os.environ)
    if "ipykernel" not in sys.modules and _PARENT not in now:
        return now
    before = _read_first_environment(_find_kernel())
    for name, values in _KERNELS_OWN.items():
        if now.get(name) in values:
            if name in before:
                now[name] = before[name]
            else:
                del now[name]
    return {name: value for name, value in now.items() if not name.startswith(_KERNELS_ALONE)}


def _find_kernel() -> Optional[int]:
    """Return the kernel that this process is or descends from; None if it is gone."""
    if "ipykernel" in sys.modules:
        return os.getpid()
    pid = os.getpid()
    for _ in range(_MOST_ANCESTORS):
        parent = _read_parent(pid)
        if parent is None or str(parent) == os.environ.get(_PARENT):
            return None if parent is None else pid
        pid = parent
    return None


def _read_parent(pid: int) -> Optional[int]:
    """Return the parent of a process; None where there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name of the program before it may hold anything.
            return int(file.read().rpartition(b")")[2].split()[1]) or None
    except (OSError, ValueError, IndexError):
        return None


def _read_first_environment(pid: Optional[int]) -> dict[str, str]:
    """Return the environment that a process was started with; empty if it cannot be read."""
    if pid is None:
        return {}
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            entries = file.read().split(b"\0")
    except OSError:
        return {}
    pairs = (entry.partition(b"=") for entry in entries if b"=" in entry)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}
