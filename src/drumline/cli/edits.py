"""``--set`` and ``--remove`` of the verb ``update``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drumline.contract.errors import UsageError
from drumline.control.jobs import EDITABLE

if TYPE_CHECKING:
    from collections.abc import Sequence


def changes_of(
    job: dict[str, Any],
    given: Sequence[str],
    removed: Sequence[str],
    *,
    editable: Sequence[str] = EDITABLE,
    noun: str = "submitted job",
) -> dict[str, Any]:
    """Field to new value, of a job or of what ``noun`` says. Raises UsageError for a field that cannot change."""

    def check(field: str, key: str, path: str) -> None:
        if field not in editable:
            raise UsageError(f"{path!r} of a {noun} cannot be changed", f"these can: {', '.join(editable)}")
        if key and field not in ("tags", "properties"):
            raise UsageError(f"{field} is a text, and has no {key!r}")

    changes: dict[str, Any] = {}
    for text in given:
        path, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"--set: {text!r} is not of the form PATH=VALUE")
        field, _, key = path.partition(".")
        check(field, key, path)
        if key:
            changes[field] = {**_mapping(job, changes, field), key: value}
        else:
            changes[field] = _whole(field, value)
    for path in removed:
        field, _, key = path.partition(".")
        check(field, key, path)
        if key:
            left = _mapping(job, changes, field)
            left.pop(key, None)
            changes[field] = left
        else:
            changes[field] = {} if field in ("tags", "properties") else None
    return changes


def _whole(field: str, value: str) -> Any:
    """Tags and properties as a whole are JSON, as in ``--set tags='{"a": "b"}'``; the other fields are text."""
    if field not in ("tags", "properties"):
        return value
    import json

    try:
        given = json.loads(value)
    except ValueError:
        given = None
    if not isinstance(given, dict):
        raise UsageError(
            f"{field} has names with values, and {value!r} is neither", f"--set {field}.NAME=VALUE"
        )
    return {name: text if isinstance(text, str) else json.dumps(text) for name, text in given.items()}


def _mapping(job: dict[str, Any], changes: dict[str, Any], field: str) -> dict[str, Any]:
    return dict(changes.get(field) or job.get(field) or {})
