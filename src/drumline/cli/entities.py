"""Entities of a file, of flags, or of both: what ``create`` and ``update`` of several nouns are given."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from drumline.cli.arguments import parse_overrides
from drumline.contract.errors import UsageError

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable

    from drumline.spec.kinds.report import Report
    from drumline.spec.reading.tree import Mapping

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
    from drumline.spec.kinds.report import Report
    from drumline.spec.reading.override import apply_overrides
    from drumline.spec.reading.tree import Mapping, wrap

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
