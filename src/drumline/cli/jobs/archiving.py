"""``drumline job archive`` and ``restore``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from drumline.cli.arguments import Parser, add_name, get_name
from drumline.control.jobs import listing

if TYPE_CHECKING:
    from argparse import Namespace


def _add_arguments(parser: Parser) -> None:
    add_name(parser, "job")


def _archive(arguments: Namespace) -> int:
    name = get_name(arguments, "job", "archiving", changes=True)
    if not listing.archive(name):
        print(f"job {name} is archived already", file=sys.stderr)
    return 0


def _restore(arguments: Namespace) -> int:
    name = get_name(arguments, "job", "restoring", changes=True)
    if not listing.restore(name):
        print(f"job {name} is not archived", file=sys.stderr)
    return 0


VERBS = {"archive": (_add_arguments, _archive), "restore": (_add_arguments, _restore)}
