"""``drumline cache``: what jobs have fetched from elsewhere, kept for the next ones."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from drumline.cli import output
from drumline.cli.arguments import Parser, add_output, run_verb
from drumline.contract.errors import UsageError

if TYPE_CHECKING:
    from argparse import Namespace

_COLUMNS = ("uri", "size", "files", "last_used", "used_by")


def main(argv: list[str]) -> int:
    return run_verb("cache", "Look after the data that jobs have fetched from elsewhere.", VERBS, argv)


def _show_arguments(parser: Parser) -> None:
    add_output(parser)


def _show(arguments: Namespace) -> int:
    from drumline.control import cache

    output.show(cache.show(), arguments.output, arguments.query)
    return 0


def _list(arguments: Namespace) -> int:
    from drumline.control import cache

    output.show(cache.entries()[: arguments.max_results], arguments.output, arguments.query, _COLUMNS)
    return 0


def _list_arguments(parser: Parser) -> None:
    from drumline.cli.assets import count

    parser.add_argument("-r", "--max-results", type=count, help="default: all")
    add_output(parser)


def _prune_arguments(parser: Parser) -> None:
    parser.add_argument(
        "--to", metavar="SIZE", help="until at most so much is left, such as 10GB; default: the limit"
    )
    parser.add_argument(
        "--older-than", metavar="TIME", help="and all that was not used for so long, such as 30d"
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would go, and remove nothing")
    add_output(parser)


def _prune(arguments: Namespace) -> int:
    from drumline.control import cache

    removed = cache.prune(arguments.to, arguments.older_than, dry_run=arguments.dry_run)
    output.show(removed, arguments.output, arguments.query)
    return 0


def _clear_arguments(parser: Parser) -> None:
    parser.add_argument("-y", "--yes", action="store_true", help="without a question")
    add_output(parser)


def _clear(arguments: Namespace) -> int:
    from drumline.control import cache

    if not arguments.yes and not _agrees():
        return 1
    output.show(cache.clear(), arguments.output, arguments.query)
    return 0


def _agrees() -> bool:
    if not sys.stdin.isatty():
        raise UsageError("clear removes all that no running job uses", "drumline cache clear --yes")
    print("Remove all that no running job uses? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _limit_arguments(parser: Parser) -> None:
    parser.add_argument(
        "size", nargs="?", metavar="SIZE", help="such as 200GB; default: a quarter of its file system"
    )
    add_output(parser)


def _limit(arguments: Namespace) -> int:
    from drumline.control import cache

    if arguments.size:
        cache.set_limit(arguments.size)
    output.show(cache.limit(), arguments.output, arguments.query)
    return 0


VERBS = {
    "show": ("where it is, how large, and how large it may be", _show_arguments, _show),
    "list": ("what was fetched, used last first", _list_arguments, _list),
    "prune": (
        "remove what was not used for the longest time, and no running job uses",
        _prune_arguments,
        _prune,
    ),
    "clear": ("remove all that no running job uses", _clear_arguments, _clear),
    "limit": ("how large it may be; with a size: change that", _limit_arguments, _limit),
}
