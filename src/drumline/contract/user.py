"""The user who asks."""

from __future__ import annotations

import os


def user() -> str:
    """Return the login name, else the user's number."""
    for variable in ("LOGNAME", "USER"):
        if os.environ.get(variable):
            return os.environ[variable]
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
