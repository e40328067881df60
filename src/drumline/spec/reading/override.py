"""``--set a.b.c=value``: changes to a job file before it is checked."""

from __future__ import annotations

import re

from drumline.contract.errors import SpecError
from drumline.spec.reading.tree import Mapping, Scalar, Sequence, wrap

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from drumline.spec.reading.tree import Node

_INDEX = r"\[(\d+)\]"


def apply_overrides(root: Mapping, overrides: list[dict[str, Any]]) -> None:
    """
    Put every value at its dotted path (``inputs.lr``, ``resources.docker_args.0``), making mappings
    on the way.

    Raises SpecError, naming the override, when a path leads through something else.
    """
    for override in overrides:
        for path, value in override.items():
            _set(root, str(path), value)


def wrap_file(values: dict[str, Any], overrides: list[dict[str, Any]] | None = None) -> Mapping:
    """Return the tree of a file with these values, and the overrides applied. Raises SpecError."""
    root = wrap(values)
    assert isinstance(root, Mapping)
    apply_overrides(root, overrides or [])
    return root


def _set(root: Mapping, path: str, value: Any) -> None:
    steps = re.sub(_INDEX, r".\1", path).split(".")
    if not all(steps):
        raise _refusal(path, "a step of the path is empty", "write it as 'resources.instance_count'")
    node: Node = root
    for step in steps[:-1]:
        node = _step(node, step, path)
    last = steps[-1]
    if isinstance(node, Sequence):
        index = _index(node, last, path)
        node.items[index : index + 1] = [wrap(value)]
    elif isinstance(node, Mapping):
        key, _ = node.entries.get(last, (Scalar(last, last), None))
        new = wrap(value)
        new.key = key
        node.entries[last] = (key, new)


def _step(node: Node, step: str, path: str) -> Node:
    if isinstance(node, Sequence):
        index = _index(node, step, path)
        if index == len(node.items):
            raise _refusal(path, f"the list has no item {step}")
        found: Node | None = node.items[index]
    else:
        assert isinstance(node, Mapping)
        found = node.get(step)
        if found is None or (isinstance(found, Scalar) and found.value is None):
            key, _ = node.entries.get(step, (Scalar(step, step), None))
            made = Mapping()
            node.entries[step] = (key, made)
            return made
    if isinstance(found, Scalar):
        raise _refusal(path, f"{step!r} is {found.text or found.value!r}, not a mapping")
    assert found is not None
    return found


def _index(node: Sequence, step: str, path: str) -> int:
    """Return the position that a step names; one past the end appends."""
    if not step.isdecimal():
        raise _refusal(path, f"{step!r} is not a position in the list", "use 0 for the first item")
    if int(step) > len(node.items):
        raise _refusal(path, f"the list has {len(node.items)} items, so no item {step}")
    return int(step)


def _refusal(path: str, what: str, hint: str = "") -> SpecError:
    return SpecError(f"override {path!r}: {what}", hint)
