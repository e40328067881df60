"""The targets of a job's paths: local ones against the folder of its file, URIs nowhere but themselves."""

from __future__ import annotations

import os
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class HasBasePath(Protocol):
        @property
        def base_path(self) -> str: ...


_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")


def scheme_of(value: str) -> str:
    """
    Return ``https``, ``azureml``, ``abfss``, ``runs``, ``git+https``...; empty for a local path and for ``file:``.

    >>> scheme_of("azureml:digits:1"), scheme_of("file:data"), scheme_of("C:data")
    ('azureml', '', '')
    """
    match = _SCHEME.match(value)
    scheme = match[1].lower() if match else ""
    if scheme == "file" or not match:
        return ""
    rest = value[match.end() :]
    known = scheme in ("azureml", "runs", "models", "git", "hdfs", "dbfs")
    return scheme if known or rest.startswith("//") else ""


def is_remote(value: str) -> bool:
    """Return whether a value names something that is not a path on this machine."""
    return bool(scheme_of(value))


def local_part(value: str) -> str:
    """Return the path in ``file:data``, ``file:///data`` or plain ``data``."""
    if not value.lower().startswith("file:"):
        return value
    path = value[5:]
    if path.startswith("//"):
        from urllib.parse import unquote

        host, slash, rest = path[2:].partition("/")
        if host in ("", "localhost"):
            return unquote(slash + rest)
    return path


def resolve(owner: HasBasePath, value: str) -> str:
    """
    Return the absolute path that a value in a job or environment names; a URI as it is.

    ``~`` is an ordinary character, as in Azure.
    """
    if is_remote(value):
        return value
    return os.path.normpath(os.path.join(owner.base_path, local_part(value)))
