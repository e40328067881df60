"""``drumline schema``: the JSON Schema of a kind of file, for editors."""

from __future__ import annotations

import json
import sys

from drumline.cli.arguments import Parser
from drumline.spec import json_schema


def main(argv: list[str]) -> int:
    parser = Parser(
        prog="drumline schema",
        description="Print the JSON Schema of a kind of file. With it an editor completes keys and finds mistakes.",
    )
    parser.add_argument(
        "kind",
        nargs="?",
        choices=json_schema.KINDS,
        default="job",
        metavar="KIND",
        help="default: job, of any type",
    )
    parser.add_argument(
        "--out", metavar="FILE", help="write it to a file, and print the line that a YAML file needs"
    )
    arguments = parser.parse_args(argv)
    text = json.dumps(json_schema.make_schema(arguments.kind), indent=1) + "\n"
    if not arguments.out:
        sys.stdout.write(text)
        return 0
    from drumline.cli.guide import editors

    print(editors.make_line(editors.write_schema(arguments.out, text)))
    return 0
