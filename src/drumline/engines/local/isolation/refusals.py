"""The reasons for which a kernel lets a user make no namespaces, and how an administrator allows it."""

from __future__ import annotations

import os

from drumline.contract.errors import EngineError

_SWITCHES = (
    ("/proc/sys/kernel/unprivileged_userns_clone", "0", "sysctl -w kernel.unprivileged_userns_clone=1"),
    ("/proc/sys/user/max_user_namespaces", "0", "sysctl -w user.max_user_namespaces=10000"),
    (
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
    ),
)
"""What keeps an ordinary user from namespaces, and what an administrator runs against it."""


def explain_refusal(error: OSError) -> EngineError:
    """Return the sentence for a kernel that lets us make no namespaces."""
    what = f"this machine lets you make no network of your own ({error.strerror})"
    if os.geteuid() == 0:
        return EngineError(
            what, "in a container: it needs --privileged, or --cap-add SYS_ADMIN --cap-add NET_ADMIN"
        )
    for path, off, remedy in _SWITCHES:
        try:
            with open(path) as file:
                if file.read().strip() == off:
                    return EngineError(what, f"an administrator allows it: {remedy}")
        except OSError:
            continue
    return EngineError(what, "run it as root, or outside of a container")
