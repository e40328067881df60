"""
The move of a fork server (``warm.py``) to an isolated node: into the namespaces of the agent whose ranks it forks.

The names of the machine that ``platform`` has noted are forgotten: it asks again.
Source: setns(2), user_namespaces(7), capabilities(7).
"""

from __future__ import annotations

import ctypes
import os
import socket
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_PR_SET_DUMPABLE = 4
_CAPABILITIES_VERSION = 0x20080522
_MOST_NAMESPACES = 16


def enter(agent: socket.socket, names: list[str]) -> str:
    """
    Enter the namespaces whose descriptors come next from the agent, in that order; return why that could not be, else
    nothing. ``names``: of their files in /proc/self/ns.
    """
    _, descriptors, _, _ = socket.recv_fds(agent, 1, _MOST_NAMESPACES)
    try:
        folder = os.getcwd()
        for name, descriptor in zip(names, descriptors):
            if os.fstat(descriptor).st_ino != os.stat("/proc/self/ns/" + name).st_ino:
                _call("setns", descriptor, 0)
        # To enter mounts is to be in their root.
        os.chdir(folder)
        _give_up_rights()
    except OSError as error:
        return str(error)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    _forget_machine()
    return ""


def _give_up_rights() -> None:
    """Give up what an ordinary user gains with a user namespace, and loses when it starts a program there."""
    if os.geteuid() != 0:
        nothing = (ctypes.c_uint32 * 6)()
        _call("capset", (ctypes.c_uint32 * 2)(_CAPABILITIES_VERSION, 0), nothing)
        # To gain it has closed /proc/PID to the process's own user.
        _call("prctl", _PR_SET_DUMPABLE, *[ctypes.c_ulong(one) for one in (1, 0, 0, 0)])


def _forget_machine() -> None:
    platform: Any = sys.modules.get("platform")
    if platform is not None:
        platform._uname_cache = None


def _call(name: str, *arguments: Any) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, "%s: %s" % (name, os.strerror(number)))
