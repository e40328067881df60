"""A job as ``drumline job show`` printed it, made a job file again."""

from __future__ import annotations

from drumline.spec.reading.tree import Mapping, Scalar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from typing import Any

    from drumline.spec.reading.tree import Node

_RUN_NAMES = ("name", "display_name")
_SIMILAR = 0.8


def forget_run(root: Mapping, known: Collection[str]) -> None:
    """
    Remove what is of the earlier run alone; ``known``: the keys of a job file.

    A name that was changed since it was printed stays, and so does a key that is like one of a job file.
    """
    earlier = str(_value(root.get("id")) or "").removeprefix("azureml:")
    for key in _RUN_NAMES:
        if _value(root.get(key)) == earlier:
            root.entries.pop(key, None)
    root.entries.pop("parent_job_name", None)
    for key in [key for key in root.entries if key not in known and not _is_like(str(key), known)]:
        del root.entries[key]
    _keep_some(
        root, "services", lambda service: not isinstance(service, Mapping) or "endpoint" not in service
    )
    outputs = root.get("outputs")
    for output, (_, value) in outputs.entries.items() if isinstance(outputs, Mapping) else ():
        if (
            isinstance(value, Mapping)
            and _value(value.get("path")) == f"azureml://jobs/{earlier}/outputs/{output}"
        ):
            del value.entries["path"]
    if isinstance(outputs, Mapping):
        default = outputs.get("default")
        if isinstance(default, Mapping) and set(default.entries) <= {"type"}:
            del outputs.entries["default"]
        if not outputs.entries:
            del root.entries["outputs"]


def _keep_some(root: Mapping, key: str, is_kept: Callable[[Node], bool]) -> None:
    part = root.get(key)
    if not isinstance(part, Mapping):
        return
    for name in [name for name, (_, value) in part.entries.items() if not is_kept(value)]:
        del part.entries[name]
    if not part.entries:
        del root.entries[key]


def _is_like(key: str, known: Collection[str]) -> bool:
    import difflib

    return bool(difflib.get_close_matches(key, known, n=1, cutoff=_SIMILAR))


def _value(node: Node | None) -> Any:
    return node.value if isinstance(node, Scalar) else None
