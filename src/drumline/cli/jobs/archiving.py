"""``drumline job archive`` and ``restore``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drumline.cli.arguments import Parser, add_name, get_name
from drumline.control.jobs import listing

if TYPE_CHECKING:
    from argparse import Namespace


def _add_arguments(parser: Parser) -> None:
    add_name(parser, "job")


def _archive(arguments: Namespace) -> int:
    listing.archive(get_name(arguments, "job", "archiving"))
    return 0


def _restore(arguments: Namespace) -> int:
    listing.restore(get_name(arguments, "job", "restoring"))
    return 0


VERBS = {"archive": (_add_arguments, _archive), "restore": (_add_arguments, _restore)}
