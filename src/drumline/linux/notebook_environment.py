"""The environment of a notebook's kernel as it was before the kernel changed it for its own output."""

from __future__ import annotations

import os
import sys

from drumline.linux import process_usage

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
_MAX_BYTES = 1 << 23


def restore_environment() -> dict[str, str]:
    """
    Return the environment for a job: that of this process; in a kernel, or a command of one of its cells, without what
    the kernel has set.

    A variable that the notebook has set to another value is the user's, and stays.
    """
    now = dict(os.environ)
    if "ipykernel" not in sys.modules and _PARENT not in now:
        return now
    # What the kernel was started with.
    entries = process_usage.read_bytes(f"/proc/{_find_kernel()}/environ", _MAX_BYTES).split(b"\0")
    pairs = (entry.partition(b"=") for entry in entries if b"=" in entry)
    before = {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}
    for name, values in _KERNELS_OWN.items():
        if now.get(name) in values:
            if name in before:
                now[name] = before[name]
            else:
                del now[name]
    return {name: value for name, value in now.items() if not name.startswith(_KERNELS_ALONE)}


def _find_kernel() -> int:
    """Return the kernel that this process is or descends from; 0 if it is gone."""
    if "ipykernel" in sys.modules:
        return os.getpid()
    pid = os.getpid()
    for _ in range(_MOST_ANCESTORS):
        stat = process_usage.read_stat(pid)
        if stat is None or not stat.parent:
            return 0
        if str(stat.parent) == os.environ.get(_PARENT):
            return pid
        pid = stat.parent
    return 0
