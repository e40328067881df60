"""What is not of one job: the queue of this machine, computes with their nodes, and assets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.routing import Route

from drumline.control.assets import assets
from drumline.control.machine import node_list, queue_view
from drumline.studio.queries import query

if TYPE_CHECKING:
    from starlette.requests import Request


def show_queue(request: Request) -> dict[str, Any]:
    return queue_view.describe_queue()


def list_nodes(request: Request) -> dict[str, Any]:
    return node_list.describe_nodes()


def list_assets(request: Request) -> dict[str, Any]:
    asked = query(request)
    return assets.list_assets(asked.choice("kind", "", ("", *assets.KINDS)), asked.text("name"))


ROUTES = [
    Route("/queue", show_queue),
    Route("/nodes", list_nodes),
    Route("/assets", list_assets),
]
