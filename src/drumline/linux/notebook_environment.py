"""The environment of a notebook's kernel as it was before the kernel changed it for its own output."""

from __future__ import annotations

import os
import sys

_INLINE = ("module://matplotlib_inline.backend_inline", "module://ipykernel.pylab.backend_inline")
_KERNELS_OWN = {
    "TERM": ("xterm-color",),
    "CLICOLOR": ("1",),
    "CLICOLOR_FORCE": ("1",),
    "FORCE_COLOR": ("1",),
    "PAGER": ("cat",),
    "GIT_PAGER": ("cat",),
    "MPLBACKEND": _INLINE,
    "PYDEVD_USE_FRAME_EVAL": ("NO",),
}
"""
What a kernel sets, and to which values.

Source: https://github.com/ipython/ipykernel, ``ZMQInteractiveShell.init_environment`` and ``InProcessKernel``.
"""


def restore_environment() -> dict[str, str]:
    """
    Return the environment for a job: that of this process, in a kernel without what the kernel has set.

    A variable that the notebook has set to another value is the user's, and stays.
    """
    now = dict(os.environ)
    if "ipykernel" not in sys.modules:
        return now
    before = _read_first_environment()
    for name, values in _KERNELS_OWN.items():
        if now.get(name) in values:
            if name in before:
                now[name] = before[name]
            else:
                del now[name]
    return now


def _read_first_environment() -> dict[str, str]:
    """Return the environment that this process was started with; empty if it cannot be read."""
    try:
        with open("/proc/self/environ", "rb") as file:
            entries = file.read().split(b"\0")
    except OSError:
        return {}
    pairs = (entry.partition(b"=") for entry in entries if b"=" in entry)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}
