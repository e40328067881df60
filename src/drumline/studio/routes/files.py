"""The code, inputs, outputs and logs of a job, folder by folder."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from starlette.routing import Route

from drumline.control.access import job_files
from drumline.studio.answers import attachment
from drumline.studio.queries import query

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

_CHUNK = 1 << 18
_LONGEST_PATH = 4096


def look_at_code(request: Request) -> dict[str, Any]:
    path = query(request).text("path", "", _LONGEST_PATH)
    return job_files.look_at(request.path_params["name"], job_files.CODE, path)


def look_at_files(request: Request) -> dict[str, Any]:
    asked = query(request)
    area = asked.choice("area", "outputs", job_files.AREAS)
    return job_files.look_at(request.path_params["name"], area, asked.text("path", "", _LONGEST_PATH))


def download_file(request: Request) -> Response:
    asked = query(request)
    area, path = asked.choice("area", "outputs", job_files.AREAS), asked.text("path", "", _LONGEST_PATH)
    with job_files.open_file(request.path_params["name"], area, path) as descriptor:
        file = open(os.dup(descriptor), "rb")  # noqa: SIM115 - closed with the answer
    return attachment(iter(lambda: file.read(_CHUNK), b""), os.path.basename(path))


ROUTES = [
    Route("/jobs/{name}/code", look_at_code),
    Route("/jobs/{name}/files", look_at_files),
    Route("/jobs/{name}/files/content", download_file),
]
