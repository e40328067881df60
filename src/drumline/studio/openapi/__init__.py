"""The OpenAPI document: a file for each noun of ``routes/``, joined."""

from __future__ import annotations

import json
import os
from typing import Any

from drumline import __version__
from drumline.studio.security import API

_ERRORS = {
    "400": "the request is not usable",
    "401": "a token is needed",
    "403": "the request does not come from the studio's own page, or not under its name",
    "404": "there is no such job, file or workspace",
    "409": "it cannot be done now, or a file of the job is damaged",
    "429": "too many tries have failed",
    "500": "an error of the studio",
    "503": "a disk, or what runs the job, does not answer",
}
_ERRORS_OF_CHANGES = {
    "408": "the body has not arrived in time",
    "413": "the body is too large",
    "415": "the body is not JSON",
}
_FOLDER = os.path.dirname(os.path.abspath(__file__))


def read_document() -> dict[str, Any]:
    """Return the whole document. Source: https://spec.openapis.org/oas/v3.1.1.html"""
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    errors = (_ERRORS | _ERRORS_OF_CHANGES).items()
    document: dict[str, Any] = {
        "openapi": "3.1.1",
        "info": {"title": "Drumline studio", "version": __version__},
        "servers": [{"url": API}],
        "security": [{"token": []}, {"cookie": []}],
        "paths": {},
        "components": {
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "cookie": {"type": "apiKey", "in": "cookie", "name": "drumline-studio-PORT"},
            },
            "schemas": {},
            "responses": {code: {"description": why, "content": error} for code, why in errors},
        },
    }
    for name in sorted(os.listdir(_FOLDER)):
        if name.endswith(".json"):
            with open(os.path.join(_FOLDER, name), encoding="utf-8") as file:
                part = json.load(file)
            document["paths"] |= part.get("paths", {})
            document["components"]["schemas"] |= part.get("schemas", {})
    for item in document["paths"].values():
        for method in ("get", "post"):
            if method in item:
                codes = [*_ERRORS, *(_ERRORS_OF_CHANGES if method == "post" else ())]
                item[method]["responses"] |= {
                    code: {"$ref": f"#/components/responses/{code}"} for code in sorted(codes)
                }
    return document
