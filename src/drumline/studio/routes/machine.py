"""What is not of one job: who looks, the queue of this machine, computes with their nodes, assets, and news."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.routing import Route

from drumline import __version__
from drumline.contract import folder as homes
from drumline.contract.process_identity import user
from drumline.control.assets import asset_verbs
from drumline.control.facts.job_table import count_all
from drumline.control.machine import queue_view
from drumline.control.times import utc
from drumline.studio.openapi import read_document
from drumline.studio.queries import query

if TYPE_CHECKING:
    from starlette.requests import Request


def show_queue(_request: Request) -> queue_view.MachineQueue:
    return queue_view.describe_queue()


def show_nodes(_request: Request) -> queue_view.AllNodes:
    return queue_view.describe_nodes()


def list_assets(request: Request) -> dict[str, Any]:
    asked = query(request)
    return asset_verbs.list_assets(asked.choice("kind", "", ("", *asset_verbs.KINDS)), asked.text("name"))


_STARTED = time.time()
_MOST_JOBS = 16
"""That one stream is of."""


def show_me(request: Request) -> dict[str, Any]:
    """Return who looks, at which home, and whether jobs can be changed there."""
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


def show_metrics(request: Request) -> Response:
    """Answer Prometheus in its text format, a line a figure; the states are words of ours, which need no quoting."""
    lines = []
    for name, figures in count_all(request.app.state.tables.here().table).items():
        lines.append(f"# TYPE drumline_{name} gauge")
        for state, figure in figures.items():
            label = f'{{state="{state}"}}' if state else ""
            lines.append(f"drumline_{name}{label} {figure}")
    return Response("\n".join(lines) + "\n", media_type="text/plain; version=0.0.4; charset=utf-8")


async def open_stream(request: Request) -> Response:
    wanted = query(request)
    jobs = await run_in_threadpool(lambda: wanted.jobs("jobs", _MOST_JOBS))
    cursor = request.headers.get("last-event-id") or wanted.text("cursor")
    answer: Response = await request.app.state.live.open(homes.current_workspace(), jobs, cursor)
    return answer


ROUTES = [
    Route("/queue", show_queue),
    Route("/nodes", show_nodes),
    Route("/assets", list_assets),
    Route("/me", show_me),
    Route("/openapi.json", lambda _: read_document()),
    Route("/stream", open_stream),
]
