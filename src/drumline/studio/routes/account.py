"""The user who is looking, the workspace, and the description of this interface."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from starlette.routing import Route

from drumline import __version__
from drumline.contract import folder as homes
from drumline.contract.identity import user
from drumline.control.times import utc

if TYPE_CHECKING:
    from starlette.requests import Request

_STARTED = time.time()


def show_me(request: Request) -> dict[str, Any]:
    return {
        "version": __version__,
        "user": user(),
        "host": os.uname().nodename,
        "home": homes.home(),
        "workspace": homes.current_workspace(),
        "workspaces": homes.workspace_names(),
        "started": utc(_STARTED),
        "can_write": _can_write(homes.home()),
    }


def _can_write(place: str) -> bool:
    """Return whether jobs can be submitted and changed there; it may not exist yet."""
    while not os.path.isdir(place):
        place = os.path.dirname(place)
    return os.access(place, os.W_OK)


def show_document(request: Request) -> dict[str, Any]:
    from drumline.studio.openapi import read_document

    return read_document()


ROUTES = [Route("/me", show_me), Route("/openapi.json", show_document)]
