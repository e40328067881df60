"""Inputs that ``--set inputs.x=...`` adds to a job, and that nothing in the job uses: most often a misspelled name."""

from __future__ import annotations

import re

from drumline.spec.hints import did_you_mean
from drumline.spec.reading.tree import Mapping, Scalar, Sequence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from drumline.spec.reading.tree import Node

_PATH = re.compile(r"((?:jobs\.[^.]+\.)*)inputs\.([^.\[]+)")


def list_unused(root: Mapping, overrides: Iterable[dict[str, Any]]) -> list[str]:
    """Return a warning for each input that the overrides, which are applied, have added and nothing refers to."""
    paths = dict.fromkeys(str(path) for override in overrides for path in override)
    return [warning for path in paths if (warning := _explain(root, path))]


def _explain(root: Mapping, path: str) -> str:
    found = _PATH.match(path)
    holder = _find_holder(root, found[1]) if found else None
    inputs = holder.get("inputs") if holder is not None else None
    if not found or holder is None or not isinstance(inputs, Mapping) or found[2] not in inputs:
        return ""
    name = found[2]
    key, value = inputs.entries[name]
    # A key of the file has its place; a component declares its inputs elsewhere, and refuses others itself.
    if key.source is not None or "component" in holder or isinstance(holder.get("trial"), Scalar):
        return ""
    if (isinstance(value, Scalar) and value.value is None) or _is_mentioned(holder, name):
        return ""
    others = [str(other) for other, where, _ in inputs if where.source is not None]
    without = "it has no inputs: to change an argument, set the command (--set command='...')"
    hint = did_you_mean(name, others) or ("inputs of the job: " + ", ".join(others) if others else without)
    return f"{found[1]}inputs.{name} is set, but the job neither declares nor uses this input; {hint}"


def _find_holder(root: Mapping, steps: str) -> Mapping | None:
    """Return the job, or the step of a pipeline, that a path such as ``jobs.train.`` leads to."""
    node: Node | None = root
    for step in filter(None, steps.split(".")):
        node = node.get(step) if isinstance(node, Mapping) else None
    return node if isinstance(node, Mapping) else None


def _is_mentioned(holder: Mapping, name: str) -> bool:
    pattern = re.compile(rf"(?:inputs\.|AZURE_ML_INPUT_){re.escape(name)}(?![\w-])")
    left: list[Node] = [holder]
    while left:
        node = left.pop()
        if isinstance(node, Mapping):
            left += [value for _, _, value in node]
        elif isinstance(node, Sequence):
            left += node.items
        elif isinstance(node, Scalar) and isinstance(node.value, str) and pattern.search(node.value):
            return True
    return False
