"""Reading a job file, and the files that it refers to."""

from __future__ import annotations

import os

from drumline.contract.errors import SpecError
from drumline.spec.reading.source import MAX_BYTES, parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO, Any

    from drumline.spec.reading.tree import Mapping


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
        from drumline.spec.reading.override import apply_overrides

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
