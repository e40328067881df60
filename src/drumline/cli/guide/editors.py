"""The schema of a YAML file for an editor: a line at the file's top, and the schema in a file."""

from __future__ import annotations

import json
import os

from drumline.contract.folder import private_folder, write_whole
from drumline.contract.ownership import make_home


def write_schema(path: str, text: str) -> str:
    """Write a schema, in folders that are made for it, and return its absolute path. Raises OSError."""
    path = os.path.abspath(os.path.expanduser(path))
    os.makedirs(os.path.dirname(path), exist_ok=True)
    write_whole(path, text)
    return path


def store_schema(kind: str) -> str:
    """Write the schema of a kind of file into the home, and return its path; empty for a home that is read-only."""
    from drumline.spec.json_schema import make_schema

    try:
        folder = os.path.join(make_home(), "schemas")
        private_folder(folder)
        return write_schema(
            os.path.join(folder, f"{kind}.json"), json.dumps(make_schema(kind), indent=1) + "\n"
        )
    except OSError:
        return ""


def make_line(path: str) -> str:
    """Return the first line of a YAML file whose schema is in that file."""
    return f"# yaml-language-server: $schema={path}"
