"""The description of this interface."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.routing import Route

if TYPE_CHECKING:
    from starlette.requests import Request


def show_document(request: Request) -> dict[str, Any]:
    from drumline.studio.openapi import read_document

    return read_document()


ROUTES = [Route("/openapi.json", show_document)]
