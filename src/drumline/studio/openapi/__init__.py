"""The OpenAPI document: a file for each noun of ``routes/``, joined."""

from __future__ import annotations

import json
import os
from typing import Any

from drumline import __version__
from drumline.studio.settings import API

_FOLDER = os.path.dirname(os.path.abspath(__file__))


def read_document() -> dict[str, Any]:
    """Return the whole document. Source: https://spec.openapis.org/oas/v3.1.1.html"""
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
        },
    }
    for name in sorted(os.listdir(_FOLDER)):
        if name.endswith(".json"):
            with open(os.path.join(_FOLDER, name), encoding="utf-8") as file:
                part = json.load(file)
            document["paths"] |= part.get("paths", {})
            document["components"]["schemas"] |= part.get("schemas", {})
    return document
