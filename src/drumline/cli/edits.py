"""``--set`` and ``--remove`` of the verb ``update``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drumline.contract.errors import UsageError
from drumline.control.jobs.listing import EDITABLE

if TYPE_CHECKING:
    from collections.abc import Sequence


def parse_edits(
    job: dict[str, Any],
    given: Sequence[str],
    removed: Sequence[str],
    *,
    editable: Sequence[str] = EDITABLE,
    noun: str = "submitted job",
) -> dict[str, Any]:
    """Return the new values by field. Raises UsageError for a field that cannot change; ``noun``: what it is of."""

    def check(field: str, key: str, path: str) -> None:
        if field not in editable:
            raise UsageError(f"{path!r} of a {noun} cannot be changed", f"these can: {', '.join(editable)}")
        if key and field not in ("tags", "properties"):
            raise UsageError(f"{field} is text and has no field {key!r}")

    changes: dict[str, Any] = {}
    for text in given:
        path, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"--set: {text!r} is not of the form PATH=VALUE")
        field, _, key = path.partition(".")
        check(field, key, path)
        if key:
            changes[field] = {**_copy_mapping(job, changes, field), key: value}
        else:
            changes[field] = _parse_field(field, value)
    for path in removed:
        field, _, key = path.partition(".")
        check(field, key, path)
        if key:
            left = _copy_mapping(job, changes, field)
            left.pop(key, None)
            changes[field] = left
        else:
            changes[field] = {} if field in ("tags", "properties") else None
    return changes


def _parse_field(field: str, value: str) -> Any:
    """Parse tags and properties as JSON, as in ``--set tags='{"a": "b"}'``; leave the other fields text."""
    if field not in ("tags", "properties"):
        return value
    import json

    try:
        given = json.loads(value)
    except ValueError:
        given = None
    if not isinstance(given, dict):
        raise UsageError(f"{field} must be a JSON object; got {value!r}", f"--set {field}.NAME=VALUE")
    return {name: text if isinstance(text, str) else json.dumps(text) for name, text in given.items()}


def _copy_mapping(job: dict[str, Any], changes: dict[str, Any], field: str) -> dict[str, Any]:
    return dict(changes.get(field) or job.get(field) or {})
