"""``drumline job exec``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from drumline.cli.arguments import Parser, add_name, get_name

if TYPE_CHECKING:
    from argparse import Namespace


def _exec_arguments(parser: Parser) -> None:
    parser.usage = "%(prog)s NAME [--rank RANK] [-- COMMAND ...]"
    add_name(parser, "job")
    parser.add_argument("--rank", default="0", help="the rank: 3, or ps0 for a parameter server; default: 0")
    parser.set_defaults(program=[])


def _exec(arguments: Namespace) -> int:
    from drumline.control.access import beside

    sys.stdout.flush()
    return beside.run_beside_rank(get_name(arguments, "job"), arguments.rank, arguments.program)


VERBS = {"exec": (_exec_arguments, _exec)}
