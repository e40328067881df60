"""``drumline lint``: what a file most likely does not mean; ``validate``, ``plan`` and submissions warn of it too."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from drumline.cli import output
from drumline.cli.arguments import Parser, add_azure, add_file, add_output, enter_workspace, load_job_file
from drumline.contract.errors import UsageError
from drumline.contract.words import format_count
from drumline.control.submission import driven
from drumline.control.terminal import clean

if TYPE_CHECKING:
    from argparse import Namespace


def main(argv: list[str]) -> int:
    parser = Parser(
        prog="drumline lint",
        description="Find what a job's or component's file and its code most likely do not mean.",
    )
    parser.add_argument("path", nargs="?", metavar="FILE", help="the same as --file FILE")
    add_file(parser, required=False)
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a rule finds something")
    add_output(parser, "default: readable text")
    add_azure(parser)
    arguments = parser.parse_args(argv)
    arguments.file = arguments.file or arguments.path
    if not arguments.file:
        raise UsageError("the file is missing", "drumline lint FILE")
    if arguments.path not in (None, arguments.file):
        raise UsageError(f"two files: {arguments.path} and {arguments.file}", "lint one after the other")
    with enter_workspace(arguments.workspace_name):
        return _lint(arguments)


def _lint(arguments: Namespace) -> int:
    found, refusal = driven.lint(arguments.file, lambda: load_job_file(arguments.file, arguments.set))
    if arguments.query or arguments.output not in (None, "table"):
        output.show([trap.describe() for trap in found], arguments.output or "json", arguments.query)
    else:
        sys.stdout.write("".join(f"{clean(str(trap))}\n" for trap in found))
        print(format_count(len(found), "warning") if found else "nothing found")
    if refusal is not None:
        raise refusal
    return 1 if arguments.strict and any(trap.rule != driven.PLAN for trap in found) else 0
