"""``drumline lint``: what a file most likely does not mean; ``validate``, ``plan`` and submissions warn of it too."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

from drumline.cli import output
from drumline.cli.arguments import Parser, add_azure, add_file, add_output, enter_workspace, load_job_file
from drumline.contract.errors import DrumlineError, Problem
from drumline.contract.words import format_count
from drumline.control.lint.programs import Trap
from drumline.control.lint.traps import find_traps
from drumline.control.submission import driven
from drumline.control.submission.planning import list_traps, locate_problems
from drumline.control.terminal import clean
from drumline.spec.load import load_component
from drumline.spec.reading.files import read_tree

if TYPE_CHECKING:
    from argparse import Namespace

_PLAN = "plan"
"""In place of a rule: what the job would be without, or run with, here."""


def main(argv: list[str]) -> int:
    parser = Parser(
        prog="drumline lint",
        description="Find what a job's or component's file and its code most likely do not mean.",
    )
    add_file(parser)
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a rule finds something")
    add_output(parser, "default: readable text")
    add_azure(parser)
    arguments = parser.parse_args(argv)
    with enter_workspace(arguments.workspace_name):
        return _lint(arguments)


def _lint(arguments: Namespace) -> int:
    found = _find_in_component(arguments)
    refusal: DrumlineError | None = None
    if found is None:
        job = load_job_file(arguments.file, arguments.set)
        found = list_traps(job)
        try:
            with locate_problems(job):
                others = (*job._warnings, *driven.warnings_of(job))
        except DrumlineError as error:
            others, refusal = tuple(job._warnings), error
        found += [Trap(_PLAN, Problem(text)) for text in others]
    if arguments.query or arguments.output not in (None, "table"):
        output.show([_describe(trap) for trap in found], arguments.output or "json", arguments.query)
    else:
        sys.stdout.write("".join(f"{clean(str(trap))}\n" for trap in found))
        print(format_count(len(found), "warning") if found else "nothing found")
    if refusal is not None:
        raise refusal
    return 1 if arguments.strict and any(trap.rule != _PLAN for trap in found) else 0


def _find_in_component(arguments: Namespace) -> list[Trap] | None:
    """Return the traps in a component's file; None for a file of something else. Raises SpecError."""
    if arguments.file == "-":
        return None
    _, root, folder = read_tree(arguments.file)
    if not re.search(r"component\.schema\.json", str(root.value_of("$schema") or ""), re.IGNORECASE):
        return None
    load_component(arguments.file, named=False)
    return find_traps(root, folder)


def _describe(trap: Trap) -> dict[str, Any]:
    problem = trap.problem
    return {
        "rule": trap.rule,
        "message": problem.what,
        "hint": problem.hint,
        "path": problem.path,
        "file": problem.file,
        "line": problem.line,
        "column": problem.column,
    }
