"""Reading a job file and the files that it refers to; changes to it (``--set``) before it is checked."""

from __future__ import annotations

import os
import re

from drumline.contract.errors import SpecError
from drumline.spec.reading.source import MAX_BYTES, Mapping, Scalar, Sequence, parse, wrap

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from typing import IO, Any

    from drumline.spec.reading.source import Node


def read_yaml(path: str, name: str = "") -> Mapping:
    """
    Return the mapping in a YAML file.

    name: what messages call the file; its path relative to the working folder unless given.
    """
    shown = name or _shorten(path)
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise SpecError(f"no such file: {shown!r}") from None
    except IsADirectoryError:
        hint = _yaml_inside(path)
        raise SpecError(f"{shown!r} is a folder, not a file", hint) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SpecError(f"cannot read {shown!r}: {reason}") from None
    return parse(data, shown)


def read_tree(
    source: str | os.PathLike[str] | IO[Any],
    relative_origin: str | os.PathLike[str] | None = None,
    overrides: list[dict[str, Any]] | None = None,
) -> tuple[str, Mapping, str]:
    """
    Return the name of a file or stream, the mapping in it with ``overrides`` applied, and the folder of its paths.

    relative_origin: that folder, or a file in it, instead of where the file lies.
    """
    name, root = _read_source(source)
    base_path = _base_path(source, relative_origin)
    if overrides:
        apply_overrides(root, overrides)
    return name, root, base_path


def _read_source(source: str | os.PathLike[str] | IO[Any]) -> tuple[str, Mapping]:
    if isinstance(source, (str, os.PathLike)):
        path = os.fspath(source)
        return path, read_yaml(path, path)
    name = getattr(source, "name", "")
    name = name if isinstance(name, str) else ""
    try:
        data = source.read()
    except UnicodeDecodeError:
        raise SpecError(f"{name or '<stream>'!r} is not valid UTF-8") from None
    return name, parse(data, name or "<stream>")


def _base_path(
    source: str | os.PathLike[str] | IO[Any], relative_origin: str | os.PathLike[str] | None
) -> str:
    if relative_origin is not None:
        origin = os.path.abspath(relative_origin)
        return origin if os.path.isdir(origin) else os.path.dirname(origin)
    name = source if isinstance(source, (str, os.PathLike)) else getattr(source, "name", None)
    if isinstance(name, (str, os.PathLike)):
        return os.path.dirname(os.path.abspath(name))
    return os.getcwd()


def _shorten(path: str) -> str:
    short = os.path.relpath(path) if os.path.isabs(path) else path
    return path if short.startswith("..") else short


def _yaml_inside(folder: str) -> str:
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith((".yml", ".yaml")))
    except OSError:
        return ""
    return f"did you mean {os.path.join(folder, names[0])!r}?" if names else ""


_INDEX = r"\[(\d+)\]"
_NUMBER = r"[+-]?([0-9]{1,30}(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,2})?"


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
        key, before = node.entries.get(last, (Scalar(last, last), None))
        new = wrap(_read_like(before, value) if "inputs" in steps else value)
        new.key = key
        node.entries[last] = (key, new)


def _read_like(before: Node | None, value: Any) -> Any:
    """Return a text as the number or the truth value that it is, if it replaces one."""
    if not isinstance(before, Scalar) or not isinstance(value, str):
        return value
    if isinstance(before.value, bool):
        return {"true": True, "false": False}.get(value.lower(), value)
    if not isinstance(before.value, (int, float)) or not re.fullmatch(_NUMBER, value):
        return value
    return int(value) if re.fullmatch(r"[+-]?[0-9]+", value) else float(value)


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


# A job as ``drumline job show`` printed it, made a job file again.


_RUN_NAMES = ("name", "display_name")
_SIMILAR = 0.8


def forget_run(root: Mapping, known: Collection[str]) -> None:
    """
    Remove what is of the earlier run alone; ``known``: the keys of a job file.

    A name that was changed since it was printed stays, and so does a key that is like one of a job file.
    """
    earlier = str(root.value_of("id") or "").removeprefix("azureml:")
    for key in _RUN_NAMES:
        if root.value_of(key) == earlier:
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
            and value.value_of("path") == f"azureml://jobs/{earlier}/outputs/{output}"
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
