"""``drumline job stacks``: where each rank of a running job is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drumline.cli import output
from drumline.cli.arguments import Parser, add_name, add_output, get_name

if TYPE_CHECKING:
    from argparse import Namespace


def _add_arguments(parser: Parser) -> None:
    add_name(parser, "job")
    parser.add_argument("-e", "--web", action="store_true", help="print the path of its run folder")
    add_output(parser)


def _show_stacks(arguments: Namespace) -> int:
    from drumline.control.facts import stacks

    answer = stacks.ask_stacks(get_name(arguments, "job"))
    if arguments.output not in (None, "table") or arguments.query:
        output.show(answer, arguments.output, arguments.query)
        return 0
    from drumline.cli.pager import print_text

    print_text(stacks.format_stacks(answer))
    return 0


VERBS = {"stacks": (_add_arguments, _show_stacks)}
