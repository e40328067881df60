"""``drumline doctor``: what of this machine, or of the nodes of a compute, keeps jobs from running well."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from drumline.cli import output
from drumline.cli.arguments import Parser, add_azure, add_output, enter_workspace
from drumline.cli.colour import paint
from drumline.contract.errors import UsageError
from drumline.contract.words import format_count
from drumline.control.terminal import clean
from drumline.control.upkeep import machine_doctor

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator, Sequence

    from drumline.cli.colour import Colour
    from drumline.control.upkeep.machine_doctor import ShownFinding


_COLOURS: dict[str, Colour] = {"ok": "green", "warning": "yellow", "error": "red"}


def main(argv: list[str]) -> int:
    parser = Parser(
        prog="drumline doctor",
        description="Check this machine, or the nodes of a compute, for what keeps jobs from running well. "
        "The exit code is 1 if there is an error, 0 otherwise.",
    )
    parser.add_argument(
        "--fix", action="store_true", help="repair what is Drumline's own: index, sockets, leftovers"
    )
    parser.add_argument(
        "--compute", metavar="NAME", help="check nodes of this compute by a small job that starts no rank"
    )
    parser.add_argument(
        "--nodes", type=int, metavar="N", help="with --compute: check N nodes; default: those that are free"
    )
    add_output(parser)
    add_azure(parser)
    arguments = parser.parse_args(argv)
    _check(arguments)
    with enter_workspace(arguments.workspace_name):
        return _doctor(arguments)


def _check(arguments: Namespace) -> None:
    """Raise UsageError for options that exclude each other."""
    if arguments.compute is None and arguments.nodes is not None:
        raise UsageError("--nodes is for the nodes of a compute", "drumline doctor --compute NAME --nodes 2")
    if arguments.compute is not None and arguments.fix:
        raise UsageError(
            "--fix repairs this machine, and --compute checks others", "log in there: drumline doctor --fix"
        )
    if arguments.nodes is not None and arguments.nodes < 1:
        raise UsageError(f"--nodes must be at least 1; got {arguments.nodes}")


def _doctor(arguments: Namespace) -> int:
    if arguments.compute is not None:
        checks = machine_doctor.examine_compute(arguments.compute, arguments.nodes, output.tell)
        _show(checks, arguments)
        return int(any(one.status == "error" for one in checks))
    found = machine_doctor.examine_machine()
    if arguments.fix:
        for name, done in machine_doctor.fix(found).items():
            print(f"{name}: {done}", file=sys.stderr)
            found = machine_doctor.examine_machine()
    _show(machine_doctor.describe(one.to_json({}) for one in found), arguments)
    return int(any(one.status == "error" for one in found))


def _show(checks: Sequence[ShownFinding], arguments: Namespace) -> None:
    if output.is_for_people(arguments.output, arguments.query):
        sys.stdout.write("".join(line + "\n" for line in format_checks(checks)))
        return
    output.show({"checks": checks}, arguments.output, arguments.query)


def format_checks(checks: Sequence[ShownFinding]) -> Iterator[str]:
    """Yield the lines of a table, with a remedy below its finding, and a line of counts."""
    width = max(len(one.id) for one in checks)
    for one in checks:
        where = f"{one.node}: " if one.node is not None else ""
        status = paint(one.status.ljust(7), _COLOURS[one.status])
        yield f"{status}  {one.id.ljust(width)}  {clean(where + one.finding)}".rstrip()
        if one.remedy:
            yield " " * (11 + width) + clean(one.remedy)
    counts = {status: sum(one.status == status for one in checks) for status in ("error", "warning")}
    yield "; ".join(format_count(count, status) for status, count in counts.items())
