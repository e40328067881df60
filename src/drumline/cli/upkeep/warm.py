"""``drumline warm``: the warm interpreters that ranks are forked from."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from drumline.cli import output
from drumline.cli.arguments import Parser, add_output, run_verb
from drumline.contract.words import name_plural
from drumline.control.machine import warm

if TYPE_CHECKING:
    from argparse import Namespace

    from drumline.cli.arguments import Verbs

_COLUMNS = ("pid", "program", "python", "imported", "memory", "age", "idle", "used")


def main(argv: list[str]) -> int:
    return run_verb("warm", "Manage the warm interpreters that ranks are forked from.", VERBS, argv)


def _list(arguments: Namespace) -> int:
    output.show(warm.warm_interpreters(), arguments.output, arguments.query, _COLUMNS)
    return 0


def _stop_arguments(parser: Parser) -> None:
    parser.add_argument("--pid", type=int, metavar="N", help="only this one; default: all")


def _stop(arguments: Namespace) -> int:
    stopped = warm.stop(arguments.pid)
    numbers = ", ".join(map(str, stopped))
    noun = name_plural("warm interpreter", len(stopped))
    print(f"stopped {noun} {numbers}" if stopped else "there are no warm interpreters", file=sys.stderr)
    return 0


VERBS: Verbs = {
    "list": ("list warm interpreters, most recently used first", add_output, _list),
    "stop": ("stop warm interpreters; running ranks continue", _stop_arguments, _stop),
}
