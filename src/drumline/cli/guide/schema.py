"""``drumline schema``: the JSON Schema of a kind of file, for editors, and the line that names it at a file's top."""

from __future__ import annotations

import json
import os
import sys

from drumline.cli.arguments import Parser
from drumline.contract.folder import private_folder, write_whole
from drumline.contract.ownership import make_home
from drumline.spec import entity_types
from drumline.spec.entity_types import make_schema


def main(argv: list[str]) -> int:
    parser = Parser(
        prog="drumline schema",
        description="Print the JSON Schema of a kind of file. With it an editor completes keys and finds mistakes.",
    )
    parser.add_argument(
        "kind",
        nargs="?",
        choices=entity_types.KINDS,
        default="job",
        metavar="KIND",
        help="default: job, of any type",
    )
    parser.add_argument(
        "--out", metavar="FILE", help="write it to a file, and print the line that a YAML file needs"
    )
    arguments = parser.parse_args(argv)
    text = json.dumps(entity_types.make_schema(arguments.kind), indent=1) + "\n"
    if not arguments.out:
        sys.stdout.write(text)
        return 0

    print(make_line(write_schema(arguments.out, text)))
    return 0


# for an editor


def write_schema(path: str, text: str) -> str:
    """Write a schema, in folders that are made for it, and return its absolute path. Raises OSError."""
    path = os.path.abspath(os.path.expanduser(path))
    os.makedirs(os.path.dirname(path), exist_ok=True)
    write_whole(path, text)
    return path


def store_schema(kind: str) -> str:
    """Write the schema of a kind of file into the home, and return its path; empty for a home that is read-only."""
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
