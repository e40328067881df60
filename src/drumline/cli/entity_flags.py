"""Entities of a file, of flags, or of both, and their changes: what ``create`` and ``update`` of nouns are given."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from drumline.cli.arguments import parse_overrides
from drumline.contract.errors import UsageError
from drumline.control.jobs.job_folders import EDITABLE
from drumline.spec.kinds.values import Report
from drumline.spec.reading.source import Mapping, wrap

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Sequence


_STDIN = ("-", "/dev/stdin")


def load_entity(
    arguments: Namespace,
    values: dict[str, Any],
    load: Callable[..., Any],
    from_tree: Callable[[Mapping, Report], Any],
) -> Any:
    """Read ``--file`` with ``values`` over it, or ``values`` alone; ``--set`` is applied first."""
    changes = parse_overrides(arguments.set)
    if arguments.file in _STDIN:
        return load(sys.stdin.buffer, relative_origin=os.getcwd(), params_override=[*changes, values])
    if arguments.file:
        return load(arguments.file, params_override=[*changes, values])
    from drumline.spec.reading.files import apply_overrides

    root = wrap({})
    assert isinstance(root, Mapping)
    apply_overrides(root, [*changes, values])
    return from_tree(root, Report(os.getcwd()))


def parse_tags(arguments: Namespace) -> dict[str, Any]:
    """Return ``--tags`` by their key in YAML; empty without any. Raises UsageError."""
    tags = {}
    for text in arguments.tags or ():
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise UsageError(f"--tags: {text!r} is not of the form NAME=VALUE", "--tags team=vision")
        tags[key] = value
    return {"tags": tags} if tags else {}


def make_absolute(path: str | None) -> str | None:
    """Return a path of the command line in full, so that it does not depend on where a file lies; URIs as they are."""
    from drumline.spec.paths import is_remote, local_part

    return path if not path or is_remote(path) else os.path.abspath(local_part(path))


# --set and --remove


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
