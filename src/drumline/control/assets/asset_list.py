"""All assets in one list: the latest version of each, of every kind."""

from __future__ import annotations

from typing import Any

from drumline.contract.hiding import hide_in_job
from drumline.contract.words import format_count
from drumline.control.assets import assets, datastores

KINDS = ("data", "model", "environment", "component", "datastore")


def list_assets(kind: str = "", name: str = "") -> dict[str, Any]:
    """
    Return the latest version of each asset; with a kind and a name all versions of that, newest first.

    Raises NotFoundError for a name that is not there.
    """
    damaged: list[str] = []
    found: list[dict[str, Any]] = []
    for one in [kind] if kind else KINDS:
        if one == "datastore":
            found += [_describe_datastore(store) for store in datastores.all(damaged.append)]
        else:
            listed = assets.describe_all(one, name if kind and name else None, damaged=damaged.append)
            found += [_describe(one, asset) for asset in listed]
    count = format_count(len(found), "asset")
    sentence = f"{count}; {len(damaged)} cannot be read" if damaged else count
    return hide_in_job({"sentence": sentence, "assets": found, "damaged": damaged})


def _describe(kind: str, asset: dict[str, Any]) -> dict[str, Any]:
    created = asset.get("creation_context") or {}
    return {
        "kind": kind,
        "name": asset.get("name"),
        "version": asset.get("version"),
        "type": asset.get("type") or "",
        "created": created.get("created_at"),
        "description": asset.get("description") or "",
        "tags": asset.get("tags") or {},
        "labels": asset.get("labels") or [],
        "is_archived": bool(asset.get("is_archived")),
    }


def _describe_datastore(store: Any) -> dict[str, Any]:
    """Describe a datastore without its credentials."""
    return {
        "kind": "datastore",
        "name": store.name,
        "version": None,
        "type": str(store.type),
        "created": None,
        "description": store.description or "",
        "tags": dict(store.tags or {}),
        "labels": [],
        "is_archived": False,
    }
